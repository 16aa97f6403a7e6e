//! Cases of jobs that were in the hands of a worker when that died: one of them may be what killed it.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::time::Duration;

use celeriac_core::{
    BulkAct, Claimed, DeadReason, Filter, JobId, QueueChange, Room, Suspects, Verdict, WorkerId,
};

use super::scene::{Scene, claim_options, ids, retry};

/// Makes suspects of `count` new jobs.
async fn lose(scene: &Scene, count: usize) -> Vec<JobId> {
    let dead = scene.worker().await;
    let stored = scene.fill("default", count).await;
    assert_eq!(ids(&claim_without_suspects(scene, dead, count).await), stored);
    scene.broker.retire(dead).await.unwrap();
    stored
}

async fn claim_without_suspects(scene: &Scene, worker: WorkerId, limit: usize) -> Vec<Claimed> {
    let mut options = claim_options(worker, &["default"], limit);
    options.suspects = Suspects::Leave;
    scene.broker.claim(options).await.unwrap()
}

/// One suspect a claim, before everything else, under a claim of its own; fresh jobs fill the rest.
pub async fn suspects_come_first_and_alone(scene: &Scene) {
    let suspects = lose(scene, 3).await;
    let mut urgent = scene.job("default");
    urgent.priority = celeriac_core::Priority::HIGHEST;
    let fresh = scene.put(vec![scene.job("default"), scene.job("default"), urgent]).await;
    let worker = scene.worker().await;
    let claimed = scene.claim(worker, 3).await;
    assert_eq!(ids(&claimed), [suspects[0], fresh[2], fresh[0]]);
    assert_eq!(claimed.iter().map(Claimed::is_suspect).collect::<Vec<_>>(), [true, false, false]);
    assert_ne!(claimed[0].receipt.claim, claimed[1].receipt.claim);
    assert_eq!(claimed[1].receipt.claim, claimed[2].receipt.claim);
    assert_eq!(ids(&scene.claim(worker, 1).await), [suspects[1]]);
    assert_eq!(ids(&scene.claim(worker, 100).await), [suspects[2], fresh[1]]);
    scene.sound().await;
}

/// A worker that has a suspect in hand may leave the others.
pub async fn suspects_are_left_on_request(scene: &Scene) {
    let suspects = lose(scene, 2).await;
    let fresh = scene.fill("default", 2).await;
    let worker = scene.worker().await;
    assert_eq!(ids(&claim_without_suspects(scene, worker, 10).await), fresh);
    assert!(claim_without_suspects(scene, worker, 10).await.is_empty());
    assert_eq!(ids(&scene.claim(worker, 10).await), suspects[..1]);
    scene.sound().await;
}

/// Whoever gave a verdict lived: the job returns to its own lane, with its count of lost deliveries.
pub async fn a_verdict_clears_a_suspect(scene: &Scene) {
    let suspects = lose(scene, 2).await;
    let worker = scene.worker().await;
    let held = [scene.claim_one(worker).await, scene.claim_one(worker).await];
    scene.apply(worker, &held[0], retry(Duration::ZERO, "x")).await;
    scene.apply(worker, &held[1], Verdict::Snooze { after: Duration::ZERO }).await;
    scene.maintain_until("both", |total| total.promoted == 2).await;
    let claimed = claim_without_suspects(scene, worker, 10).await;
    assert_eq!(ids(&claimed), suspects);
    assert!(claimed.iter().all(|claimed| claimed.job.deliveries == 1));
    scene.sound().await;
}

/// A release says nothing about the job: it stays a suspect, in its place.
pub async fn a_released_suspect_stays_one(scene: &Scene) {
    let suspects = lose(scene, 2).await;
    let worker = scene.worker().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Release).await;
    assert!(claim_without_suspects(scene, worker, 10).await.is_empty());
    let again = scene.claim_one(worker).await;
    assert_eq!((again.job.id, again.job.deliveries), (suspects[0], 1));
    scene.sound().await;
}

/// A job that kills its worker each time ends in the bin; those that were beside it the first time are done.
pub async fn only_the_culprit_reaches_the_delivery_limit(scene: &Scene) {
    let jobs = lose(scene, 5).await;
    let culprit = jobs[2];
    let mut lives = 0;
    let mut done = Vec::new();
    let mut worker = scene.worker().await;
    while lives < 100 {
        let claimed = scene.claim(worker, 10).await;
        if claimed.is_empty() {
            break;
        }
        assert_eq!(claimed.len(), 1, "suspects come alone");
        if claimed[0].job.id == culprit {
            scene.broker.retire(worker).await.unwrap();
            worker = scene.worker().await;
            lives += 1;
        } else {
            assert_eq!(claimed[0].job.deliveries, 1, "no neighbour is charged again");
            scene.apply(worker, &claimed[0], Verdict::Done).await;
            done.push(claimed[0].job.id);
        }
    }
    assert_eq!(lives, 2, "the limit is three deliveries, and the first was lost with the others");
    assert_eq!(done.len(), 4);
    let details = scene.details(culprit).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::DeliveryLimit)));
    assert_eq!((details.job.deliveries, details.job.attempt), (3, 0));
    assert_eq!(details.job.extras.history.len(), 3, "each loss is in the history");
    scene.sound().await;
}

/// A job that is sent back from the bin has its lost deliveries forgiven: it is no suspect and has the whole limit before it.
pub async fn a_replayed_culprit_is_no_suspect(scene: &Scene) {
    let mut change = QueueChange::default();
    change.delivery_limit = Some(2);
    scene.change("default", change).await;
    let id = lose(scene, 1).await[0];
    let worker = scene.worker().await;
    scene.claim_one(worker).await;
    scene.broker.retire(worker).await.unwrap();
    assert_eq!(scene.details(id).await.reason, Some(DeadReason::DeliveryLimit));
    assert_eq!(scene.bulk(Filter::room(Room::Dead), BulkAct::Replay { queue: None }).await, [id]);
    let worker = scene.worker().await;
    let claimed = claim_without_suspects(scene, worker, 10).await;
    assert_eq!((ids(&claimed), claimed[0].job.deliveries), (vec![id], 0));
    scene.broker.retire(worker).await.unwrap();
    let details = scene.details(id).await;
    assert_eq!((details.room, details.job.deliveries), (Room::Jobs, 1));
    scene.sound().await;
}

/// The limit is the queue's setting.
pub async fn a_delivery_limit_of_one_buries_at_the_first_loss(scene: &Scene) {
    let mut change = QueueChange::default();
    change.delivery_limit = Some(1);
    scene.change("default", change).await;
    let lost = lose(scene, 2).await;
    for id in lost {
        let details = scene.details(id).await;
        assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::DeliveryLimit)));
        assert_eq!(details.job.deliveries, 1);
    }
    let figures = scene.figures("default").await;
    assert_eq!((figures.buried, figures.redelivered), (2, 0));
    scene.sound().await;
}

/// Suspects come in the order in which they came back, and of one worker in the order of their places.
pub async fn suspects_keep_their_order(scene: &Scene) {
    let mut expected = lose(scene, 3).await;
    expected.extend(lose(scene, 2).await);
    let worker = scene.worker().await;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(ids(&scene.claim(worker, 7).await));
    }
    assert_eq!(order, expected);
    scene.sound().await;
}
