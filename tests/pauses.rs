//! Processes that fall silent and come back, and handlers that hold everything up.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::time::Duration;

use celeriac::Client;
use celeriac::core::{Cancelled, JobId, QueueChange, QueueName};
use celeriac_tests::{
    Entry, Event, Process, Site, call, drained, eventually, figures, on_every_engine, sound,
};
use rustix::process::Signal;
use serde_json::json;

on_every_engine!(
    a_worker_that_comes_back_changes_nothing,
    late_verdicts_of_many_jobs_change_nothing,
    a_blocked_runtime_keeps_its_lease,
    a_running_job_is_cancelled_from_elsewhere,
    a_delayed_job_runs_when_it_is_due,
);

fn events(ledger: &[Entry], id: JobId, process: u32) -> Vec<Event> {
    let of_run = ledger.iter().filter(|entry| entry.id == id && entry.process == process);
    of_run.map(|entry| entry.event).collect()
}

/// A worker that is stopped for longer than its lease: another takes its job; when the first comes back its handler is
/// told, what it says about the job counts for nothing, and it works on.
async fn a_worker_that_comes_back_changes_nothing(site: Site) {
    let client = site.client().await;
    let broker = client.broker();
    let id = client.enqueue(call("record", &json!({"millis": 10_000}))).await.unwrap().id();
    let paused = site.start_worker("--lease 2s");
    let first = paused.id();
    site.ledger_until("the first start", |ledger| events(ledger, id, first) == [Event::Started]).await;
    stop_outside_of_transactions(&paused, &client).await;

    let other = site.start_worker("");
    let second = other.id();
    site.ledger_until("the second start", |ledger| events(ledger, id, second) == [Event::Started]).await;
    let details = client.job(id).await.unwrap().unwrap();
    assert_eq!((details.job.deliveries, details.job.attempt), (1, 0));
    paused.signal(Signal::CONT);
    let ledger = site
        .ledger_until("the first worker to be told", |ledger| {
            events(ledger, id, first) == [Event::Started, Event::Cancelled]
        })
        .await;
    assert_eq!(events(&ledger, id, second), [Event::Started], "the second run goes on");
    let held = client.job(id).await.unwrap().unwrap();
    assert_eq!(held.job.deliveries, 1, "the stale worker has changed nothing");
    assert!(held.held_by.is_some_and(|label| label.ends_with(&second.to_string())));

    let figures = drained(broker, "default").await;
    assert_eq!((figures.done, figures.redelivered, figures.dead), (1, 1, 0));
    assert_eq!(events(&site.ledger(), id, second), [Event::Started, Event::Ended]);
    assert_eq!(events(&site.ledger(), id, first), [Event::Started, Event::Cancelled]);
    assert!(paused.errors().contains("lease is lost"), "it says so:\n{}", paused.errors());

    // It registered anew, and works.
    other.signal(Signal::TERM);
    other.ended_well().await;
    let next = client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap().id();
    site.ledger_until("the first worker at work", |ledger| events(ledger, next, first).len() == 2).await;
    drained(broker, "default").await;
    sound(broker).await;
    paused.signal(Signal::TERM);
    paused.ended_well().await;
}

/// Stops a worker at a moment when it does not hold the store's lock. A process that is stopped within a transaction keeps
/// all others from writing, as with any SQLite file, and no lease can help then.
async fn stop_outside_of_transactions(worker: &Process, client: &Client) {
    for _ in 0..100 {
        worker.signal(Signal::STOP);
        let write = client.broker().declare(QueueName::default_queue(), QueueChange::default());
        if tokio::time::timeout(Duration::from_secs(2), write).await.is_ok_and(|written| written.is_ok()) {
            return;
        }
        worker.signal(Signal::CONT);
    }
    panic!("the worker is within a transaction whenever one looks");
}

/// The same with many short jobs: the stopped worker has finished some and not yet said so.
async fn late_verdicts_of_many_jobs_change_nothing(site: Site) {
    const JOBS: usize = 200;
    let client = site.client().await;
    let paused = site.start_worker("--concurrency 4 --prefetch 100 --lease 1s");
    for round in 1..=2 {
        client.enqueue_all((0..JOBS).map(|_| call("record", &json!({"millis": 10})))).await.unwrap();
        let before = site.ledger().len();
        site.ledger_until("some work", |ledger| ledger.len() > before + 40).await;
        stop_outside_of_transactions(&paused, &client).await;
        let other = site.start_worker("--concurrency 16");
        let figures = drained(client.broker(), "default").await;
        assert_eq!((figures.done, figures.dead), ((round * JOBS) as u64, 0));
        assert!(figures.redelivered > 0);
        other.signal(Signal::TERM);
        other.ended_well().await;
        paused.signal(Signal::CONT);
        let lost = |text: &str| text.matches("lease is lost").count();
        eventually("the worker to notice", || async { (lost(&paused.errors()) >= round).then_some(()) })
            .await;
    }
    // It registered anew, and what it said late has done nothing.
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    let figures = drained(client.broker(), "default").await;
    assert_eq!(
        (figures.done, figures.dead),
        (2 * JOBS as u64 + 1, 0),
        "each job is done once, as the store counts"
    );
    paused.signal(Signal::TERM);
    paused.ended_well().await;
    sound(client.broker()).await;
}

/// Handlers that block every thread of the runtime for several leases do not cost the lease.
async fn a_blocked_runtime_keeps_its_lease(site: Site) {
    let client = site.client().await;
    let calls = (0..4).map(|_| call("block_runtime", &json!({"millis": 5_000})));
    client.enqueue_all(calls).await.unwrap();
    let mut command = site.worker_command("--concurrency 4 --lease 2s --exit-when-empty");
    // Fewer threads than handlers, so that none is left, whatever the machine.
    command.env("TOKIO_WORKER_THREADS", "2");
    let blocked = site.start(command);
    site.ledger_until("the start", |ledger| !ledger.is_empty()).await;
    // It serves another queue, but watches over all leases.
    let watch = site.start_worker("--queues other");
    let figures = drained(client.broker(), "default").await;
    assert_eq!((figures.done, figures.redelivered), (4, 0));
    assert!(site.ledger().iter().all(|entry| entry.lost == 0 && entry.process == blocked.id()));
    blocked.ended_well().await;
    watch.signal(Signal::TERM);
    watch.ended_well().await;
    sound(client.broker()).await;
}

/// A job is cancelled from another process while it runs.
async fn a_running_job_is_cancelled_from_elsewhere(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("record", &json!({"millis": 600_000}))).await.unwrap().id();
    let worker = site.start_worker("");
    site.ledger_until("the start", |ledger| !ledger.is_empty()).await;
    assert_eq!(client.cancel(id).await.unwrap(), Cancelled::Requested);
    site.ledger_until("the handler to be told", |ledger| {
        events(ledger, id, worker.id()) == [Event::Started, Event::Cancelled]
    })
    .await;
    eventually("the job's end", || async { client.job(id).await.unwrap().is_none().then_some(()) }).await;
    let figures = figures(client.broker(), "default").await;
    assert_eq!((figures.cancelled, figures.done, figures.held), (1, 0, 0));
    assert_eq!(client.cancel(id).await.unwrap(), Cancelled::NotFound);
    // The worker is as good as before.
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    drained(client.broker(), "default").await;
    sound(client.broker()).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
}

/// A job that waits for its time runs at its time, though the worker sleeps until then.
async fn a_delayed_job_runs_when_it_is_due(site: Site) {
    let client = site.client().await;
    let worker = site.start_worker("");
    let call = call("record", &json!({"millis": 0})).delay(Duration::from_millis(1_500));
    let id = client.enqueue(call).await.unwrap().id();
    let stored = client.job(id).await.unwrap().unwrap().job;
    assert_eq!(stored.due_at, stored.enqueued_at.saturating_add(Duration::from_millis(1_500)));
    site.ledger_until("the run", |ledger| events(ledger, id, worker.id()).len() == 2).await;
    drained(client.broker(), "default").await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    sound(client.broker()).await;
}
