//! What is remembered of jobs that are done.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::time::Duration;

use celeriac_core::{JobId, QueueChange, Verdict};

use super::scene::{HOURS, Scene, fresh_id, retry};

async fn keep(scene: &Scene, queue: &str, history: Option<Duration>) {
    let mut change = QueueChange::default();
    change.history = Some(history);
    scene.change(queue, change).await;
}

async fn is_remembered(scene: &Scene, id: JobId) -> bool {
    scene.other.finished(id).await.unwrap().is_some()
}

/// A queue with a history tells when and by whom a job was done; others tell nothing, and nobody knows of jobs that are
/// not done.
pub async fn a_finished_job_is_remembered_where_that_is_asked_for(scene: &Scene) {
    scene.declare(&["silent"]).await;
    keep(scene, "default", Some(HOURS)).await;
    let worker = scene.worker_with("host:77", HOURS, &[]).await;
    let jobs = scene.fill("default", 9).await;
    let silent = scene.fill("silent", 1).await[0];
    let claimed = scene.claim_from(worker, &["default", "silent"], 20).await;
    assert_eq!(claimed.len(), 10);
    // In runs, one by one, and among verdicts of other kinds.
    scene.settle_all(worker, &claimed[..5], &Verdict::Done).await;
    scene.apply(worker, &claimed[5], Verdict::Done).await;
    let mixed = [(6, Verdict::Done), (7, retry(HOURS, "no"))]
        .map(|(at, verdict)| celeriac_core::Settlement { receipt: claimed[at].receipt, verdict });
    scene.broker.settle(worker, mixed.into()).await.unwrap();
    scene.apply(worker, &claimed[9], Verdict::Done).await;
    for (at, id) in jobs.iter().enumerate() {
        assert_eq!(is_remembered(scene, *id).await, at < 7, "job {at}");
    }
    let finished = scene.broker.finished(jobs[2]).await.unwrap().unwrap();
    assert_eq!(
        (finished.id, finished.queue.as_str(), finished.worker.as_str()),
        (jobs[2], "default", "host:77")
    );
    assert!(finished.at >= claimed[2].job.enqueued_at);
    assert!(!is_remembered(scene, silent).await && !is_remembered(scene, fresh_id()).await);
    scene.sound().await;
}

/// After its time an entry is gone, whether it was removed already or not; without a history nothing new is kept.
pub async fn a_history_ends_with_its_time(scene: &Scene) {
    keep(scene, "default", Some(HOURS)).await;
    let worker = scene.worker().await;
    let ids = scene.fill("default", 3).await;
    let claimed = scene.claim(worker, 3).await;
    scene.settle_all(worker, &claimed, &Verdict::Done).await;
    assert!(is_remembered(scene, ids[0]).await);
    keep(scene, "default", Some(Duration::ZERO)).await;
    assert!(!is_remembered(scene, ids[0]).await);
    scene.maintain().await;
    keep(scene, "default", None).await;
    let later = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Done).await;
    keep(scene, "default", Some(HOURS)).await;
    assert!(!is_remembered(scene, later).await);
    scene.sound().await;
}
