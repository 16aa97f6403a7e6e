//! Processes that end without a word.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;

use celeriac::core::{AttemptKind, DeadReason, JobId, Room};
use celeriac_tests::{
    Event, Site, buried, call, drained, eventually, figures, jobs_in, on_every_engine, sound,
};
use rustix::process::Signal;
use serde_json::json;

on_every_engine!(
    a_killed_worker_loses_nothing,
    a_poison_job_does_not_harm_its_neighbours,
    an_at_most_once_job_is_not_repeated,
    an_at_most_once_job_is_done,
    a_killed_producer_keeps_its_promises,
);

/// `kill -9` of one of two workers in the middle of its work: no job is lost, and a job ran twice only if the dead worker
/// had it.
async fn a_killed_worker_loses_nothing(site: Site) {
    const JOBS: usize = 2_000;
    let client = site.client().await;
    let broker = client.broker();
    let calls = (0..JOBS).map(|_| call("record", &json!({"millis": 5})));
    let stored: BTreeSet<JobId> =
        client.enqueue_all(calls).await.unwrap().into_iter().map(|stored| stored.id()).collect();
    let victim = site.start_worker("--concurrency 8 --prefetch 64 --lease 2s");
    let dead = victim.id();
    let survivor = site.start_worker("--concurrency 8 --prefetch 64");
    site.ledger_until("the victim at work", |ledger| {
        ledger.iter().filter(|entry| entry.process == dead && entry.event == Event::Ended).count() > 100
    })
    .await;
    victim.kill().await;

    let figures = drained(broker, "default").await;
    assert_eq!((figures.done, figures.dead), (JOBS as u64, 0));
    let mut runs: BTreeMap<JobId, Vec<(u32, u32)>> = BTreeMap::new();
    for entry in site.ledger().iter().filter(|entry| entry.event == Event::Ended) {
        runs.entry(entry.id).or_default().push((entry.process, entry.lost));
    }
    assert_eq!(runs.keys().copied().collect::<BTreeSet<_>>(), stored, "every job ran to its end");
    let doubles: Vec<_> = runs.values().filter(|runs| runs.len() > 1).collect();
    for runs in &doubles {
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert_eq!(
            (runs[0].0, runs[0].1, runs[1].1),
            (dead, 0, 1),
            "only what the dead worker had ran twice"
        );
    }
    assert!(figures.redelivered > 0, "the victim held something");
    assert!(doubles.len() as u64 <= figures.redelivered, "{} doubles", doubles.len());
    println!("{} jobs redelivered, {} ran twice", figures.redelivered, doubles.len());
    sound(broker).await;
    survivor.signal(Signal::TERM);
    survivor.ended_well().await;
}

/// A job that takes its process with it, among forty that do not: only it ends in the bin.
async fn a_poison_job_does_not_harm_its_neighbours(site: Site) {
    let client = site.client().await;
    let broker = client.broker();
    let mut calls: Vec<_> = (0..40).map(|_| call("record", &json!({"millis": 20}))).collect();
    calls.insert(13, call("abort_process", &json!({})));
    let stored: Vec<JobId> =
        client.enqueue_all(calls).await.unwrap().into_iter().map(|stored| stored.id()).collect();
    let poison = stored[13];

    // What a service manager does: start it again.
    let mut deaths = 0;
    loop {
        let mut worker = site.start_worker("--concurrency 8 --prefetch 30 --lease 2s --exit-when-empty");
        let status = worker.ended().await;
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(6), "aborted by its job, not failed: {}", worker.errors());
        deaths += 1;
        assert!(deaths < 10, "the poison job is never given up");
    }
    assert_eq!(deaths, 3, "the delivery limit");
    let details = buried(broker, poison).await;
    assert_eq!(details.reason, Some(DeadReason::DeliveryLimit));
    assert_eq!((details.job.deliveries, details.job.attempt), (3, 0));
    assert!(details.job.extras.history.iter().all(|entry| entry.kind == AttemptKind::WorkerLost));
    let figures = figures(broker, "default").await;
    assert_eq!((figures.done, figures.dead, figures.ready, figures.held), (40, 1, 0, 0));
    for entry in site.ledger().iter().filter(|entry| entry.id != poison) {
        assert!(entry.lost <= 1, "no neighbour was charged twice: {entry:?}");
    }
    sound(broker).await;
}

/// A job that may run at most once is not run again when its worker dies.
async fn an_at_most_once_job_is_not_repeated(site: Site) {
    let client = site.client().await;
    let broker = client.broker();
    let id = client.enqueue(call("once", &json!({"millis": 60_000}))).await.unwrap().id();
    let victim = site.start_worker("--lease 1s");
    site.ledger_until("the job's start", |ledger| !ledger.is_empty()).await;
    victim.kill().await;
    let other = site.start_worker("");
    let details = buried(broker, id).await;
    assert_eq!(details.reason, Some(DeadReason::Interrupted));
    // The other worker is at work, and still does not touch it.
    let witness = client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap().id();
    site.ledger_until("another job", |ledger| ledger.iter().any(|entry| entry.id == witness)).await;
    drained(broker, "default").await;
    let starts = site.ledger().iter().filter(|entry| entry.id == id).count();
    assert_eq!(starts, 1);
    sound(broker).await;
    other.signal(Signal::TERM);
    other.ended_well().await;
}

/// A delivery that may not be repeated still ends well when nothing goes wrong.
async fn an_at_most_once_job_is_done(site: Site) {
    let client = site.client().await;
    client.enqueue(call("once", &json!({"millis": 1}))).await.unwrap();
    site.start_worker("--exit-when-empty").ended_well().await;
    let figures = figures(client.broker(), "default").await;
    assert_eq!((figures.done, figures.dead), (1, 0));
    sound(client.broker()).await;
}

/// Every enqueue that was answered is there after a `kill -9`, wherever the blow fell.
async fn a_killed_producer_keeps_its_promises(site: Site) {
    let client = site.client().await;
    for (batch, at_once) in [(1, 16), (7, 3)] {
        let producer = site.start_producer(&format!("record 0 {batch} {at_once} 0"));
        eventually("some jobs", || async { (producer.output().lines().count() > 500).then_some(()) }).await;
        let promised = producer.kill().await;
        // The last line may be cut where the process died.
        let promised: Vec<JobId> = promised.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(promised.len() >= 500);
        let stored: BTreeSet<JobId> =
            jobs_in(client.broker(), Room::Jobs).await.iter().map(|details| details.job.id).collect();
        for id in promised {
            assert!(stored.contains(&id), "job {id} was promised and is lost");
        }
        sound(client.broker()).await;
    }
}
