//! Stores that are much larger than a worker's memory may be.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::time::{Duration, Instant};

use celeriac_tests::{Process, Site, call, eventually, figures, site, sound};
use rustix::process::Signal;
use serde_json::json;

/// Starts a worker on a store and lets it work for some rounds of maintenance. Gives the most memory it had, in KiB.
async fn peak_memory(site: &Site) -> u64 {
    let client = site.client().await;
    let worker: Process = site.start_worker("--concurrency 16");
    let before = figures(client.broker(), "default").await.done;
    let started = Instant::now();
    let mut rounds = 0;
    // Work in between, and several rounds of every duty.
    while started.elapsed() < Duration::from_secs(5) {
        rounds += 1;
        client.enqueue_all((0..20).map(|_| call("record", &json!({"millis": 0})))).await.unwrap();
        eventually("the work", || async {
            (figures(client.broker(), "default").await.done >= before + 20 * rounds).then_some(())
        })
        .await;
    }
    let peak = worker.peak_memory();
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    peak
}

async fn delay(site: &Site, jobs: usize) {
    let client = site.client().await;
    let batch = 2_000;
    for _ in 0..jobs / batch {
        let later = || call("record", &json!({"millis": 0})).delay(Duration::from_secs(36_000));
        client.enqueue_all((0..batch).map(|_| later())).await.unwrap();
    }
}

/// A worker's memory does not depend on how many jobs wait for their time: 1,000,000 of them.
#[tokio::test]
#[ignore = "a stress test of about a minute: cargo test -p celeriac-tests --test scale -- --ignored"]
async fn stress_a_million_delayed_jobs_leave_memory_flat() {
    let site = site!();
    delay(&site, 2_000).await;
    let few = peak_memory(&site).await;
    delay(&site, 998_000).await;
    let many = peak_memory(&site).await;
    println!("{few} KiB with 2,000 delayed jobs, {many} KiB with 1,000,000");
    let client = site.client().await;
    assert_eq!(figures(client.broker(), "default").await.scheduled, 1_000_000);
    assert!(many < 64 * 1024, "{many} KiB");
    assert!(many < few + 16 * 1024, "{few} KiB grew to {many} KiB");
    sound(client.broker()).await;
}

/// The same with 50,000, at every run of the tests.
#[tokio::test]
async fn many_delayed_jobs_leave_memory_flat() {
    let site = site!();
    delay(&site, 2_000).await;
    let few = peak_memory(&site).await;
    delay(&site, 48_000).await;
    let many = peak_memory(&site).await;
    println!("{few} KiB with 2,000 delayed jobs, {many} KiB with 50,000");
    assert!(many < 64 * 1024, "{many} KiB");
    assert!(many < few + 12 * 1024, "{few} KiB grew to {many} KiB");
}
