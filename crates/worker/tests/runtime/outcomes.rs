//! Every row of the table "what happens to a job" that the worker decides.

use std::time::Duration;

use celeriac_core::{
    AttemptKind, Broker, Cancelled, DeadReason, EnqueueOptions, JobId, NewJob, Payload, QueueName, Room,
    TaskName,
};
use celeriac_worker::{Prefetch, Registry};

use crate::fixture::{Fixture, Running};
use crate::probe::{Event, failure, gate, ok};

#[tokio::test]
async fn success_removes_the_job() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("ok", "a").await;
    let report = fixture.run_until_empty().await;
    assert_eq!(report.done, 1);
    assert!(fixture.find(job).await.is_none());
    fixture.check().await;
}

#[tokio::test]
async fn a_failure_waits_for_the_policys_delay_with_its_history() {
    let fixture = Fixture::new();
    let job = fixture.enqueue_answer("verdict", "a", "fail").await;
    assert_eq!(fixture.run_until_empty().await.retried, 1);
    let details = fixture.find_in(job, Room::Scheduled).await;
    assert_eq!(details.job.attempt, 1);
    assert_eq!(details.job.deliveries, 0);
    let attempt = &details.job.extras.history[0];
    assert_eq!((attempt.kind, attempt.error.as_str()), (AttemptKind::Failed, "no route to host"));
    assert_eq!(attempt.worker, "test:1");
    let delay = details.job.due_at.since(details.since);
    assert!(delay > Duration::from_secs(3_000) && delay < Duration::from_secs(4_000), "{delay:?}");
}

#[tokio::test]
async fn the_last_attempt_ends_in_the_bin() {
    let fixture = Fixture::new();
    let job = fixture.call("verdict", "a", "fail", |call| call.max_attempts(1)).await;
    assert_eq!(fixture.run_until_empty().await.buried, 1);
    let details = fixture.find_in(job, Room::Dead).await;
    assert_eq!(details.reason, Some(DeadReason::RetriesExhausted));
    assert_eq!(details.last_error(), Some("no route to host"));
}

#[tokio::test]
async fn handlers_choose_their_verdicts() {
    let fixture = Fixture::new();
    let rejected = fixture.enqueue_answer("verdict", "a", "reject").await;
    let snoozed = fixture.enqueue_answer("verdict", "b", "snooze").await;
    let later = fixture.enqueue_answer("verdict", "c", "retry after").await;
    let cancelled = fixture.enqueue_answer("verdict", "d", "cancel").await;
    let report = fixture.run_until_empty().await;
    assert_eq!((report.buried, report.snoozed, report.retried, report.cancelled), (1, 1, 1, 1));

    let details = fixture.find_in(rejected, Room::Dead).await;
    assert_eq!(details.reason, Some(DeadReason::Rejected));
    assert_eq!(failure(&details), (AttemptKind::Rejected, "no such user".to_owned()));

    let details = fixture.find_in(snoozed, Room::Scheduled).await;
    assert_eq!(details.job.attempt, 0);
    assert!(details.job.extras.history.is_empty());
    assert_eq!(details.job.due_at.since(details.since), Duration::from_secs(9));

    let details = fixture.find_in(later, Room::Scheduled).await;
    assert_eq!(details.job.attempt, 1);
    assert_eq!(details.job.due_at.since(details.since), Duration::from_secs(7));

    assert!(fixture.find(cancelled).await.is_none());
    fixture.check().await;
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_message_and_place() {
    let fixture = Fixture::new();
    let asynchronous = fixture.enqueue_answer("verdict", "a", "panic").await;
    let synchronous = fixture.enqueue("sync_panic", "b").await;
    let early = fixture.enqueue("early_panic", "c").await;
    let healthy = fixture.enqueue("ok", "d").await;
    let report = fixture.run_until_empty().await;
    assert_eq!((report.retried, report.done), (3, 1));
    for (job, text) in
        [(asynchronous, "a bad day for a"), (synchronous, "a bad day for b"), (early, "too early for c")]
    {
        let (kind, error) = failure(&fixture.find_in(job, Room::Scheduled).await);
        assert_eq!(kind, AttemptKind::Panicked);
        assert!(error.starts_with(text) && error.contains("probe.rs:"), "{error}");
    }
    assert!(fixture.find(healthy).await.is_none());
}

#[tokio::test]
async fn the_time_limit_ends_a_handler_as_a_failure() {
    let fixture = Fixture::new();
    let dropped = fixture.enqueue("limited", "a").await;
    let told = fixture.enqueue_answer("limited", "b", "told").await;
    let own = fixture.call("deaf", "c", "", |call| call.timeout(Duration::from_millis(30))).await;
    let report = fixture.run_until_empty().await;
    assert_eq!(report.retried, 3);
    for (job, limit) in [(dropped, "20ms"), (told, "20ms"), (own, "30ms")] {
        let (kind, error) = failure(&fixture.find_in(job, Room::Scheduled).await);
        assert_eq!((kind, error), (AttemptKind::TimedOut, format!("the time limit of {limit} passed")));
    }
    let mut gone = fixture.probe.keys(Event::Dropped);
    gone.sort();
    assert_eq!(gone, ["a", "c"]);
    assert_eq!(fixture.probe.keys(Event::Ended), ["b"]);
}

#[tokio::test]
async fn what_cannot_be_decoded_goes_to_the_bin_with_its_bytes() {
    let fixture = Fixture::new();
    let bytes = vec![1, 0xc1, 0xff];
    let id = JobId::from_key("corrupt", "1");
    let task = TaskName::new("ok").unwrap();
    let job = NewJob::new(id, QueueName::default(), task, Payload::from_stored(bytes.clone()));
    fixture.store.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
    assert_eq!(fixture.run_until_empty().await.buried, 1);
    let details = fixture.find_in(id, Room::Dead).await;
    assert_eq!(details.reason, Some(DeadReason::Undecodable));
    assert_eq!(failure(&details).0, AttemptKind::Undecodable);
    assert_eq!(details.job.payload.as_bytes(), bytes);
    assert!(fixture.probe.keys(Event::Started).is_empty());
}

#[tokio::test]
async fn an_unknown_task_is_set_aside_until_a_worker_knows_it() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("gate", "a").await;
    fixture.probe.open_all();
    let ignorant = Running::start(fixture.builder_with(Registry::new().with(ok()).unwrap()));
    fixture.broker.wait_for("the job is parked", |seen| !seen.verdicts.is_empty()).await;
    assert_eq!(ignorant.drain().await.parked, 1);
    let details = fixture.find_in(job, Room::Parked).await;
    assert_eq!(details.waits_for.as_deref(), Some("gate"));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 0));

    let knowing = Running::start(fixture.builder_with(Registry::new().with(gate()).unwrap()));
    fixture.probe.wait_count(Event::Ended, 1).await;
    assert_eq!(knowing.drain().await.done, 1);
    assert!(fixture.find(job).await.is_none());
}

#[tokio::test]
async fn a_cancelled_handler_is_told_then_dropped() {
    let fixture = Fixture::new();
    let failing = fixture.enqueue_answer("polite", "a", "fail").await;
    let finishing = fixture.enqueue_answer("polite", "b", "ok").await;
    let deaf = fixture.enqueue("deaf", "c").await;
    let worker = fixture.start(|builder| builder);
    fixture.probe.wait_count(Event::Started, 3).await;
    for job in [failing, finishing, deaf] {
        assert_eq!(fixture.store.cancel(job).await.unwrap(), Cancelled::Requested);
    }
    fixture.broker.wait_for("three verdicts", |seen| seen.verdicts.len() == 3).await;
    assert_eq!(fixture.probe.keys(Event::Dropped), ["c"]);
    let report = worker.drain().await;
    assert_eq!((report.cancelled, report.done, report.retried), (2, 1, 0));
    for job in [failing, finishing, deaf] {
        assert!(fixture.find(job).await.is_none());
    }
}

#[tokio::test]
async fn a_job_that_is_cancelled_in_the_buffer_never_runs() {
    let fixture = Fixture::new();
    fixture.enqueue("gate", "first").await;
    let second = fixture.enqueue("ok", "second").await;
    let worker = fixture.start(|builder| builder.concurrency(1).prefetch(Prefetch::Fixed(2)));
    fixture.broker.wait_for("both are claimed", |seen| seen.claimed == 2).await;
    fixture.probe.wait_count(Event::Started, 1).await;
    // Removed if it was given back meanwhile, because the first one runs for so long.
    let cancelled = fixture.store.cancel(second).await.unwrap();
    assert!(matches!(cancelled, Cancelled::Requested | Cancelled::Removed(Room::Jobs)), "{cancelled:?}");
    fixture.broker.wait_for("a verdict", |seen| !seen.verdicts.is_empty()).await;
    assert!(fixture.find(second).await.is_none());
    fixture.probe.open_all();
    worker.drain().await;
    assert_eq!(fixture.probe.keys(Event::Started), ["first"]);
}

#[tokio::test]
async fn at_most_once_is_acknowledged_before_it_runs() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("once", "a").await;
    let failing = fixture.enqueue_answer("once", "b", "fail").await;
    let worker = fixture.start(|builder| builder);
    fixture.probe.wait_count(Event::Started, 2).await;
    assert_eq!(fixture.broker.seen().acknowledged, 2);
    fixture.probe.open_all();
    fixture.broker.wait_for("both verdicts", |seen| seen.verdicts.len() == 2).await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.buried), (1, 1));
    assert!(fixture.find(job).await.is_none());
    let details = fixture.find_in(failing, Room::Dead).await;
    assert_eq!(details.reason, Some(DeadReason::RetriesExhausted));
}

#[tokio::test]
async fn an_acknowledgement_that_comes_too_late_runs_nothing() {
    use crate::watched_broker::{Act, Request, unavailable};
    let fixture = Fixture::new();
    let job = fixture.enqueue("once", "a").await;
    fixture.broker.fault(|request| match request {
        Request::Acknowledge => Act::Refuse(unavailable()),
        _ => Act::Pass,
    });
    let worker = fixture.start(|builder| builder);
    fixture.broker.wait_for("two tries", |seen| seen.failed >= 2).await;
    // The job is taken back before the store answers again.
    let id = fixture.broker.seen().registered[0];
    fixture.store.retire(id).await.unwrap();
    fixture.probe.open_all();
    fixture.broker.no_faults();
    fixture.probe.wait_count(Event::Ended, 1).await;
    fixture.broker.wait_for("the verdict", |seen| !seen.verdicts.is_empty()).await;
    worker.drain().await;
    assert_eq!(fixture.probe.count(Event::Started), 1, "it ran once, in the second delivery");
    assert!(fixture.find(job).await.is_none());
}
