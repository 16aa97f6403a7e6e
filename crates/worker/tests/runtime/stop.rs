//! Orderly and immediate stops.

use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, DeadReason, Room, Verdict};
use celeriac_testkit::Outage;
use celeriac_worker::{Prefetch, Registry, RegistryError, Worker, WorkerError};

use crate::fixture::{Fixture, Running};
use crate::probe::{Event, registry};

#[tokio::test]
async fn a_drain_finishes_what_runs_and_releases_what_has_not_started() {
    let fixture = Fixture::new();
    let first = fixture.enqueue("gate", "first").await;
    let mut waiting = Vec::new();
    for n in 0..5 {
        waiting.push(fixture.enqueue("gate", &n.to_string()).await);
    }
    let worker = fixture.start(|builder| builder.concurrency(1).prefetch(Prefetch::Fixed(6)));
    fixture.probe.wait_count(Event::Started, 1).await;
    fixture.broker.wait_for("all are claimed", |seen| seen.claimed == 6).await;
    worker.shutdown.drain();
    // At once: long before the running one is through.
    fixture.broker.wait_for("five releases", |seen| seen.count(|v| *v == Verdict::Release) == 5).await;
    for job in waiting {
        let details = fixture.find_in(job, Room::Jobs).await;
        assert_eq!((details.held_by, details.job.deliveries, details.job.attempt), (None, 0, 0));
    }
    fixture.probe.open("first");
    let report = worker.report().await;
    assert_eq!((report.done, report.released, report.unsettled), (1, 5, 0));
    assert!(fixture.find(first).await.is_none());
    assert!(fixture.store.stats().await.unwrap().workers.is_empty(), "it has retired");
    assert_eq!(fixture.broker.seen().retired, fixture.broker.seen().registered);
    fixture.check().await;
}

#[tokio::test]
async fn after_the_grace_handlers_are_told_then_dropped_and_released() {
    let fixture = Fixture::new();
    let deaf = fixture.enqueue("deaf", "deaf").await;
    let failing = fixture.enqueue_answer("polite", "failing", "fail").await;
    let finishing = fixture.enqueue_answer("polite", "finishing", "ok").await;
    let once = fixture.enqueue("once", "once").await;
    let worker = fixture.start(|builder| builder.grace(Duration::from_millis(50)));
    fixture.probe.wait_count(Event::Started, 4).await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.released, report.buried, report.retried), (1, 2, 1, 0));
    for job in [deaf, failing] {
        let details = fixture.find_in(job, Room::Jobs).await;
        assert_eq!((details.held_by, details.job.deliveries, details.job.attempt), (None, 0, 0));
    }
    assert!(fixture.find(finishing).await.is_none());
    // It had begun, so it must not be given to anybody else.
    assert_eq!(fixture.find_in(once, Room::Dead).await.reason, Some(DeadReason::Interrupted));
    assert_eq!(fixture.probe.keys(Event::Told).len(), 2);
    fixture.check().await;
}

#[tokio::test]
async fn the_second_signal_does_not_wait_for_the_grace() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("deaf", "a").await;
    let worker = fixture.start(|builder| builder.grace(Duration::from_secs(86_400)));
    fixture.probe.wait_count(Event::Started, 1).await;
    worker.shutdown.drain();
    worker.shutdown.now();
    let report = worker.report().await;
    assert_eq!((report.released, report.done), (1, 0));
    assert_eq!(fixture.probe.count(Event::Dropped), 1);
    let details = fixture.find_in(job, Room::Jobs).await;
    assert_eq!((details.held_by, details.job.deliveries), (None, 0));
}

#[tokio::test]
async fn a_synchronous_handler_is_left_behind_and_counted() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("sync_gate", "a").await;
    let worker = fixture.start(|builder| builder.grace(Duration::from_millis(50)));
    fixture.probe.wait_count(Event::Started, 1).await;
    let report = worker.drain().await;
    assert_eq!((report.abandoned, report.released), (1, 1));
    assert_eq!(fixture.probe.count(Event::Ended), 0, "it is still running");
    assert_eq!(fixture.find_in(job, Room::Jobs).await.job.deliveries, 0);
    fixture.probe.open_all();
    fixture.probe.wait_count(Event::Ended, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_does_not_hold_the_end_up() {
    let fixture = Fixture::new();
    let job = fixture.enqueue("thread_gate", "a").await;
    let worker = fixture.start(|builder| builder.grace(Duration::from_millis(50)));
    fixture.probe.wait_count(Event::Started, 1).await;
    let report = worker.drain().await;
    assert_eq!((report.abandoned, report.unsettled), (1, 1));
    // It may still take effect, so the store treats it as lost and not as untouched.
    assert_eq!(fixture.find_in(job, Room::Jobs).await.job.deliveries, 1);
    fixture.probe.open_all();
}

#[tokio::test]
async fn under_load_nothing_is_counted_and_nothing_lost() {
    let fixture = Fixture::new();
    let mut jobs = Vec::new();
    for n in 0..800 {
        jobs.push(fixture.enqueue("ok", &n.to_string()).await);
    }
    let worker = fixture.start(|builder| builder);
    fixture.probe.wait_count(Event::Ended, 50).await;
    let report = worker.drain().await;
    assert_eq!(report.unsettled, 0);
    let mut left = 0;
    for job in jobs {
        if let Some(details) = fixture.find(job).await {
            assert_eq!((details.room, details.job.deliveries, details.held_by), (Room::Jobs, 0, None));
            left += 1;
        }
    }
    assert_eq!(report.done + left, 800);
    assert_eq!(fixture.probe.count(Event::Ended) as u64, report.done);
    fixture.check().await;
}

#[tokio::test]
async fn a_worker_that_waits_for_its_store_can_be_stopped() {
    let fixture = Fixture::new();
    fixture.store.outage(Outage::Begins);
    let worker = fixture.start(|builder| builder);
    tokio::task::yield_now().await;
    let report = worker.drain().await;
    assert_eq!(report, celeriac_worker::Report::default());
}

#[tokio::test]
async fn wrong_settings_are_refused_with_the_bounds() {
    let fixture = Fixture::new();
    let refused = |builder: celeriac_worker::WorkerBuilder| match builder.build() {
        Err(WorkerError::Setting(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(fixture.builder().concurrency(0)), "concurrency \"0\": allowed are 1 to 10000");
    assert!(refused(fixture.builder().prefetch(Prefetch::Fixed(0))).contains("1 to 100000"));
    assert_eq!(
        refused(fixture.builder().lease(Duration::from_millis(1))),
        "lease \"1ms\": allowed are 100ms to 1h"
    );
    let broker: Arc<dyn Broker> = fixture.broker;
    let empty = Worker::builder(Arc::clone(&broker), Registry::new()).build();
    assert!(matches!(empty, Err(WorkerError::Registry(RegistryError::Empty))));
    let stateless = Worker::builder(broker, registry()).build();
    assert!(matches!(stateless, Err(WorkerError::Registry(RegistryError::MissingState { .. }))));
}

#[tokio::test]
async fn a_store_that_refuses_for_good_is_an_error_at_the_start() {
    use crate::watched_broker::{Act, Request, refused};
    let fixture = Fixture::new();
    fixture.broker.fault(|request| match request {
        Request::Register => Act::Refuse(refused()),
        _ => Act::Pass,
    });
    let worker = fixture.builder().build().unwrap();
    let error = worker.run(celeriac_worker::Shutdown::new()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Store(_)), "{error:?}");
}

#[tokio::test]
async fn a_stop_before_the_start_ends_at_once() {
    let fixture = Fixture::new();
    fixture.enqueue("ok", "a").await;
    let running = Running::start(fixture.builder());
    running.shutdown.now();
    let report = running.report().await;
    assert_eq!(report.unsettled, 0);
    fixture.check().await;
}
