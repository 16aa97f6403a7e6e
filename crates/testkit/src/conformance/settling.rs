//! Cases of [`Broker::settle`](celeriac_core::Broker::settle): what each verdict does, and what none may do.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{
    AttemptKind, ClaimId, Claimed, DeadReason, Extras, Failure, Receipt, Room, Settled, Settlement, Verdict,
    WorkerId,
};
use uuid::Uuid;

use super::scene::{HOURS, Scene, claim_options, ids, reject, retry, task_name};

/// A job that is done is gone, and counted.
pub async fn done_removes_the_job(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Done).await;
    assert_eq!(scene.find(id).await, None);
    let figures = scene.figures("default").await;
    assert_eq!((figures.done, figures.held, figures.ready), (1, 0, 0));
    scene.sound().await;
}

/// A failure moves the job to `scheduled`, counts an attempt and keeps what went wrong; it comes back with all of it.
pub async fn a_failure_is_scheduled_with_its_history(scene: &Scene) {
    let worker = scene.worker_with("builder:7", HOURS, &[]).await;
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, retry(HOURS, "no route")).await;

    let details = scene.details(id).await;
    assert_eq!((details.room, details.job.attempt, details.job.deliveries), (Room::Scheduled, 1, 0));
    let entry = &details.job.extras.history[0];
    assert_eq!((entry.number, entry.kind), (1, AttemptKind::Failed));
    assert_eq!((entry.worker.as_str(), entry.error.as_str()), ("builder:7", "no route"));
    assert_eq!(details.job.due_at, entry.at.saturating_add(HOURS), "due that long after the verdict");
    assert_eq!(details.last_error(), Some("no route"));
    assert!(scene.claim(worker, 10).await.is_empty());

    let second = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, retry(Duration::ZERO, "first")).await;
    scene.maintain_until("the retry", |total| total.promoted == 1).await;
    let again = scene.claim_one(worker).await;
    assert_eq!(
        (again.job.id, again.job.attempt, again.job.payload.clone()),
        (second, 1, claimed.job.payload)
    );
    scene.apply(worker, &again, retry(HOURS, "second")).await;
    let history = scene.details(second).await.job.extras.history;
    let seen: Vec<(u32, &str)> = history.iter().map(|entry| (entry.number, entry.error.as_str())).collect();
    assert_eq!(seen, [(1, "first"), (2, "second")]);
    assert_eq!(scene.figures("default").await.retried, 3);
    scene.sound().await;
}

/// Panics, time limits and errors are told apart, and long texts are kept as far as they may be.
pub async fn every_failure_keeps_its_kind_and_text(scene: &Scene) {
    let worker = scene.worker().await;
    for (kind, text) in [
        (AttemptKind::Failed, "é".repeat(5_000)),
        (AttemptKind::Panicked, "index out of bounds at src/main.rs:7".to_owned()),
        (AttemptKind::TimedOut, "after 30s".to_owned()),
    ] {
        let id = scene.put_one().await;
        let claimed = scene.claim_one(worker).await;
        let failure = Failure::new(kind, text);
        scene.apply(worker, &claimed, Verdict::Retry { after: HOURS, failure: failure.clone() }).await;
        let details = scene.details(id).await;
        assert_eq!(details.job.extras.history[0].kind, kind);
        assert_eq!(details.last_error(), Some(failure.error.as_str()));
    }
    scene.sound().await;
}

/// The verdict over the last failure moves the job to the bin, with the reason and the whole history.
pub async fn the_last_failure_goes_to_the_bin(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, retry(Duration::ZERO, "first")).await;
    scene.maintain_until("the retry", |total| total.promoted == 1).await;
    let claimed = scene.claim_one(worker).await;
    let verdict =
        Verdict::Reject { reason: DeadReason::RetriesExhausted, failure: Some(Failure::failed("second")) };
    scene.apply(worker, &claimed, verdict).await;
    let details = scene.details(id).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::RetriesExhausted)));
    assert_eq!((details.job.attempt, details.job.extras.history.len()), (2, 2));
    assert_eq!(details.last_error(), Some("second"));
    let figures = scene.figures("default").await;
    assert_eq!((figures.dead, figures.buried, figures.held), (1, 1, 0));
    scene.sound().await;
}

/// A rejected job is in the bin after one attempt; with and without a failure to keep.
pub async fn a_rejected_job_goes_to_the_bin_at_once(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 2).await;
    let claimed = scene.claim(worker, 2).await;
    scene.apply(worker, &claimed[0], reject("no such user")).await;
    let details = scene.details(claimed[0].job.id).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::Rejected)));
    assert_eq!((details.job.attempt, details.last_error()), (1, Some("no such user")));
    scene
        .apply(worker, &claimed[1], Verdict::Reject { reason: DeadReason::Interrupted, failure: None })
        .await;
    let details = scene.details(claimed[1].job.id).await;
    assert_eq!((details.reason, details.job.attempt), (Some(DeadReason::Interrupted), 0));
    assert!(details.job.extras.history.is_empty());
    assert!(scene.claim(worker, 10).await.is_empty());
    scene.sound().await;
}

/// A payload that does not fit is no attempt: the handler never ran.
pub async fn an_undecodable_job_keeps_its_bytes_in_the_bin(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    let failure = Failure::new(AttemptKind::Undecodable, "missing field `path`");
    scene
        .apply(worker, &claimed, Verdict::Reject { reason: DeadReason::Undecodable, failure: Some(failure) })
        .await;
    let details = scene.details(id).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::Undecodable)));
    assert_eq!((details.job.attempt, &details.job.payload), (0, &claimed.job.payload));
    assert_eq!(details.last_error(), Some("missing field `path`"));
    scene.sound().await;
}

/// A snoozed job comes back as if nothing had been.
pub async fn a_snooze_counts_nothing(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Snooze { after: Duration::ZERO }).await;
    scene.maintain_until("the snoozed job", |total| total.promoted == 1).await;
    let again = scene.claim_one(worker).await;
    assert_eq!((again.job.id, again.job.attempt, again.job.deliveries), (id, 0, 0));
    assert!(again.job.extras.history.is_empty());
    scene.apply(worker, &again, Verdict::Snooze { after: HOURS }).await;
    assert_eq!(scene.room(id).await, Some(Room::Scheduled));
    assert_eq!(scene.figures("default").await.retried, 0);
    scene.sound().await;
}

/// A job of an unknown task is set aside, counts nothing, and goes to the first worker that knows the task.
pub async fn a_parked_job_waits_for_a_worker_that_knows_it(scene: &Scene) {
    let worker = scene.worker().await;
    let mut job = scene.job("default");
    job.task = task_name("thumbnail");
    let id = scene.put(vec![job]).await[0];
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Park).await;
    let details = scene.details(id).await;
    assert_eq!((details.room, details.waits_for.as_deref()), (Room::Parked, Some("thumbnail")));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 0));
    let stats = scene.broker.stats().await.unwrap();
    assert_eq!(stats.parked, [(task_name("thumbnail"), 1)]);

    let mut options = claim_options(worker, &["default"], 10);
    assert!(scene.broker.claim(options.clone()).await.unwrap().is_empty());
    options.tasks = Arc::from([task_name("mail"), task_name("resize")]);
    assert!(scene.broker.claim(options.clone()).await.unwrap().is_empty());
    options.tasks = Arc::from([task_name("mail"), task_name("thumbnail")]);
    let claimed = scene.broker.claim(options.clone()).await.unwrap();
    assert_eq!(ids(&claimed), [id]);
    assert_eq!(scene.details(id).await.room, Room::Jobs);
    assert!(scene.broker.claim(options).await.unwrap().is_empty());
    scene.apply(worker, &claimed[0], Verdict::Done).await;
    assert_eq!(scene.find(id).await, None);
    assert_eq!(scene.broker.stats().await.unwrap().parked, []);
    scene.sound().await;
}

/// Parked jobs come before the others, oldest first, and count against the limit.
pub async fn parked_jobs_are_adopted_in_order_within_the_limit(scene: &Scene) {
    let worker = scene.worker().await;
    let parked = scene.fill("default", 3).await;
    for claimed in scene.claim(worker, 3).await {
        scene.apply(worker, &claimed, Verdict::Park).await;
    }
    let plain = scene.fill("default", 3).await;
    let mut options = claim_options(worker, &["default"], 2);
    options.tasks = Arc::from([task_name("work")]);
    assert_eq!(ids(&scene.broker.claim(options.clone()).await.unwrap()), parked[..2]);
    assert_eq!(ids(&scene.broker.claim(options).await.unwrap()), [parked[2], plain[0]]);
    scene.sound().await;
}

/// A job that was adopted from `parked` can be released, parked again, retried and rescued.
pub async fn an_adopted_job_is_a_job_like_any_other(scene: &Scene) {
    let mut worker = scene.worker().await;
    let id = scene.put_one().await;
    let adopt = async |worker: WorkerId| -> Claimed {
        let mut options = claim_options(worker, &["default"], 1);
        options.tasks = Arc::from([task_name("work")]);
        let mut claimed = scene.broker.claim(options).await.unwrap();
        assert_eq!(ids(&claimed), [id]);
        claimed.remove(0)
    };
    let mut claimed = scene.claim_one(worker).await;
    for verdict in [Verdict::Park, Verdict::Release, Verdict::Park, retry(Duration::ZERO, "x"), Verdict::Park]
    {
        scene.apply(worker, &claimed, verdict).await;
        scene.maintain_until("maintenance", |_| true).await;
        scene.sound().await;
        claimed = adopt(worker).await;
    }
    scene.broker.retire(worker).await.unwrap();
    worker = scene.worker().await;
    let claimed = adopt(worker).await;
    assert_eq!((claimed.job.attempt, claimed.job.deliveries), (1, 1));
    scene.apply(worker, &claimed, Verdict::Done).await;
    scene.sound().await;
}

/// What is given back comes next, in its old place, with nothing counted.
pub async fn a_release_keeps_the_place(scene: &Scene) {
    let worker = scene.worker().await;
    let stored = scene.fill("default", 5).await;
    let first = scene.claim(worker, 3).await;
    scene.apply(worker, &first[1], Verdict::Release).await;
    let details = scene.details(stored[1]).await;
    assert_eq!((details.job.attempt, details.job.deliveries, details.held_by), (0, 0, None));
    let second = scene.claim(worker, 2).await;
    assert_eq!(ids(&second), [stored[1], stored[3]]);
    assert!(!second[0].is_suspect());
    assert_ne!(second[0].receipt.claim, first[1].receipt.claim);
    assert_eq!(scene.settle(worker, &first[1], Verdict::Done).await, Settled::Stale);
    scene.apply(worker, &second[0], Verdict::Done).await;
    scene.sound().await;
}

/// Holes of every shape, in several lanes: at the start, in the middle, at the end, single and adjoining, given back
/// in any order.
pub async fn a_release_in_parts_keeps_all_places(scene: &Scene) {
    let worker = scene.worker().await;
    let mut stored = Vec::new();
    for priority in [5, 0] {
        let jobs = (0..10).map(|_| {
            let mut job = scene.job("default");
            job.priority = celeriac_core::Priority::constant(priority);
            job
        });
        stored.extend(scene.put(jobs.collect()).await);
    }
    let mut held = scene.claim(worker, 7).await;
    held.extend(scene.claim(worker, 7).await);
    assert_eq!(ids(&held), stored[..14]);
    let released = [9, 0, 13, 4, 3, 12, 5, 1];
    for place in released {
        scene.apply(worker, &held[place], Verdict::Release).await;
        scene.sound().await;
    }
    let mut expected: Vec<usize> = released.to_vec();
    expected.extend(14..20);
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|place| stored[place]).collect();
    let mut again = Vec::new();
    for limit in [1, 2, 3, 50] {
        again.extend(ids(&scene.claim(worker, limit).await));
    }
    assert_eq!(again, expected);
    scene.sound().await;
}

/// A claim need not be settled at once: the rest stays held.
pub async fn a_claim_may_be_settled_in_parts(scene: &Scene) {
    let worker = scene.worker().await;
    let stored = scene.fill("default", 6).await;
    let held = scene.claim(worker, 6).await;
    scene.settle_all(worker, &held[..2], &Verdict::Done).await;
    scene.apply(worker, &held[3], Verdict::Release).await;
    scene.apply(worker, &held[5], retry(HOURS, "later")).await;
    let figures = scene.figures("default").await;
    assert_eq!((figures.held, figures.ready, figures.scheduled, figures.done), (2, 1, 1, 2));
    assert_eq!(ids(&scene.claim(worker, 10).await), [stored[3]]);
    scene.sound().await;
    scene.apply(worker, &held[2], Verdict::Done).await;
    scene.apply(worker, &held[4], Verdict::Cancel).await;
    assert_eq!(scene.figures("default").await.cancelled, 1);
    scene.sound().await;
}

/// A repeated verdict finds nothing, in a later call and in the same one.
pub async fn a_verdict_counts_once(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 2).await;
    let held = scene.claim(worker, 2).await;
    let done = |claimed: &Claimed| Settlement { receipt: claimed.receipt, verdict: Verdict::Done };
    let late = Settlement { receipt: held[0].receipt, verdict: reject("too late") };
    let answers = scene.broker.settle(worker, vec![done(&held[0]), late, done(&held[1])]).await.unwrap();
    assert_eq!(answers, [Settled::Applied, Settled::Stale, Settled::Applied]);
    assert_eq!(scene.settle_all(worker, &held, &Verdict::Done).await, [Settled::Stale; 2]);
    let figures = scene.figures("default").await;
    assert_eq!((figures.done, figures.dead), (2, 0));
    scene.sound().await;
}

/// Only the worker that holds a job can settle it.
pub async fn verdicts_of_strangers_change_nothing(scene: &Scene) {
    let (holder, other) = (scene.worker().await, scene.worker().await);
    scene.put_one().await;
    let claimed = scene.claim_one(holder).await;
    for stranger in [other, WorkerId::from_uuid(Uuid::new_v4())] {
        assert_eq!(scene.settle(stranger, &claimed, Verdict::Done).await, Settled::Stale);
        assert_eq!(scene.settle(stranger, &claimed, Verdict::Release).await, Settled::Stale);
    }
    scene.apply(holder, &claimed, Verdict::Done).await;
    scene.sound().await;
}

/// A receipt that differs in any part from the one that was given is none.
pub async fn made_up_receipts_change_nothing(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 3).await;
    let held = scene.claim(worker, 1).await;
    let real = held[0].receipt;
    let made_up = [
        Receipt { seq: real.seq + 1, ..real },
        Receipt { seq: -1, ..real },
        Receipt { seq: i64::MAX, ..real },
        Receipt { lane: real.lane + 1, ..real },
        Receipt { queue: real.queue + 1, ..real },
        Receipt { claim: ClaimId::new(real.claim.get() + 1), ..real },
        Receipt { claim: ClaimId::new(i64::MAX), ..real },
    ];
    for verdict in [Verdict::Done, Verdict::Release, Verdict::Park, retry(Duration::ZERO, "x")] {
        let verdicts = made_up.map(|receipt| Settlement { receipt, verdict: verdict.clone() });
        let answers = scene.broker.settle(worker, verdicts.to_vec()).await.unwrap();
        assert_eq!(answers, [Settled::Stale; 7]);
    }
    scene.sound().await;
    scene.apply(worker, &held[0], Verdict::Done).await;
    scene.sound().await;
}

/// A job that fails for ever does not grow for ever.
pub async fn a_long_history_is_bounded(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put_one().await;
    let rounds = Extras::MAX_HISTORY + 5;
    for _ in 0..rounds {
        let claimed = scene.claim_one(worker).await;
        scene.apply(worker, &claimed, retry(Duration::ZERO, "again")).await;
        scene.maintain_until("the retry", |total| total.promoted == 1).await;
    }
    let job = scene.details(id).await.job;
    assert_eq!(job.attempt as usize, rounds);
    assert_eq!(job.extras.history.len(), Extras::MAX_HISTORY);
    assert_eq!(job.extras.history.last().map(|entry| entry.number as usize), Some(rounds));
    scene.sound().await;
}

/// A delay past the end of time waits for ever.
pub async fn absurd_retry_delays_do_not_overflow(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 2).await;
    let held = scene.claim(worker, 2).await;
    scene.apply(worker, &held[0], retry(Duration::MAX, "x")).await;
    scene.apply(worker, &held[1], Verdict::Snooze { after: Duration::MAX }).await;
    assert_eq!(scene.maintain().await.promoted, 0);
    assert_eq!(scene.figures("default").await.scheduled, 2);
    scene.sound().await;
}

/// One call with every kind of verdict, a stale one among them: each is answered and carried out by itself.
pub async fn a_batch_of_verdicts_is_answered_one_by_one(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 8).await;
    let held = scene.claim(worker, 8).await;
    scene.apply(worker, &held[2], Verdict::Done).await;
    let verdicts = [
        Verdict::Done,
        retry(HOURS, "x"),
        Verdict::Done,
        Verdict::Snooze { after: HOURS },
        reject("y"),
        Verdict::Park,
        Verdict::Release,
        Verdict::Cancel,
    ];
    let batch =
        held.iter().zip(verdicts).map(|(claimed, verdict)| Settlement { receipt: claimed.receipt, verdict });
    let answers = scene.broker.settle(worker, batch.collect()).await.unwrap();
    let mut expected = [Settled::Applied; 8];
    expected[2] = Settled::Stale;
    assert_eq!(answers, expected);
    let figures = scene.figures("default").await;
    assert_eq!((figures.done, figures.scheduled, figures.dead), (2, 2, 1));
    assert_eq!((figures.parked, figures.ready, figures.cancelled, figures.held), (1, 1, 1, 0));
    assert_eq!(scene.broker.settle(worker, Vec::new()).await.unwrap(), []);
    scene.sound().await;
}
