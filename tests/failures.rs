//! Handlers that fail in every way, run by a real worker: each row of the design's table that a handler can cause.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use celeriac::core::{AttemptKind, Call, CheckOptions, DeadReason, JobId, Room, TaskName, TaskSpec};
use celeriac_tests::{Event, Site, buried, call, drained, eventually, figures, on_every_engine, site, sound};
use rustix::process::Signal;
use serde_json::json;

on_every_engine!(
    failures_are_tried_again_and_end,
    a_panic_is_a_failure,
    a_time_limit_is_a_failure,
    a_snooze_counts_nothing,
    an_unknown_task_is_set_aside,
    synchronous_handlers_run_on_the_blocking_pool,
);

/// Runs a worker until nothing is left, not even a retry that waits for its time.
async fn work_until_drained(site: &Site) {
    let client = site.client().await;
    let worker = site.start_worker("");
    drained(client.broker(), "default").await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
}

/// Failures are tried again; the last one goes to the bin with all of them.
async fn failures_are_tried_again_and_end(site: Site) {
    let client = site.client().await;
    let recovers = client.enqueue(call("fail", &json!({"times": 2}))).await.unwrap().id();
    let gives_up = client.enqueue(call("fail", &json!({"times": 99}))).await.unwrap().id();
    let rejected = client.enqueue(call("reject", &json!({}))).await.unwrap().id();
    work_until_drained(&site).await;
    assert!(client.job(recovers).await.unwrap().is_none());
    let attempts: Vec<u32> =
        site.ledger().iter().filter(|entry| entry.id == recovers).map(|entry| entry.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 3], "three starts and an end");
    let details = buried(client.broker(), gives_up).await;
    assert_eq!(details.reason, Some(DeadReason::RetriesExhausted));
    let errors: Vec<&str> = details.job.extras.history.iter().map(|entry| entry.error.as_str()).collect();
    assert_eq!(errors, ["failure 1", "failure 2", "failure 3", "failure 4", "failure 5"]);
    let details = buried(client.broker(), rejected).await;
    assert_eq!((details.reason, details.last_error()), (Some(DeadReason::Rejected), Some("no such user")));
    let figures = figures(client.broker(), "default").await;
    assert_eq!((figures.done, figures.dead, figures.retried), (1, 2, 6));
    sound(client.broker()).await;
}

/// A panic is a failure with its message and its place; the worker lives on.
async fn a_panic_is_a_failure(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("panic", &json!({}))).await.unwrap().id();
    let calls = (0..20).map(|_| call("record", &json!({"millis": 5})));
    client.enqueue_all(calls).await.unwrap();
    let worker = site.start_worker("--concurrency 2");
    let figures = drained(client.broker(), "default").await;
    assert_eq!((figures.done, figures.dead), (20, 1));
    let details = buried(client.broker(), id).await;
    assert_eq!(details.reason, Some(DeadReason::RetriesExhausted));
    let entry = details.job.extras.history.last().unwrap();
    assert_eq!(entry.kind, AttemptKind::Panicked);
    assert!(
        entry.error.contains("the sky is falling") && entry.error.contains("worker.rs"),
        "{}",
        entry.error
    );
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    sound(client.broker()).await;
}

/// A handler that takes too long is stopped; that is a failure.
async fn a_time_limit_is_a_failure(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("overrun", &json!({}))).await.unwrap().id();
    let own = client
        .enqueue(
            call("record", &json!({"millis": 600_000}))
                .timeout(std::time::Duration::from_millis(50))
                .max_attempts(1),
        )
        .await
        .unwrap()
        .id();
    work_until_drained(&site).await;
    for (id, attempts) in [(id, 2), (own, 1)] {
        let details = buried(client.broker(), id).await;
        assert_eq!(details.reason, Some(DeadReason::RetriesExhausted));
        assert_eq!(details.job.attempt, attempts);
        assert!(details.job.extras.history.iter().all(|entry| entry.kind == AttemptKind::TimedOut));
    }
    sound(client.broker()).await;
}

/// Arguments that do not fit, and bytes that are none: to the bin at once with the bytes, and the neighbours run.
#[tokio::test]
async fn a_payload_that_cannot_be_decoded_goes_to_the_bin() {
    let site = site!();
    let client = site.client().await;
    let wrong = client.enqueue(call("record", &json!({"millis": "soon"}))).await.unwrap().id();
    let damaged = client.enqueue(call("record", &json!({"millis": 1}))).await.unwrap().id();
    let neighbour = client.enqueue(call("record", &json!({"millis": 1}))).await.unwrap().id();
    let bytes: &[u8] = &[1, 0xc1, 0xff, 0x00, 0x7f];
    {
        // As a bad disk or a bad program would.
        let connection = rusqlite::Connection::open(site.store()).unwrap();
        let changed = connection
            .execute("update jobs set payload = ?1 where id = ?2", (bytes, damaged.as_bytes()))
            .unwrap();
        assert_eq!(changed, 1);
    }
    site.start_worker("--exit-when-empty").ended_well().await;
    assert!(client.job(neighbour).await.unwrap().is_none());
    for id in [wrong, damaged] {
        let details = buried(client.broker(), id).await;
        assert_eq!(details.reason, Some(DeadReason::Undecodable));
        assert_eq!(details.job.attempt, 0);
        assert!(details.last_error().is_some_and(|error| error.contains("cannot be decoded")));
    }
    assert_eq!(buried(client.broker(), damaged).await.job.payload.as_bytes(), bytes);
    assert_eq!(site.ledger().len(), 2, "only the neighbour ran");
    sound(client.broker()).await;
}

/// A record that is damaged in the file itself stops nobody: the job goes to the bin with what is left of it.
#[tokio::test]
async fn a_damaged_record_holds_up_nobody() {
    let damages = [
        "update jobs set extras = x'c1ff00' where id = ?1",
        "update jobs set extras = 'text' where id = ?1",
        "update jobs set attempt = -5 where id = ?1",
        "update jobs set attempt = 9999999999999 where id = ?1",
        "update jobs set deliveries = 'abc' where id = ?1",
        "update jobs set payload = 'text' where id = ?1",
        "update jobs set priority = 99 where id = ?1",
        "update jobs set task = '' where id = ?1",
    ];
    let site = site!();
    let client = site.client().await;
    let mut damaged = Vec::new();
    let mut neighbours = Vec::new();
    for damage in damages {
        let record = || call("record", &json!({"millis": 1}));
        damaged.push((damage, client.enqueue(record().header("tenant", "7")).await.unwrap().id()));
        neighbours.push(client.enqueue(record()).await.unwrap().id());
    }
    {
        let file = rusqlite::Connection::open(site.store()).unwrap();
        for (damage, id) in &damaged {
            assert_eq!(file.execute(damage, [id.as_bytes()]).unwrap(), 1);
        }
    }
    let before = client.broker().check(CheckOptions::default()).await.unwrap();
    assert!(!before.violations.is_empty(), "damage is reported");
    site.start_worker("--exit-when-empty").ended_well().await;
    for id in neighbours {
        assert!(client.job(id).await.unwrap().is_none(), "a neighbour did not run");
    }
    for (damage, id) in damaged {
        let details = buried(client.broker(), id).await;
        assert_eq!(details.reason, Some(DeadReason::Undecodable), "{damage}");
        assert!(details.last_error().is_some_and(|error| error.contains("damaged")), "{damage}");
    }
    sound(client.broker()).await;
}

/// A snooze is no failure.
async fn a_snooze_counts_nothing(site: Site) {
    let client = site.client().await;
    let id = client.enqueue(call("snooze", &json!({}))).await.unwrap().id();
    work_until_drained(&site).await;
    assert!(client.job(id).await.unwrap().is_none());
    let ledger = site.ledger();
    assert_eq!(ledger.iter().filter(|entry| entry.event == Event::Started).count(), 3);
    assert!(ledger.iter().all(|entry| entry.attempt == 1));
    sound(client.broker()).await;
}

/// A job that no worker knows is set aside, counts nothing, and holds up nobody.
async fn an_unknown_task_is_set_aside(site: Site) {
    let client = site.client().await;
    let ghost = Call::from_json(TaskSpec::new(TaskName::new("ghost").unwrap()), "{}");
    let ghost: JobId = client.enqueue(ghost).await.unwrap().id();
    client.enqueue(call("record", &json!({"millis": 1}))).await.unwrap();
    let worker = site.start_worker("");
    let details = eventually("the job in parked", || async {
        client.job(ghost).await.unwrap().filter(|details| details.room == Room::Parked)
    })
    .await;
    assert_eq!(details.waits_for.as_deref(), Some("ghost"));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 0));
    assert_eq!(drained(client.broker(), "default").await.done, 1);
    let stats = client.broker().stats().await.unwrap();
    assert_eq!(stats.parked, [(TaskName::new("ghost").unwrap(), 1)]);
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    sound(client.broker()).await;
}

/// Synchronous handlers run beside each other and do not hold up the asynchronous ones.
async fn synchronous_handlers_run_on_the_blocking_pool(site: Site) {
    let client = site.client().await;
    let mut calls: Vec<_> = (0..16).map(|_| call("compute", &json!({"millis": 100}))).collect();
    calls.extend((0..50).map(|_| call("record", &json!({"millis": 1}))));
    client.enqueue_all(calls).await.unwrap();
    site.start_worker("--concurrency 16 --exit-when-empty").ended_well().await;
    assert_eq!(figures(client.broker(), "default").await.done, 66);
    sound(client.broker()).await;
}
