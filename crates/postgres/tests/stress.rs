//! Late commits, rollbacks, partial verdicts, releases and a worker that is declared dead and comes back, all at once:
//! no job is lost, none counts twice, no stale verdict is taken.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, Claimed, EnqueueOptions, JobId, MaintainOptions, NewJob, Payload,
    Priority, QueueName, Settled, Settlement, TaskName, Verdict, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::postgres::fresh_url;
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::NoTls;
use uuid::Uuid;

/// How long producers produce; `CELERIAC_STRESS_SECONDS` goes before.
const SECONDS: u64 = 8;

const HOURS: Duration = Duration::from_secs(10 * 3600);

#[derive(Default)]
struct Account {
    committed: Mutex<HashSet<JobId>>,
    done: Mutex<HashMap<JobId, u32>>,
    stopped: AtomicBool,
    /// Producers that still may commit something.
    producing: AtomicU32,
}

impl Account {
    fn missing(&self) -> usize {
        let done = self.done.lock().unwrap();
        self.committed.lock().unwrap().iter().filter(|id| !done.contains_key(id)).count()
    }
}

fn jobs(rng: &mut Rng) -> Vec<NewJob> {
    let priority = Priority::new(*rng.choice(&[0, 0, 0, 5, 9]).unwrap()).unwrap();
    let task = TaskName::new("work").unwrap();
    (0..rng.usize(1..=20))
        .map(|_| {
            let payload = Payload::from_json("{}").unwrap();
            let id = JobId::from_uuid(Uuid::now_v7());
            let mut job = NewJob::new(id, QueueName::default_queue(), task.clone(), payload);
            job.priority = priority;
            job
        })
        .collect()
}

/// Enqueues in transactions that are short, long, or rolled back.
async fn produce(broker: Arc<PostgresBroker>, url: String, account: Arc<Account>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let plain = url.split('?').next().unwrap();
    let (mut client, connection) = tokio_postgres::connect(plain, NoTls).await.unwrap();
    tokio::spawn(connection);
    while !account.stopped.load(Ordering::SeqCst) {
        let transaction = client.transaction().await.unwrap();
        let jobs = jobs(&mut rng);
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        broker.enqueue_in(&transaction, jobs, EnqueueOptions::default()).await.unwrap();
        // The delay is the subject here: others take batches that were numbered later.
        let delay = match rng.u32(0..100) {
            0..80 => 0,
            80..95 => rng.u64(0..5),
            95..99 => rng.u64(100..400),
            _ => rng.u64(1_000..3_000),
        };
        sleep(Duration::from_millis(delay)).await;
        if rng.u32(0..100) < 3 {
            transaction.rollback().await.unwrap();
            continue;
        }
        account.committed.lock().unwrap().extend(ids);
        transaction.commit().await.unwrap();
    }
    account.producing.fetch_sub(1, Ordering::SeqCst);
}

async fn register(broker: &PostgresBroker) -> WorkerId {
    let id = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(id, "stress:1", [QueueName::default_queue()], HOURS);
    broker.register(info).await.unwrap();
    id
}

fn batch(jobs: &[Claimed], verdict: &Verdict) -> Vec<Settlement> {
    jobs.iter().map(|job| Settlement { receipt: job.receipt, verdict: verdict.clone() }).collect()
}

async fn work(broker: Arc<PostgresBroker>, other: Arc<PostgresBroker>, account: Arc<Account>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut worker = register(&broker).await;
    let started = Instant::now();
    loop {
        let options = ClaimOptions::new(worker, [QueueName::default_queue()], 50);
        let mut claimed = broker.claim(options).await.unwrap();
        if claimed.is_empty() {
            if account.producing.load(Ordering::SeqCst) == 0 && account.missing() == 0 {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "{} jobs never came", account.missing());
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        if seed == 0 && rng.u32(0..10) < 2 {
            // Declared dead while it works; it goes on for a while and its verdicts count for nothing.
            other.retire(worker).await.unwrap();
            let answers = broker.settle(worker, batch(&claimed, &Verdict::Done)).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Settled::Stale), "a stale verdict was taken");
            worker = register(&broker).await;
            continue;
        }
        rng.shuffle(&mut claimed);
        let mut rest = claimed.split_off(rng.usize(0..=claimed.len()));
        let released = if rng.u32(0..10) < 2 { rest.split_off(rest.len() / 2) } else { Vec::new() };
        for (part, verdict) in [(claimed, Verdict::Done), (released, Verdict::Release), (rest, Verdict::Done)]
        {
            if verdict == Verdict::Done {
                let mut done = account.done.lock().unwrap();
                for job in &part {
                    *done.entry(job.job.id).or_default() += 1;
                }
            }
            let answers = broker.settle(worker, batch(&part, &verdict)).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Settled::Applied), "{verdict:?} of a live worker");
        }
        if rng.u32(0..50) == 0 {
            broker.maintain(MaintainOptions::default()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_and_nothing_counts_twice() {
    let url = fresh_url().unwrap();
    let open =
        async || Arc::new(PostgresBroker::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap());
    let (broker, other) = (open().await, open().await);
    let account = Arc::new(Account::default());
    // Suspects come one by one; a limit on deliveries would end in the bin what this worker abandons on purpose.
    let mut change = celeriac_core::QueueChange::default();
    change.delivery_limit = Some(1_000);
    broker.declare(QueueName::default_queue(), change).await.unwrap();
    let mut tasks = JoinSet::new();
    account.producing.store(4, Ordering::SeqCst);
    for seed in 0..4 {
        tasks.spawn(produce(Arc::clone(&broker), url.clone(), Arc::clone(&account), 100 + seed));
    }
    for seed in 0..5 {
        tasks.spawn(work(Arc::clone(&broker), Arc::clone(&other), Arc::clone(&account), seed));
    }
    let seconds = std::env::var("CELERIAC_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    sleep(Duration::from_secs(seconds.unwrap_or(SECONDS))).await;
    account.stopped.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let committed = account.committed.lock().unwrap().len();
    let done = account.done.lock().unwrap().clone();
    assert!(committed > 100, "only {committed} jobs in all: no stress");
    assert_eq!(done.len(), committed, "jobs that were rolled back ran");
    assert!(done.values().all(|times| *times == 1), "a job counted twice");
    let report = broker.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert_eq!(report.jobs, 0);
    println!("{committed} jobs");
}
