//! Cases of many who use one store at once.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use celeriac_core::{
    Broker, Claimed, EnqueueOptions, Enqueued, JobId, MaintainOptions, Overflow, QueueChange, Settled,
    Settlement, Verdict, WorkerId,
};
use fastrand::Rng;
use tokio::task::JoinSet;

use super::scene::{Scene, claim_options, ids};

/// Who holds what, as those who hold it know it: an account apart from the store's own.
#[derive(Debug, Default)]
struct Ledger(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    held: BTreeMap<JobId, usize>,
    done: BTreeSet<JobId>,
    claims: BTreeMap<JobId, u32>,
}

impl Ledger {
    fn with<T>(&self, act: impl FnOnce(&mut Entries) -> T) -> T {
        // A poisoned lock means that another task has failed; the case fails with it.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, who: usize, claimed: &[Claimed]) {
        self.with(|entries| {
            for job in claimed {
                let before = entries.held.insert(job.job.id, who);
                assert_eq!(before, None, "job {} is held by {who} and by another", job.job.id);
                assert!(!entries.done.contains(&job.job.id), "job {} is done and came again", job.job.id);
                *entries.claims.entry(job.job.id).or_default() += 1;
            }
        });
    }

    /// Must be called before the store is told: afterwards another may take the job at any time.
    fn drop_all(&self, jobs: &[Claimed]) {
        self.with(|entries| {
            for job in jobs {
                entries.held.remove(&job.job.id);
            }
        });
    }

    fn finish(&self, jobs: &[Claimed]) {
        self.with(|entries| {
            for job in jobs {
                assert!(entries.done.insert(job.job.id), "job {} is done twice", job.job.id);
                entries.held.remove(&job.job.id);
            }
        });
    }
}

async fn settle(
    broker: &dyn Broker,
    worker: WorkerId,
    jobs: &[Claimed],
    verdict: &Verdict,
    expected: Settled,
) {
    let batch: Vec<Settlement> =
        jobs.iter().map(|job| Settlement { receipt: job.receipt, verdict: verdict.clone() }).collect();
    let answers = broker.settle(worker, batch).await.unwrap();
    assert_eq!(answers, vec![expected; jobs.len()], "{verdict:?}");
}

/// Two processes that claim at once: every job goes to one of them.
pub async fn two_handles_never_claim_the_same_job(scene: &Scene) {
    let stored = scene.fill("default", 2_000).await;
    let ledger = Arc::new(Ledger::default());
    let mut tasks = JoinSet::new();
    for who in 0..4 {
        let broker = Arc::clone(if who % 2 == 0 { &scene.broker } else { &scene.other });
        let worker = scene.worker().await;
        let ledger = Arc::clone(&ledger);
        tasks.spawn(async move {
            let mut rng = Rng::with_seed(who as u64);
            loop {
                let claimed =
                    broker.claim(claim_options(worker, &["default"], rng.usize(1..60))).await.unwrap();
                if claimed.is_empty() {
                    return;
                }
                ledger.take(who, &claimed);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(ledger.with(|entries| entries.held.len()), stored.len());
    assert_eq!(scene.figures("default").await.held, 2_000);
    scene.sound().await;
}

/// Many callers repeat the enqueue of one id at once: one of them stores it.
pub async fn one_of_many_equal_enqueues_wins(scene: &Scene) {
    for _ in 0..10 {
        let job = scene.idempotent_job("default");
        let mut tasks = JoinSet::new();
        for caller in 0..8 {
            let broker = Arc::clone(if caller % 2 == 0 { &scene.broker } else { &scene.other });
            let job = job.clone();
            tasks.spawn(async move { broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap() });
        }
        let mut new = 0;
        while let Some(answers) = tasks.join_next().await {
            new += usize::from(answers.unwrap() == [Enqueued::New(job.id)]);
        }
        assert_eq!(new, 1);
    }
    assert_eq!(scene.figures("default").await.ready, 10);
    scene.sound().await;
}

/// Producers and workers at the same time, through both handles: all that was stored is done, once.
pub async fn producers_and_workers_share_a_queue(scene: &Scene) {
    const PER_PRODUCER: usize = 600;
    let ledger = Arc::new(Ledger::default());
    let producing = Arc::new(AtomicU64::new(3));
    let mut tasks = JoinSet::new();
    for producer in 0..3_u64 {
        let broker = Arc::clone(if producer == 1 { &scene.other } else { &scene.broker });
        let jobs: Vec<_> = (0..PER_PRODUCER).map(|_| scene.job("default")).collect();
        let producing = Arc::clone(&producing);
        tasks.spawn(async move {
            let mut rng = Rng::with_seed(producer);
            let mut rest = &jobs[..];
            while !rest.is_empty() {
                let (batch, later) = rest.split_at(rng.usize(1..=rest.len().min(40)));
                broker.enqueue(batch.to_vec(), EnqueueOptions::default()).await.unwrap();
                rest = later;
            }
            producing.fetch_sub(1, Ordering::SeqCst);
        });
    }
    for who in 0..3 {
        let broker = Arc::clone(if who == 1 { &scene.other } else { &scene.broker });
        let worker = scene.worker().await;
        let (ledger, producing) = (Arc::clone(&ledger), Arc::clone(&producing));
        tasks.spawn(async move {
            loop {
                let over = producing.load(Ordering::SeqCst) == 0;
                let claimed = broker.claim(claim_options(worker, &["default"], 50)).await.unwrap();
                if claimed.is_empty() && over {
                    return;
                }
                ledger.take(who, &claimed);
                settle(&*broker, worker, &claimed, &Verdict::Done, Settled::Applied).await;
                ledger.finish(&claimed);
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(ledger.with(|entries| entries.done.len()), 3 * PER_PRODUCER);
    scene.sound().await;
}

/// The limit of a queue is no guess: many producers at once cannot pass it.
pub async fn a_length_limit_holds_against_many_producers(scene: &Scene) {
    let mut change = QueueChange::default();
    change.max_length = Some(Some(50));
    change.overflow = Some(Overflow::Refuse);
    scene.change("default", change).await;
    let mut tasks = JoinSet::new();
    for producer in 0..6 {
        let broker = Arc::clone(if producer % 2 == 0 { &scene.broker } else { &scene.other });
        let jobs: Vec<_> = (0..30).map(|_| scene.job("default")).collect();
        tasks.spawn(async move {
            let mut stored = 0;
            for batch in jobs.chunks(3) {
                match broker.enqueue(batch.to_vec(), EnqueueOptions::default()).await {
                    Ok(_) => stored += 3,
                    Err(error) => assert_eq!(error.code().as_str(), "queue_full"),
                }
            }
            stored
        });
    }
    let mut stored = 0;
    while let Some(count) = tasks.join_next().await {
        stored += count.unwrap();
    }
    assert_eq!(stored, 48, "the last batch of three does not fit");
    assert_eq!(scene.figures("default").await.ready, 48);
    scene.sound().await;
}

/// 20,000 jobs, four workers that settle in parts and give back, one of which is declared dead while it works, goes on
/// for a while, and comes back: none is lost, none is held twice at a time, no stale verdict counts.
pub async fn twenty_thousand_jobs_survive_a_crash(scene: &Scene) {
    const JOBS: usize = 20_000;
    for _ in 0..4 {
        scene.fill("default", JOBS / 4).await;
    }
    let ledger = Arc::new(Ledger::default());
    let crashed = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for who in 0..4 {
        let broker = Arc::clone(if who % 2 == 0 { &scene.broker } else { &scene.other });
        let elsewhere = Arc::clone(if who % 2 == 0 { &scene.other } else { &scene.broker });
        let worker = scene.worker().await;
        let (ledger, crashed) = (Arc::clone(&ledger), Arc::clone(&crashed));
        tasks.spawn(drain(who, broker, elsewhere, worker, ledger, crashed));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert!(crashed.load(Ordering::SeqCst), "one worker was declared dead");
    ledger.with(|entries| {
        assert_eq!(entries.done.len(), JOBS);
        assert!(entries.held.is_empty());
        assert!(entries.claims.values().any(|claims| *claims > 1), "some jobs were given back");
    });
    let figures = scene.figures("default").await;
    assert_eq!(figures.done, JOBS as u64);
    assert_eq!((figures.ready, figures.held, figures.dead), (0, 0, 0));
    assert!(figures.redelivered > 0);
    scene.sound().await;
}

async fn drain(
    who: usize,
    broker: Arc<dyn Broker>,
    elsewhere: Arc<dyn Broker>,
    mut worker: WorkerId,
    ledger: Arc<Ledger>,
    crashed: Arc<AtomicBool>,
) {
    let mut rng = Rng::with_seed(17 + who as u64);
    let mut held: Vec<Claimed> = Vec::new();
    loop {
        let claimed = broker.claim(claim_options(worker, &["default"], rng.usize(1..200))).await.unwrap();
        ledger.take(who, &claimed);
        let idle = claimed.is_empty();
        held.extend(claimed);
        if who == 3 && !crashed.load(Ordering::SeqCst) && held.len() > 100 {
            worker = crash(&*broker, &*elsewhere, worker, &held, &ledger).await;
            held.clear();
            crashed.store(true, Ordering::SeqCst);
            continue;
        }
        if idle && held.is_empty() {
            let figures = broker.stats().await.unwrap();
            if figures.queues.iter().all(|queue| queue.ready + queue.held == 0) {
                return;
            }
            tokio::task::yield_now().await;
        }
        rng.shuffle(&mut held);
        // While there is more to claim, a part is kept for a later call.
        let kept = if idle { 0 } else { held.len() / 5 };
        let mut settled = held.split_off(kept);
        let released = settled.split_off(settled.len() - settled.len() / 6);
        settle(&*broker, worker, &settled, &Verdict::Done, Settled::Applied).await;
        ledger.finish(&settled);
        ledger.drop_all(&released);
        settle(&*broker, worker, &released, &Verdict::Release, Settled::Applied).await;
        if rng.u8(0..10) == 0 {
            broker.maintain(MaintainOptions::default()).await.unwrap();
        }
    }
}

/// Another process declares a worker dead while it holds jobs; the worker does not know and goes on.
async fn crash(
    broker: &dyn Broker,
    elsewhere: &dyn Broker,
    worker: WorkerId,
    held: &[Claimed],
    ledger: &Ledger,
) -> WorkerId {
    ledger.drop_all(held);
    elsewhere.retire(worker).await.unwrap();
    let (first, rest) = held.split_at(held.len() / 2);
    settle(broker, worker, first, &Verdict::Done, Settled::Stale).await;
    settle(broker, worker, rest, &Verdict::Release, Settled::Stale).await;
    assert!(broker.claim(claim_options(worker, &["default"], 10)).await.is_err());
    assert!(!ids(held).is_empty());
    let back = WorkerId::from_uuid(uuid::Uuid::new_v4());
    let queue = celeriac_core::QueueName::default_queue();
    let info = celeriac_core::WorkerInfo::new(back, "back:4", [queue], super::scene::HOURS);
    broker.register(info).await.unwrap();
    back
}
