//! Cases of [`Broker::claim`](celeriac_core::Broker::claim): who gets what, and in which order.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use celeriac_core::{
    Error, JobId, NewJob, Paused, Payload, Priority, QueueChange, QueueShare, Verdict, WorkerId,
};
use uuid::Uuid;

use super::scene::{Scene, claim_options, ids, queue_name};

/// A worker that the store does not know gets `LeaseLost`, not jobs.
pub async fn only_registered_workers_claim(scene: &Scene) {
    scene.put_one().await;
    let stranger = WorkerId::from_uuid(Uuid::new_v4());
    let error = scene.broker.claim(claim_options(stranger, &["default"], 1)).await.unwrap_err();
    assert!(matches!(error, Error::LeaseLost { worker } if worker == stranger), "{error}");
    scene.sound().await;
}

/// The highest lane first; within a lane first in, first out, over several enqueues.
pub async fn higher_priorities_come_first_and_equals_in_order(scene: &Scene) {
    let worker = scene.worker().await;
    let mut stored: Vec<(u8, JobId)> = Vec::new();
    for batch in [[3, 0, 9], [0, 9, 5], [9, 3, 0], [1, 1, 8]] {
        let jobs: Vec<NewJob> = batch
            .iter()
            .map(|priority| {
                let mut job = scene.job("default");
                job.priority = Priority::constant(*priority);
                job
            })
            .collect();
        stored.extend(batch.into_iter().zip(scene.put(jobs).await));
    }
    // A stable sort keeps the order of arrival within a priority.
    stored.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let expected: Vec<JobId> = stored.into_iter().map(|(_, id)| id).collect();
    let mut claimed = ids(&scene.claim(worker, 5).await);
    claimed.extend(ids(&scene.claim(worker, 100).await));
    assert_eq!(claimed, expected);
    scene.sound().await;
}

/// In strict order a queue is emptied before the next gives anything, whatever the priorities in it.
pub async fn strict_queues_are_emptied_in_order(scene: &Scene) {
    scene.declare(&["high", "low"]).await;
    let worker = scene.worker().await;
    let mut urgent = scene.job("low");
    urgent.priority = Priority::HIGHEST;
    let low = scene.put(vec![scene.job("low"), urgent]).await;
    let high = scene.fill("high", 3).await;
    let claimed = ids(&scene.claim_from(worker, &["high", "low"], 4).await);
    assert_eq!(claimed, [high[0], high[1], high[2], low[1]]);
    assert_eq!(ids(&scene.claim_from(worker, &["low", "high"], 4).await), [low[0]]);
    scene.sound().await;
}

/// Each queue gives its share before any gives more; what is left free goes to the queues in order.
pub async fn shares_are_filled_before_the_rest(scene: &Scene) {
    scene.declare(&["a", "b", "c"]).await;
    let worker = scene.worker().await;
    let (a, b) = (scene.fill("a", 10).await, scene.fill("b", 10).await);
    let mut options = claim_options(worker, &[], 8);
    let share = |name: &str, share| QueueShare { name: queue_name(name), share };
    options.queues = vec![share("c", 3), share("a", 2), share("b", 4)];
    let claimed = scene.broker.claim(options.clone()).await.unwrap();
    let from = |name: &str| -> Vec<JobId> {
        let of_queue = claimed.iter().filter(|claimed| claimed.job.queue.as_str() == name);
        of_queue.map(|claimed| claimed.job.id).collect()
    };
    // c has nothing: two for a, four for b, and the two that are left for a, which stands first.
    assert_eq!(from("a"), a[..4]);
    assert_eq!(from("b"), b[..4]);
    assert_eq!(claimed.len(), 8);

    options.limit = 3;
    options.queues = vec![share("a", 2), share("b", 4)];
    let claimed = scene.broker.claim(options).await.unwrap();
    assert_eq!(ids(&claimed), [a[4], a[5], b[4]], "the limit cuts the last share");
    scene.sound().await;
}

/// Never more than asked for, and nothing for a limit of zero.
pub async fn a_claim_respects_its_limit(scene: &Scene) {
    let worker = scene.worker().await;
    let stored = scene.fill("default", 5).await;
    assert_eq!(ids(&scene.claim(worker, 2).await), stored[..2]);
    assert!(scene.claim(worker, 0).await.is_empty());
    assert_eq!(ids(&scene.claim(worker, 100).await), stored[2..]);
    assert!(scene.claim(worker, 100).await.is_empty());
    scene.sound().await;
}

/// A claim stops at the first job that does not fit its bytes; the first job comes whatever its size.
pub async fn a_claim_respects_its_bytes(scene: &Scene) {
    let worker = scene.worker().await;
    let sizes = [5_000, 10, 10, 1_000, 1_500, 10];
    let jobs = sizes.map(|size| {
        let mut job = scene.job("default");
        job.payload = Payload::from_stored(vec![2; size]);
        job
    });
    let stored = scene.put(jobs.to_vec()).await;
    let mut options = claim_options(worker, &["default"], 100);
    options.max_bytes = 2_000;
    let mut rounds = Vec::new();
    loop {
        let claimed = scene.broker.claim(options.clone()).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        rounds.push(ids(&claimed));
    }
    assert_eq!(rounds, [&stored[..1], &stored[1..4], &stored[4..]]);
    scene.sound().await;
}

/// Where a job does not fit the bytes, the claim ends: no smaller one of a lower priority or a later queue passes it.
pub async fn nothing_passes_a_job_that_does_not_fit(scene: &Scene) {
    scene.declare(&["later"]).await;
    let worker = scene.worker().await;
    let sized = |queue: &str, priority: u8, size: usize| {
        let mut job = scene.job(queue);
        job.payload = Payload::from_stored(vec![2; size]);
        job.priority = Priority::constant(priority);
        job
    };
    let jobs = vec![
        sized("default", 5, 100),
        sized("default", 5, 900),
        sized("default", 5, 1),
        sized("default", 0, 1),
        sized("later", 9, 1),
    ];
    let stored = scene.put(jobs).await;
    let mut options = claim_options(worker, &["default", "later"], 100);
    options.max_bytes = 500;
    assert_eq!(ids(&scene.broker.claim(options.clone()).await.unwrap()), stored[..1]);
    assert_eq!(ids(&scene.broker.claim(options.clone()).await.unwrap()), stored[1..2]);
    assert_eq!(ids(&scene.broker.claim(options).await.unwrap()), stored[2..]);
    scene.sound().await;
}

/// Two claims never share a job, of one worker or of two.
pub async fn a_held_job_is_not_handed_out_again(scene: &Scene) {
    let (one, two) = (scene.worker().await, scene.worker().await);
    let stored = scene.fill("default", 6).await;
    let mut all = ids(&scene.claim(one, 2).await);
    all.extend(ids(&scene.claim(two, 2).await));
    all.extend(ids(&scene.other.claim(claim_options(one, &["default"], 100)).await.unwrap()));
    assert_eq!(all, stored);
    assert!(scene.claim(two, 100).await.is_empty());
    let figures = scene.figures("default").await;
    assert_eq!((figures.ready, figures.held), (0, 6));
    scene.sound().await;
}

/// While a job is held, `find` says by whom; afterwards nobody holds it.
pub async fn a_held_job_shows_its_holder(scene: &Scene) {
    let worker = scene.worker_with("builder:42", super::scene::HOURS, &[]).await;
    let id = scene.put_one().await;
    assert_eq!(scene.details(id).await.held_by, None);
    let claimed = scene.claim_one(worker).await;
    assert_eq!(scene.details(id).await.held_by.as_deref(), Some("builder:42"));
    scene.apply(worker, &claimed, Verdict::Release).await;
    assert_eq!(scene.details(id).await.held_by, None);
    scene.sound().await;
}

/// A paused queue accepts jobs and hands out none; what is held can be settled; other queues go on.
pub async fn a_paused_queue_gives_nothing(scene: &Scene) {
    scene.declare(&["side"]).await;
    let worker = scene.worker().await;
    let stored = scene.fill("default", 2).await;
    let held = scene.claim_one(worker).await;
    let mut pause = QueueChange::default();
    pause.paused = Some(Paused::Yes);
    scene.change("default", pause.clone()).await;
    assert_eq!(scene.figures("default").await.paused, Paused::Yes);
    let late = scene.put_one().await;
    let side = scene.fill("side", 1).await;
    assert_eq!(ids(&scene.claim_from(worker, &["default", "side"], 10).await), side);
    scene.apply(worker, &held, Verdict::Done).await;
    pause.paused = Some(Paused::No);
    scene.change("default", pause).await;
    assert_eq!(ids(&scene.claim(worker, 10).await), [stored[1], late]);
    scene.sound().await;
}

/// The order holds over many batches and many claims, settled in between.
pub async fn ten_thousand_jobs_come_in_order(scene: &Scene) {
    let worker = scene.worker().await;
    let mut stored = Vec::new();
    for size in [1, 999, 4_000, 5_000] {
        stored.extend(scene.fill("default", size).await);
    }
    let mut order = Vec::new();
    loop {
        let claimed = scene.claim(worker, 700).await;
        if claimed.is_empty() {
            break;
        }
        order.extend(ids(&claimed));
        scene.settle_all(worker, &claimed, &Verdict::Done).await;
    }
    assert!(order == stored, "{} of {} jobs came, or not in order", order.len(), stored.len());
    assert_eq!(scene.figures("default").await.done, 10_000);
    scene.sound().await;
}
