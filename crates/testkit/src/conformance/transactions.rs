//! Verdicts in the transaction of a handler, on engines that have such.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use celeriac_core::{Committed, JobTransaction, Room, Settled, Verdict, WorkerId};

use super::scene::Scene;

async fn begin(scene: &Scene, worker: WorkerId) -> Option<(Box<dyn JobTransaction>, celeriac_core::Claimed)> {
    let transactions = scene.broker.transactions()?;
    scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    let mut open = transactions.begin(worker, claimed.receipt).await.unwrap();
    let lent = open.lend().unwrap();
    assert_eq!((*lent).type_id(), transactions.handle());
    assert!(open.lend().is_none(), "one handler has it");
    drop(lent);
    Some((open, claimed))
}

/// The commit is the verdict `done`.
pub async fn a_committed_transaction_settles_its_job(scene: &Scene) {
    let worker = scene.worker().await;
    let Some((open, claimed)) = begin(scene, worker).await else { return };
    let ended = open.commit().await;
    assert!(matches!(ended, Committed::Applied), "{ended:?}");
    assert_eq!(scene.room(claimed.job.id).await, None);
    assert_eq!(scene.settle(worker, &claimed, Verdict::Done).await, Settled::Stale);
    scene.sound().await;
}

/// A rolled back or dropped transaction leaves the job in its worker's hands.
pub async fn a_transaction_without_a_commit_changes_nothing(scene: &Scene) {
    let worker = scene.worker().await;
    for dropped in [false, true] {
        let Some((open, claimed)) = begin(scene, worker).await else { return };
        if dropped {
            drop(open);
        } else {
            open.roll_back().await;
        }
        assert_eq!(scene.room(claimed.job.id).await, Some(Room::Jobs));
        scene.apply(worker, &claimed, Verdict::Done).await;
    }
    scene.sound().await;
}

/// The fence holds within the transaction: who lost the job commits nothing.
pub async fn a_transaction_of_a_lost_job_is_not_committed(scene: &Scene) {
    let worker = scene.worker().await;
    let Some((open, claimed)) = begin(scene, worker).await else { return };
    scene.other.retire(worker).await.unwrap();
    let ended = open.commit().await;
    assert!(matches!(ended, Committed::Stale), "{ended:?}");
    let second = scene.worker().await;
    let again = scene.claim_one(second).await;
    assert_eq!(again.job.id, claimed.job.id);
    scene.apply(second, &again, Verdict::Done).await;
    scene.sound().await;
}

/// A verdict that went before leaves nothing to settle.
pub async fn a_transaction_of_a_settled_job_is_not_committed(scene: &Scene) {
    let worker = scene.worker().await;
    let Some((open, claimed)) = begin(scene, worker).await else { return };
    scene.apply(worker, &claimed, Verdict::Release).await;
    let ended = open.commit().await;
    assert!(matches!(ended, Committed::Stale), "{ended:?}");
    let again = scene.claim_one(worker).await;
    scene.apply(worker, &again, Verdict::Done).await;
    scene.sound().await;
}
