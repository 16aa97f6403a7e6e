//! Keeping a lease, and losing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use celeriac_core::{Broker, MaintainOptions, Room};
use celeriac_testkit::{ManualClock, Outage};

use crate::fixture::{Fixture, SHORT_LEASE};
use crate::probe::{Event, LIMIT};
use crate::watched_broker::{Act, Request, unavailable};

#[tokio::test(flavor = "current_thread")]
async fn a_handler_that_blocks_the_runtime_keeps_its_lease() {
    let fixture = Fixture::new();
    fixture.enqueue("thread_gate", "a").await;
    let (probe, broker) = (fixture.probe.clone(), Arc::clone(&fixture.broker));
    // The worker's runtime has one thread, and that will be blocked: somebody else must look.
    let observer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            probe.wait_count(Event::Started, 1).await;
            let before = broker.seen().renewals;
            // Nine thirds of the lease: without the thread it would have lapsed.
            broker.wait_for("renewals", |seen| seen.renewals >= before + 9).await;
            let round = broker.maintain(MaintainOptions::default()).await.unwrap();
            probe.open("a");
            round.dead_workers
        })
    });
    let worker = fixture.start(|builder| builder.lease(SHORT_LEASE));
    fixture.probe.wait_count(Event::Ended, 1).await;
    fixture.broker.wait_for("the verdict", |seen| !seen.verdicts.is_empty()).await;
    let report = worker.drain().await;
    assert_eq!(observer.join().unwrap(), 0);
    assert_eq!((report.done, report.leases_lost, report.stale), (1, 0, 0));
    assert_eq!(fixture.broker.seen().registered.len(), 1);
}

#[tokio::test]
async fn a_lost_lease_stops_the_handlers_and_the_worker_goes_on_under_a_new_id() {
    let clock = ManualClock::new();
    let fixture = Fixture::with_clock(&clock);
    let polite = fixture.enqueue_answer("polite", "polite", "ok").await;
    let deaf = fixture.enqueue("deaf", "deaf").await;
    let worker = fixture.start(|builder| builder.lease(Duration::from_secs(3)).concurrency(2));
    fixture.probe.wait_count(Event::Started, 2).await;
    // For the store the worker was silent for long; it is rescued by whoever comes first.
    clock.advance(Duration::from_secs(4));
    fixture.store.maintain(MaintainOptions::default()).await.unwrap();
    fixture.broker.wait_for("a second registration", |seen| seen.registered.len() >= 2).await;
    assert!(fixture.probe.keys(Event::Ended).contains(&"polite".to_owned()));
    assert!(fixture.probe.keys(Event::Dropped).contains(&"deaf".to_owned()));
    let ids = fixture.broker.seen().registered;
    assert_ne!(ids[0], ids[1]);
    // What the first run of `polite` returned changed nothing: both jobs are still there and are delivered again.
    for job in [polite, deaf] {
        assert_eq!(fixture.find_in(job, Room::Jobs).await.job.deliveries, 1);
    }
    fixture.probe.wait_count(Event::Started, 3).await;
    worker.shutdown.now();
    let report = worker.report().await;
    assert_eq!(report.leases_lost, 1);
    fixture.check().await;
}

#[tokio::test]
async fn verdicts_of_a_worker_that_was_declared_dead_change_nothing() {
    let clock = ManualClock::new();
    let fixture = Fixture::with_clock(&clock);
    let job = fixture.enqueue("gate", "a").await;
    // Deaf to the news: no renewal is answered.
    fixture.broker.fault(|request| match request {
        Request::Renew => Act::Refuse(unavailable()),
        _ => Act::Pass,
    });
    let worker = fixture.start(|builder| builder.lease(LIMIT).concurrency(1));
    fixture.probe.wait_count(Event::Started, 1).await;
    clock.advance(LIMIT * 2);
    fixture.store.maintain(MaintainOptions::default()).await.unwrap();
    assert_eq!(fixture.find_in(job, Room::Jobs).await.job.deliveries, 1);
    fixture.probe.open("a");
    fixture.broker.wait_for("the stale verdict", |seen| !seen.verdicts.is_empty()).await;
    // Its next claim tells it.
    fixture.broker.wait_for("a second registration", |seen| seen.registered.len() >= 2).await;
    fixture.probe.wait_count(Event::Ended, 2).await;
    fixture.broker.wait_for("the second verdict", |seen| seen.verdicts.len() >= 2).await;
    let report = worker.drain().await;
    assert_eq!((report.stale, report.done, report.leases_lost), (1, 1, 1));
    assert!(fixture.find(job).await.is_none());
}

#[tokio::test]
async fn a_store_that_is_away_for_longer_than_the_lease_costs_the_lease_and_no_job() {
    let fixture = Fixture::new();
    let job = fixture.enqueue_answer("polite", "a", "ok").await;
    let worker = fixture.start(|builder| builder.lease(SHORT_LEASE));
    fixture.probe.wait_count(Event::Started, 1).await;
    fixture.store.outage(Outage::Begins);
    // By its own clock: nobody can tell it.
    fixture.probe.wait_count(Event::Told, 1).await;
    fixture.store.outage(Outage::Ends);
    fixture.broker.wait_for("a second registration", |seen| seen.registered.len() >= 2).await;
    fixture.probe.wait_count(Event::Started, 2).await;
    assert_eq!(fixture.find_in(job, Room::Jobs).await.job.deliveries, 1);
    worker.shutdown.now();
    let report = worker.report().await;
    assert_eq!(report.leases_lost, 1);
}

#[tokio::test]
async fn single_failed_renewals_cost_nothing() {
    let fixture = Fixture::new();
    fixture.enqueue("gate", "a").await;
    let fail = AtomicBool::new(false);
    fixture.broker.fault(move |request| match request {
        Request::Renew if !fail.fetch_not(Ordering::SeqCst) => Act::Refuse(unavailable()),
        _ => Act::Pass,
    });
    let worker = fixture.start(|builder| builder.lease(Duration::from_secs(3)));
    fixture.probe.wait_count(Event::Started, 1).await;
    fixture.broker.wait_for("five renewals", |seen| seen.renewals >= 5).await;
    fixture.probe.open("a");
    fixture.broker.wait_for("the verdict", |seen| !seen.verdicts.is_empty()).await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.leases_lost), (1, 0));
}
