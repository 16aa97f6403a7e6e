//! Bad days of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeriac_core::{Broker, Verdict};
use celeriac_testkit::Outage;

use crate::fixture::Fixture;
use crate::probe::Event;
use crate::watched_broker::{Act, Request, refused, unavailable};

#[tokio::test]
async fn verdicts_survive_a_store_that_fails_for_a_while() {
    let fixture = Fixture::new();
    let mut jobs = Vec::new();
    for n in 0..200 {
        jobs.push(fixture.enqueue("ok", &n.to_string()).await);
    }
    fixture.broker.fault(|request| match request {
        Request::Settle(_) => Act::Refuse(unavailable()),
        _ => Act::Pass,
    });
    let worker = fixture.start(|builder| builder);
    fixture.broker.wait_for("some failures", |seen| seen.failed >= 8).await;
    assert!(fixture.broker.seen().verdicts.is_empty());
    fixture.broker.no_faults();
    fixture.broker.wait_for("all verdicts", |seen| seen.verdicts.len() == 200).await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.stale, report.unsettled), (200, 0, 0));
    assert_eq!(fixture.probe.count(Event::Ended), 200, "each ran once");
    for job in jobs {
        assert!(fixture.find(job).await.is_none());
    }
}

#[tokio::test]
async fn verdicts_whose_answer_was_lost_are_sent_again_and_change_nothing() {
    let fixture = Fixture::new();
    for n in 0..3 {
        fixture.enqueue("ok", &n.to_string()).await;
    }
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    fixture.broker.fault(move |request| match request {
        Request::Settle(verdicts) if count.load(Ordering::SeqCst) == 0 => {
            count.store(verdicts.len(), Ordering::SeqCst);
            Act::Forget(unavailable())
        }
        _ => Act::Pass,
    });
    let report = fixture.run_until_empty().await;
    let lost = u64::try_from(lost.load(Ordering::SeqCst)).unwrap();
    assert!(lost > 0);
    assert_eq!((report.done, report.stale), (3 - lost, lost));
    assert_eq!(fixture.probe.count(Event::Ended), 3);
    fixture.check().await;
}

#[tokio::test]
async fn one_refused_verdict_does_not_hold_up_the_others() {
    let fixture = Fixture::new();
    // All in one batch: none is settled before all have ended.
    for n in 0..4 {
        fixture.enqueue("gate", &n.to_string()).await;
    }
    let culprit = fixture.enqueue_answer("verdict", "culprit", "reject").await;
    fixture.broker.fault(|request| match request {
        Request::Settle(verdicts)
            if verdicts.iter().any(|settlement| matches!(settlement.verdict, Verdict::Reject { .. })) =>
        {
            Act::Refuse(refused())
        }
        _ => Act::Pass,
    });
    let worker = fixture.start(|builder| builder.concurrency(5));
    fixture.probe.wait_count(Event::Started, 5).await;
    fixture.probe.open_all();
    fixture.broker.wait_for("the others", |seen| seen.count(|v| *v == Verdict::Done) == 4).await;
    // After some tries it is given back, and comes again.
    fixture.broker.wait_for("the release", |seen| seen.count(|v| *v == Verdict::Release) == 1).await;
    fixture.broker.no_faults();
    fixture
        .broker
        .wait_for("the verdict", |seen| seen.count(|v| matches!(v, Verdict::Reject { .. })) == 1)
        .await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.released, report.buried), (4, 1, 1));
    assert_eq!(fixture.find(culprit).await.unwrap().job.deliveries, 0);
    fixture.check().await;
}

#[tokio::test]
async fn a_worker_outlives_an_outage_by_itself() {
    let fixture = Fixture::new();
    fixture.store.outage(Outage::Begins);
    // Before the start,
    let worker = fixture.start(|builder| builder);
    tokio::task::yield_now().await;
    fixture.store.outage(Outage::Ends);
    fixture.enqueue("ok", "a").await;
    fixture.probe.wait_count(Event::Ended, 1).await;
    // while it waits,
    fixture.store.outage(Outage::Begins);
    tokio::task::yield_now().await;
    fixture.store.outage(Outage::Ends);
    fixture.enqueue("gate", "b").await;
    fixture.probe.wait_count(Event::Started, 2).await;
    // and while a job runs, which ends during the outage.
    fixture.store.outage(Outage::Begins);
    fixture.probe.open("b");
    fixture.probe.wait_count(Event::Ended, 2).await;
    fixture.store.outage(Outage::Ends);
    fixture.broker.wait_for("both verdicts", |seen| seen.verdicts.len() == 2).await;
    let report = worker.drain().await;
    assert_eq!((report.done, report.leases_lost, report.stale), (2, 0, 0));
    assert!(fixture.store.stats().await.unwrap().workers.is_empty());
}
