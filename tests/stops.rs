//! Orderly stops.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::collections::BTreeMap;

use celeriac::core::{JobId, Room};
use celeriac_tests::{Event, Site, call, eventually, figures, jobs_in, on_every_engine, sound};
use rustix::process::Signal;
use serde_json::json;

on_every_engine!(
    an_orderly_stop_under_load_counts_nothing,
    the_grace_ends,
    a_second_signal_stops_now,
    an_idle_worker_stops,
);

/// SIGTERM under load: what runs is finished, what was only fetched goes back, and nothing counts as delivered. Then
/// another worker does the rest, and every job has run once.
async fn an_orderly_stop_under_load_counts_nothing(site: Site) {
    const JOBS: usize = 600;
    let client = site.client().await;
    let broker = client.broker();
    let calls = (0..JOBS).map(|_| call("record", &json!({"millis": 20})));
    client.enqueue_all(calls).await.unwrap();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let worker = site.start_worker("--concurrency 4 --prefetch 200");
        site.ledger_until("work", |ledger| {
            ledger.iter().filter(|entry| entry.process == worker.id()).count() > 40
        })
        .await;
        let number = worker.id();
        worker.signal(signal);
        worker.ended_well().await;
        let figures = figures(broker, "default").await;
        assert_eq!((figures.held, figures.redelivered, figures.retried, figures.dead), (0, 0, 0, 0));
        assert_eq!(figures.done + figures.ready, JOBS as u64);
        assert!(figures.ready > 0, "it stopped in the middle, in round {round}");
        let waiting = jobs_in(broker, Room::Jobs).await;
        assert!(waiting.iter().all(|details| details.job.deliveries == 0 && details.job.attempt == 0));
        let ledger = site.ledger();
        let count =
            |event| ledger.iter().filter(|entry| entry.process == number && entry.event == event).count();
        assert_eq!(count(Event::Started), count(Event::Ended), "what had begun was finished");
        assert_eq!(count(Event::Cancelled), 0);
        assert_eq!(broker.stats().await.unwrap().workers, [], "it took its leave");
        sound(broker).await;
    }
    site.start_worker("--exit-when-empty").ended_well().await;
    let mut runs: BTreeMap<JobId, u32> = BTreeMap::new();
    for entry in site.ledger().iter().filter(|entry| entry.event == Event::Started) {
        *runs.entry(entry.id).or_default() += 1;
    }
    assert_eq!(runs.len(), JOBS);
    assert!(runs.values().all(|runs| *runs == 1), "no job ran twice");
    assert_eq!(figures(broker, "default").await.done, JOBS as u64);
    sound(broker).await;
}

/// When the grace is over, handlers are told, and their jobs go back without a count.
async fn the_grace_ends(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("record", &json!({"millis": 600_000}))).await.unwrap().id();
    let worker = site.start_worker("--grace 200ms");
    site.ledger_until("the start", |ledger| ledger.len() == 1).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    assert_eq!(site.ledger().last().map(|entry| entry.event), Some(Event::Cancelled));
    let details = client.job(id).await.unwrap().unwrap();
    assert_eq!((details.room, details.held_by), (Room::Jobs, None));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 0));
    sound(client.broker()).await;
}

/// A second signal does not wait for a handler that takes ten minutes, though the grace would.
async fn a_second_signal_stops_now(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("stubborn", &json!({"millis": 600_000}))).await.unwrap().id();
    let mut worker = site.start_worker("--grace 30m");
    site.ledger_until("the start", |ledger| ledger.len() == 1).await;
    worker.signal(Signal::TERM);
    // It goes on, and takes nothing new.
    eventually("the first signal to arrive", || async { worker.errors().contains("stop").then_some(()) })
        .await;
    let late = client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap().id();
    assert!(!worker.has_ended());
    worker.signal(Signal::TERM);
    worker.ended().await;
    assert_eq!(site.ledger().len(), 1);
    for id in [id, late] {
        let details = client.job(id).await.unwrap().unwrap();
        assert_eq!((details.room, details.job.attempt), (Room::Jobs, 0), "nothing is lost");
    }
    sound(client.broker()).await;
}

/// An idle worker stops at once, and one that has nothing to do ends by itself if told so.
async fn an_idle_worker_stops(site: Site) {
    let client = site.client().await;
    // Several times: the signal may come while the worker does not know yet that it is registered.
    for _ in 0..5 {
        let worker = site.start_worker("");
        eventually("the worker", || async {
            (client.broker().stats().await.unwrap().workers.len() == 1).then_some(())
        })
        .await;
        worker.signal(Signal::TERM);
        worker.ended_well().await;
        assert_eq!(client.broker().stats().await.unwrap().workers, [], "it took its leave");
    }
    site.start_worker("--exit-when-empty").ended_well().await;
    assert_eq!(client.broker().stats().await.unwrap().workers, []);
    sound(client.broker()).await;
}
