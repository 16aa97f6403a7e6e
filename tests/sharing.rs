//! Many processes on one store.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use celeriac::core::JobId;
use celeriac_tests::{Event, Site, drained, eventually, figures, on_every_engine, sound};
use rustix::process::Signal;

on_every_engine!(
    two_producers_and_two_workers_share_a_store,
    a_store_is_made_once,
    an_idle_worker_is_woken_from_another_process,
);

/// Two producers and two workers at once: every job that was promised runs, once.
async fn two_producers_and_two_workers_share_a_store(site: Site) {
    let workers = [site.start_worker("--concurrency 4"), site.start_worker("--concurrency 3 --prefetch 7")];
    let client = site.client().await;
    eventually("both workers", || async {
        (client.broker().stats().await.unwrap().workers.len() == 2).then_some(())
    })
    .await;
    let producers = [site.start_producer("record 1500 10 4 2"), site.start_producer("record 1500 1 16 3")];
    let mut promised = BTreeSet::new();
    for mut producer in producers {
        let status = producer.ended().await;
        assert!(status.success(), "{}", producer.errors());
        promised.extend(producer.output().lines().map(|line| line.parse::<JobId>().unwrap()));
    }
    assert_eq!(promised.len(), 3_000);
    let figures = drained(client.broker(), "default").await;
    assert_eq!((figures.enqueued, figures.done), (3_000, 3_000));
    assert_eq!((figures.redelivered, figures.retried, figures.dead), (0, 0, 0));
    let mut runs: BTreeMap<JobId, u32> = BTreeMap::new();
    let mut by_process: BTreeMap<u32, u32> = BTreeMap::new();
    for entry in site.ledger().iter().filter(|entry| entry.event == Event::Ended) {
        *runs.entry(entry.id).or_default() += 1;
        *by_process.entry(entry.process).or_default() += 1;
    }
    assert_eq!(runs.keys().copied().collect::<BTreeSet<_>>(), promised);
    assert!(runs.values().all(|runs| *runs == 1), "no job ran twice");
    assert_eq!(by_process.len(), 2, "both workers had a part in it: {by_process:?}");
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.ended_well().await;
    }
    sound(client.broker()).await;
}

/// Many programs open a store that does not exist yet: one makes it, all can use it.
async fn a_store_is_made_once(site: Site) {
    let workers: Vec<_> = (0..2).map(|_| site.start_worker("--queues other")).collect();
    let producers: Vec<_> = (0..6).map(|_| site.start_producer("record 5 1 1 0")).collect();
    for producer in producers {
        producer.ended_well().await;
    }
    let client = site.client().await;
    assert_eq!(figures(client.broker(), "default").await.ready, 30);
    eventually("both workers", || async {
        (client.broker().stats().await.unwrap().workers.len() == 2).then_some(())
    })
    .await;
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.ended_well().await;
    }
    sound(client.broker()).await;
}

/// An idle worker in another process takes a job long before it would have looked by itself.
async fn an_idle_worker_is_woken_from_another_process(site: Site) {
    let client = site.client().await;
    let worker = site.start_worker("");
    eventually("the worker", || async {
        (client.broker().stats().await.unwrap().workers.len() == 1).then_some(())
    })
    .await;
    for round in 1..=20 {
        site.start_producer("record 1 1 1 0").ended_well().await;
        site.ledger_until("the job", |ledger| ledger.len() == 2 * round).await;
    }
    drained(client.broker(), "default").await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    sound(client.broker()).await;
}
