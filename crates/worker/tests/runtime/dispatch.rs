//! Who gets which job, and how many at once.

use celeriac_core::{Broker, ClaimOptions, JobId, QueueName, Room, Suspects, Verdict, WorkerId, WorkerInfo};
use celeriac_worker::{ExitWhenEmpty, Prefetch};
use std::time::Duration;

use crate::fixture::Fixture;
use crate::probe::{Event, LIMIT};

/// A worker of another process, driven by hand.
async fn other_worker(fixture: &Fixture, number: u128, lease: Duration) -> WorkerId {
    let id = WorkerId::from_uuid(uuid::Uuid::from_u128(number));
    let info = WorkerInfo::new(id, "other:1", [QueueName::default()], lease);
    fixture.store.register(info).await.unwrap();
    id
}

#[tokio::test]
async fn queues_are_served_strictly_in_the_order_given() {
    let fixture = Fixture::new();
    for n in 0..20 {
        fixture.call("ok", &format!("low {n}"), "", |call| call.queue("low")).await;
        fixture.call("ok", &format!("high {n}"), "", |call| call.queue("high")).await;
    }
    let worker = fixture.start(|builder| {
        builder
            .subscription("high,low".parse().unwrap())
            .concurrency(1)
            .prefetch(Prefetch::Fixed(1))
            .exit_when_empty(ExitWhenEmpty::Yes)
    });
    assert_eq!(worker.report().await.done, 40);
    let order = fixture.probe.keys(Event::Started);
    assert!(order[..20].iter().all(|key| key.starts_with("high")), "{order:?}");
}

#[tokio::test]
async fn weights_are_kept_even_by_claims_of_one_job() {
    let fixture = Fixture::new();
    for n in 0..60 {
        fixture.call("ok", &format!("low {n}"), "", |call| call.queue("low")).await;
        fixture.call("ok", &format!("high {n}"), "", |call| call.queue("high")).await;
    }
    let worker = fixture.start(|builder| {
        builder
            .subscription("low=1,high=3".parse().unwrap())
            .concurrency(1)
            .prefetch(Prefetch::Fixed(1))
            .exit_when_empty(ExitWhenEmpty::Yes)
    });
    assert_eq!(worker.report().await.done, 120);
    let order = fixture.probe.keys(Event::Started);
    let high = order[..40].iter().filter(|key| key.starts_with("high")).count();
    assert!((28..=32).contains(&high), "{high} of the first 40 were high");
    assert!(order[70..].iter().any(|key| key.starts_with("low")), "low was served to its end");
}

#[tokio::test]
async fn a_fixed_prefetch_is_never_passed() {
    let fixture = Fixture::new();
    for n in 0..500 {
        fixture.enqueue("ok", &n.to_string()).await;
    }
    let worker =
        fixture.start(|builder| builder.prefetch(Prefetch::Fixed(7)).exit_when_empty(ExitWhenEmpty::Yes));
    assert_eq!(worker.report().await.done, 500);
    let seen = fixture.broker.seen();
    assert!(seen.most_in_hand <= 7, "{} in hand", seen.most_in_hand);
    assert_eq!(seen.claimed, 500);
    fixture.check().await;
}

#[tokio::test]
async fn short_jobs_come_in_large_claims() {
    let fixture = Fixture::new();
    for n in 0..1_200 {
        fixture.enqueue("ok", &n.to_string()).await;
    }
    let report = fixture.run_until_empty().await;
    assert_eq!(report.done, 1_200);
    let seen = fixture.broker.seen();
    assert!(seen.claims.iter().any(|(_, _, count)| *count >= 200), "{:?}", seen.claims);
    assert!(seen.claims.iter().all(|(limit, _, _)| *limit <= 1_000));
}

#[tokio::test]
async fn long_jobs_are_claimed_for_free_handlers_only() {
    let fixture = Fixture::new();
    for n in 0..10 {
        fixture.enqueue("gate", &n.to_string()).await;
    }
    let worker = fixture.start(|builder| builder.concurrency(2));
    fixture.probe.wait_count(Event::Started, 2).await;
    // Three rounds of maintenance are a second and more: time enough for a greedy claimer.
    let rounds = fixture.broker.seen().maintained;
    fixture.broker.wait_for("time to pass", |seen| seen.maintained >= rounds + 3).await;
    assert_eq!(fixture.broker.seen().claimed, 2);
    fixture.probe.open("0");
    fixture.probe.wait_count(Event::Started, 3).await;
    let rounds = fixture.broker.seen().maintained;
    fixture.broker.wait_for("time to pass", |seen| seen.maintained >= rounds + 3).await;
    assert_eq!(fixture.broker.seen().claimed, 3);
    fixture.probe.open_all();
    fixture.probe.wait_count(Event::Ended, 10).await;
    assert_eq!(worker.drain().await.done, 10);
}

#[tokio::test]
async fn what_waits_behind_a_long_job_is_given_to_others() {
    let fixture = Fixture::new();
    fixture.enqueue("gate", "long").await;
    let mut jobs = Vec::new();
    for n in 0..9 {
        jobs.push(fixture.enqueue("ok", &n.to_string()).await);
    }
    let hoarder = fixture.start(|builder| builder.concurrency(1).prefetch(Prefetch::Fixed(10)));
    fixture.broker.wait_for("all are claimed", |seen| seen.claimed >= 10).await;
    fixture.broker.wait_for("nine are released", |seen| seen.count(|v| *v == Verdict::Release) == 9).await;
    for job in &jobs {
        let details = fixture.find_in(*job, Room::Jobs).await;
        assert_eq!((details.job.deliveries, details.held_by), (0, None));
    }
    let other = fixture.start(|builder| builder.concurrency(1));
    fixture.probe.wait_count(Event::Ended, 9).await;
    assert_eq!(other.drain().await.done, 9);
    assert_eq!(fixture.broker.seen().claimed, 19, "the hoarder left them alone");
    fixture.probe.open_all();
    fixture.probe.wait_count(Event::Ended, 10).await;
    let report = hoarder.drain().await;
    assert_eq!((report.done, report.released), (1, 9));
    fixture.check().await;
}

#[tokio::test]
async fn suspects_of_a_crash_run_one_at_a_time_beside_fresh_jobs() {
    let fixture = Fixture::new();
    for n in 0..3 {
        fixture.enqueue("gate", &format!("suspect {n}")).await;
    }
    let dead = other_worker(&fixture, 1, LIMIT).await;
    let taken = fixture.store.claim(ClaimOptions::new(dead, [QueueName::default()], 3)).await.unwrap();
    assert_eq!(taken.len(), 3);
    fixture.store.retire(dead).await.unwrap();
    for n in 0..6 {
        fixture.enqueue("gate", &format!("fresh {n}")).await;
    }
    let suspect = |key: &str| key.starts_with("suspect");
    let fresh = |key: &str| key.starts_with("fresh");
    let started =
        |kind: fn(&str) -> bool| fixture.probe.keys(Event::Started).iter().filter(|key| kind(key)).count();
    let worker = fixture.start(|builder| builder);
    fixture
        .probe
        .wait_for("a suspect runs beside three fresh jobs", |probe| {
            probe.running(suspect) == 1 && probe.running(fresh) == 3
        })
        .await;
    // Handlers become free while the suspect is in hand: they get fresh jobs.
    for n in 0..3 {
        fixture.probe.open(&format!("fresh {n}"));
    }
    fixture.probe.wait_for("the other fresh jobs", |_| started(fresh) == 6).await;
    assert_eq!(started(suspect), 1);
    fixture.probe.open_all();
    fixture.probe.wait_count(Event::Ended, 9).await;
    assert_eq!(worker.drain().await.done, 9);
    let seen = fixture.broker.seen();
    assert!(seen.claims.iter().any(|(_, suspects, _)| *suspects == Suspects::Leave));
}

#[tokio::test]
async fn the_end_waits_for_held_jobs_but_not_for_scheduled_ones() {
    let fixture = Fixture::new();
    let held = fixture.enqueue("ok", "held").await;
    let scheduled = fixture.call("ok", "later", "", |call| call.delay(Duration::from_secs(3_600))).await;
    let other = other_worker(&fixture, 1, LIMIT).await;
    let taken = fixture.store.claim(ClaimOptions::new(other, [QueueName::default()], 1)).await.unwrap();
    assert_eq!(taken[0].job.id, held);
    let worker = fixture.start(|builder| builder.exit_when_empty(ExitWhenEmpty::Yes));
    fixture.broker.wait_for("some looks", |seen| seen.claims.len() >= 3).await;
    assert!(!worker.is_finished());
    fixture.store.retire(other).await.unwrap();
    let report = worker.report().await;
    assert_eq!(report.done, 1);
    assert_eq!(fixture.find_in(scheduled, Room::Scheduled).await.job.id, scheduled);
    assert!(fixture.find(held).await.is_none());
}

#[tokio::test]
async fn a_scheduled_job_runs_when_it_is_due() {
    let fixture = Fixture::new();
    let job: JobId = fixture.call("ok", "a", "", |call| call.delay(Duration::from_millis(50))).await;
    let worker = fixture.start(|builder| builder);
    fixture.probe.wait_count(Event::Ended, 1).await;
    assert_eq!(worker.drain().await.done, 1);
    assert!(fixture.find(job).await.is_none());
}

#[tokio::test]
async fn an_idle_worker_waits_instead_of_asking() {
    let fixture = Fixture::new();
    let worker = fixture.start(|builder| builder);
    let rounds = fixture.broker.seen().maintained;
    fixture.broker.wait_for("time to pass", |seen| seen.maintained >= rounds + 4).await;
    let seen = fixture.broker.seen();
    assert!(seen.claims.len() < 60, "{} claims by an idle worker", seen.claims.len());
    worker.drain().await;
}
