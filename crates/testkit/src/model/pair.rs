//! An engine and the reference, side by side.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{
    AttemptKind, Broker, BulkAct, BulkOptions, CheckOptions, ClaimOptions, DeadReason, Details,
    EnqueueOptions, Error, Failure, Filter, Idempotency, JobId, MaintainOptions, Maintenance, NewJob,
    OnExpire, Page, PageOptions, Paused, Payload, Priority, QueueChange, QueueName, QueueShare, Receipt,
    Result, Room, Settlement, Stats, Suspects, TaskName, Verdict, WorkerId, WorkerInfo,
};
use proptest::test_runner::TestCaseError;
use uuid::Uuid;

use super::step::{Act, QUEUES, Setting, Start, Step, WORKERS, Word};
use crate::ReferenceBroker;

const HOURS: Duration = Duration::from_secs(10 * 3600);

/// So many of a worker's newest receipts are played with. Among them are settled and lost ones.
const RECEIPTS: usize = 24;

type Outcome<T = ()> = Result<T, TestCaseError>;

/// The two sides, and what the history has made so far.
pub(super) struct Pair {
    engine: Arc<dyn Broker>,
    /// A second handle on the engine's store; every other step goes through it.
    other: Arc<dyn Broker>,
    reference: ReferenceBroker,
    steps: usize,
    jobs: Vec<NewJob>,
    workers: Vec<Worker>,
}

struct Worker {
    id: WorkerId,
    /// Every receipt that this worker was ever given: the engine's and the reference's.
    receipts: Vec<(Receipt, Receipt)>,
}

impl Pair {
    pub(super) async fn new(engine: Arc<dyn Broker>, other: Arc<dyn Broker>) -> Self {
        let reference = ReferenceBroker::new();
        let mut pair = Self { engine, other, reference, steps: 0, jobs: Vec::new(), workers: Vec::new() };
        for name in QUEUES {
            pair.declare(name, QueueChange::default()).await.unwrap_or_else(|error| panic!("{error}"));
        }
        for _ in 0..WORKERS {
            let id = pair.register().await.unwrap_or_else(|error| panic!("{error}"));
            pair.workers.push(Worker { id, receipts: Vec::new() });
        }
        pair
    }

    /// The engine, through one handle or the other.
    fn engine(&self) -> &Arc<dyn Broker> {
        if self.steps.is_multiple_of(2) { &self.engine } else { &self.other }
    }

    /// Does one step on both sides and compares what can be seen.
    pub(super) async fn take(&mut self, step: &Step) -> Outcome {
        self.steps += 1;
        match step {
            Step::Acknowledge { worker, picks } => self.acknowledge(*worker, picks).await?,
            Step::Bulk { room, queue, act, limit } => {
                self.bulk(Room::ALL[*room], *queue, *act, *limit).await?
            }
            Step::Cancel { job } => self.cancel(*job).await?,
            Step::Claim { worker, .. } => self.claim(*worker, step).await?,
            Step::Declare { queue, setting } => self.declare(QUEUES[*queue], change(*setting)).await?,
            Step::Enqueue { queue, priority, count, start } => {
                let jobs = (0..*count).map(|_| self.new_job(QUEUES[*queue], *priority, *start)).collect();
                self.enqueue(jobs).await?;
            }
            Step::Lapse { worker } => self.lapse(*worker).await?,
            Step::Maintain => {
                self.maintain().await?;
            }
            Step::Repeat { job, beside } => self.repeat(*job, *beside).await?,
            Step::Retire { worker } => self.retire(*worker).await?,
            Step::Settle { worker, picks } => self.settle(*worker, picks).await?,
        }
        self.compare().await
    }

    /// Ends the history: all workers go, and nothing is broken.
    pub(super) async fn finish(&mut self) -> Outcome {
        for worker in 0..WORKERS {
            self.retire(worker).await?;
        }
        self.maintain().await?;
        self.compare().await
    }

    fn new_job(&self, queue: &str, priority: u8, start: Start) -> NewJob {
        // Sizes differ, so that a claim's limit of bytes cuts at different places.
        let text = format!("{{\"n\": \"{}\"}}", "x".repeat(self.jobs.len() % 17));
        let payload = Payload::from_json(&text).unwrap_or_else(|error| panic!("{error}"));
        let id = JobId::from_uuid(Uuid::now_v7());
        let mut job = NewJob::new(id, queue_name(queue), task_name(), payload);
        job.priority = Priority::new(priority).unwrap_or_default();
        match start {
            Start::Later => job.start = celeriac_core::Start::After(HOURS),
            Start::Mortal => job.ttl = Some(Duration::ZERO),
            Start::Now => {}
            Start::Remembered => job.idempotency = Idempotency::ById,
        }
        job
    }

    async fn enqueue(&mut self, jobs: Vec<NewJob>) -> Outcome {
        let options = EnqueueOptions::default();
        let engine = self.engine().enqueue(jobs.clone(), options.clone()).await;
        let reference = self.reference.enqueue(jobs.clone(), options).await;
        if equal_results("enqueue", engine, reference)?.is_some() {
            self.jobs.extend(jobs);
        }
        Ok(())
    }

    /// Enqueues a remembered job again, among new ones.
    async fn repeat(&mut self, job: usize, beside: usize) -> Outcome {
        let remembered: Vec<&NewJob> =
            self.jobs.iter().filter(|job| job.idempotency == Idempotency::ById).collect();
        let Some(again) = remembered.get(job % remembered.len().max(1)).map(|job| (*job).clone()) else {
            return Ok(());
        };
        let mut jobs: Vec<NewJob> = (0..beside).map(|_| self.new_job(QUEUES[0], 0, Start::Now)).collect();
        jobs.insert(job % (beside + 1), again);
        self.enqueue(jobs).await
    }

    async fn claim(&mut self, worker: usize, step: &Step) -> Outcome {
        let Step::Claim { first, shares, limit, bytes, suspects, tasks, .. } = step else { return Ok(()) };
        let mut options = ClaimOptions::new(self.workers[worker].id, [], *limit);
        options.queues = (0..QUEUES.len())
            .map(|place| (first + place) % QUEUES.len())
            .map(|queue| QueueShare { name: queue_name(QUEUES[queue]), share: shares[queue] })
            .collect();
        if let Some(bytes) = bytes {
            options.max_bytes = *bytes;
        }
        options.suspects = if *suspects { Suspects::Take } else { Suspects::Leave };
        if *tasks {
            options.tasks = Arc::from([task_name()]);
        }
        let engine = unexpected("claim", self.engine().claim(options.clone()).await)?;
        let like: Vec<JobId> = engine.iter().map(|claimed| claimed.job.id).collect();
        let reference = unexpected("claim", self.reference.claim_like(&options, &like))?;
        let shown = |claimed: &[celeriac_core::Claimed]| -> Vec<(JobId, u32, u32, bool)> {
            let tell = |claimed: &celeriac_core::Claimed| {
                (claimed.job.id, claimed.job.attempt, claimed.job.deliveries, claimed.is_suspect())
            };
            claimed.iter().map(tell).collect()
        };
        equal("claim", &shown(&engine), &shown(&reference))?;
        let receipts = engine.iter().zip(&reference).map(|(engine, model)| (engine.receipt, model.receipt));
        self.workers[worker].receipts.extend(receipts);
        Ok(())
    }

    /// One of a worker's newest receipts.
    fn receipt(&self, worker: usize, pick: usize) -> Option<(Receipt, Receipt)> {
        let receipts = &self.workers[worker].receipts;
        let newest = receipts.len().min(RECEIPTS);
        (newest > 0).then(|| receipts[receipts.len() - 1 - pick % newest])
    }

    async fn settle(&self, worker: usize, picks: &[(usize, Word)]) -> Outcome {
        let (mut engine, mut reference) = (Vec::new(), Vec::new());
        for (pick, word) in picks {
            let Some((on_engine, on_reference)) = self.receipt(worker, *pick) else { return Ok(()) };
            engine.push(Settlement { receipt: on_engine, verdict: verdict(*word) });
            reference.push(Settlement { receipt: on_reference, verdict: verdict(*word) });
        }
        let id = self.workers[worker].id;
        let engine = unexpected("settle", self.engine().settle(id, engine).await)?;
        let reference = unexpected("settle", self.reference.settle(id, reference).await)?;
        equal("settle", &engine, &reference)
    }

    async fn acknowledge(&self, worker: usize, picks: &[usize]) -> Outcome {
        let receipts: Vec<_> = picks.iter().filter_map(|pick| self.receipt(worker, *pick)).collect();
        let id = self.workers[worker].id;
        let (engine, reference) = receipts.into_iter().unzip();
        let engine = self.engine().acknowledge(id, engine).await;
        let reference = self.reference.acknowledge(id, reference).await;
        equal_results("acknowledge", engine, reference).map(|_| ())
    }

    async fn register(&self) -> Outcome<WorkerId> {
        let id = WorkerId::from_uuid(Uuid::new_v4());
        let info = WorkerInfo::new(id, "host:1", [QueueName::default_queue()], HOURS);
        unexpected("register", self.engine().register(info.clone()).await)?;
        unexpected("register", self.reference.register(info).await)?;
        Ok(id)
    }

    /// The worker ends, and a new one takes its place. It keeps the receipts: stale ones, from now on.
    async fn retire(&mut self, worker: usize) -> Outcome {
        let id = self.workers[worker].id;
        unexpected("retire", self.engine().retire(id).await)?;
        unexpected("retire", self.reference.retire(id).await)?;
        self.replace(worker).await
    }

    /// The worker misses its lease and is declared dead.
    async fn lapse(&mut self, worker: usize) -> Outcome {
        let id = self.workers[worker].id;
        let engine = self.engine().renew(id, Duration::ZERO).await;
        equal_results("renew", engine, self.reference.renew(id, Duration::ZERO).await)?;
        let done = self.maintain().await?;
        equal("dead workers", &done.dead_workers, &1)?;
        let engine = self.engine().renew(id, HOURS).await;
        equal_results("renew after the end", engine, self.reference.renew(id, HOURS).await)?;
        self.replace(worker).await
    }

    async fn replace(&mut self, worker: usize) -> Outcome {
        // Every other time the same identity comes back, and its old receipts are tried under it.
        let fresh = self.register().await?;
        if self.steps.is_multiple_of(2) {
            self.workers[worker].id = fresh;
            return Ok(());
        }
        unexpected("retire", self.engine().retire(fresh).await)?;
        unexpected("retire", self.reference.retire(fresh).await)?;
        let info = WorkerInfo::new(self.workers[worker].id, "host:2", [QueueName::default_queue()], HOURS);
        unexpected("register", self.engine().register(info.clone()).await)?;
        unexpected("register", self.reference.register(info).await)
    }

    async fn maintain(&self) -> Outcome<Maintenance> {
        let engine = unexpected("maintain", self.engine().maintain(MaintainOptions::default()).await)?;
        let reference = unexpected("maintain", self.reference.maintain(MaintainOptions::default()).await)?;
        let shown = |done: &Maintenance| {
            let moved =
                (done.promoted, done.dead_workers, done.redelivered, done.buried, done.expired, done.pruned);
            (moved, done.more, done.next_due.is_some())
        };
        equal("maintain", &shown(&engine), &shown(&reference))?;
        Ok(engine)
    }

    async fn cancel(&self, job: usize) -> Outcome {
        let Some(id) = self.jobs.get(job % self.jobs.len().max(1)).map(|job| job.id) else { return Ok(()) };
        let engine = self.engine().cancel(id).await;
        equal_results("cancel", engine, self.reference.cancel(id).await).map(|_| ())
    }

    async fn declare(&self, name: &str, change: QueueChange) -> Outcome {
        let engine = self.engine().declare(queue_name(name), change.clone()).await;
        let reference = self.reference.declare(queue_name(name), change).await;
        equal_results("declare", engine, reference).map(|_| ())
    }

    async fn bulk(&self, room: Room, queue: Option<usize>, act: Act, limit: usize) -> Outcome {
        let mut filter = Filter::room(room);
        filter.queue = queue.map(|queue| queue_name(QUEUES[queue]));
        let act = match act {
            Act::Look => BulkAct::Nothing,
            Act::Purge => BulkAct::Purge,
            Act::Replay => BulkAct::Replay { queue: None },
            Act::ReplayInto(queue) => BulkAct::Replay { queue: Some(queue_name(QUEUES[queue])) },
        };
        let engine = act_in_steps(&**self.engine(), &filter, &act, limit).await;
        // One act of the reference: what it moves has no order, as the engine's pages may have another one.
        let reference = act_in_steps(&self.reference, &filter, &act, 1_000).await;
        equal_results("act in bulk", engine, reference).map(|_| ())
    }

    async fn compare(&self) -> Outcome {
        for worker in &self.workers {
            let engine = unexpected("cancellations", self.engine().cancellations(worker.id).await)?;
            let reference = unexpected("cancellations", self.reference.cancellations(worker.id).await)?;
            equal("cancellations", &sorted(engine), &sorted(reference))?;
        }
        let engine = unexpected("list", look(&**self.engine()).await)?;
        let reference = unexpected("list", look(&self.reference).await)?;
        for (id, seen) in &engine {
            equal(&format!("job {id}"), &Some(seen), &reference.get(id))?;
        }
        equal("jobs", &engine.len(), &reference.len())?;
        let engine = unexpected("stats", self.engine().stats().await)?;
        let reference = unexpected("stats", self.reference.stats().await)?;
        equal("figures", &figures(engine), &figures(reference))?;
        let report = unexpected("check", self.engine().check(CheckOptions::default()).await)?;
        equal("violations", &report.violations, &Vec::new())?;
        let report = unexpected("check", self.reference.check(CheckOptions::default()).await)?;
        equal("violations of the reference", &report.violations, &Vec::new())
    }
}

/// A job as it can be seen from outside, without instants.
#[derive(Debug, PartialEq)]
struct Seen {
    place: (Room, Option<String>, Option<String>, Option<DeadReason>),
    queue: QueueName,
    task: TaskName,
    priority: Priority,
    counts: (u32, u32),
    expires: bool,
    payload: Vec<u8>,
    history: Vec<(AttemptKind, u32, String, String)>,
}

impl Seen {
    fn new(details: Details) -> Self {
        let job = details.job;
        let history = job.extras.history.into_iter();
        Self {
            place: (details.room, details.held_by, details.waits_for, details.reason),
            queue: job.queue,
            task: job.task,
            priority: job.priority,
            counts: (job.attempt, job.deliveries),
            expires: job.expires_at.is_some(),
            payload: job.payload.as_bytes().to_vec(),
            history: history.map(|entry| (entry.kind, entry.number, entry.worker, entry.error)).collect(),
        }
    }
}

/// Every job of a store.
async fn look(broker: &dyn Broker) -> Result<BTreeMap<JobId, Seen>> {
    let mut all = BTreeMap::new();
    for room in Room::ALL {
        let mut page = PageOptions::default();
        page.limit = PageOptions::MAX_LIMIT;
        loop {
            let Page { jobs, next, .. } = broker.list(Filter::room(room), page.clone()).await?;
            for details in jobs {
                let id = details.job.id;
                if all.insert(id, Seen::new(details)).is_some() {
                    return Err(Error::corrupt("a listing", format!("job {id} is listed twice")));
                }
            }
            page.after = next;
            if page.after.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

async fn act_in_steps(
    broker: &dyn Broker,
    filter: &Filter,
    act: &BulkAct,
    limit: usize,
) -> Result<Vec<JobId>> {
    let mut options = BulkOptions::default();
    options.limit = limit;
    let mut all = Vec::new();
    loop {
        let page = broker.bulk(filter.clone(), act.clone(), options.clone()).await?;
        all.extend(page.jobs.iter().map(|details| details.job.id));
        options.after = page.next;
        if options.after.is_none() {
            return Ok(sorted(all));
        }
    }
}

/// The figures without ages.
fn figures(mut stats: Stats) -> impl Debug + PartialEq {
    for queue in &mut stats.queues {
        queue.oldest_due = queue.oldest_due.map(|_| Duration::ZERO);
    }
    let mut workers: Vec<(WorkerId, String)> =
        stats.workers.into_iter().map(|worker| (worker.id, worker.label)).collect();
    workers.sort_unstable();
    (stats.queues, stats.parked, workers)
}

fn change(setting: Setting) -> QueueChange {
    let mut change = QueueChange::default();
    match setting {
        Setting::DeliveryLimit(limit) => change.delivery_limit = Some(limit),
        Setting::DropExpired(drop) => {
            change.on_expire = Some(if drop { OnExpire::Drop } else { OnExpire::Bury });
        }
        Setting::Length(limit) => change.max_length = Some(limit),
        Setting::Pause(pause) => change.paused = Some(if pause { Paused::Yes } else { Paused::No }),
        Setting::Retention(short) => change.dead_retention = Some(short.then_some(Duration::ZERO)),
    }
    change
}

fn verdict(word: Word) -> Verdict {
    let rejected =
        |reason, kind, error: &str| Verdict::Reject { reason, failure: Some(Failure::new(kind, error)) };
    match word {
        Word::Cancel => Verdict::Cancel,
        Word::Done => Verdict::Done,
        Word::Exhausted => rejected(DeadReason::RetriesExhausted, AttemptKind::Failed, "again"),
        Word::Park => Verdict::Park,
        Word::Reject => rejected(DeadReason::Rejected, AttemptKind::Rejected, "no"),
        Word::Release => Verdict::Release,
        Word::RetryLater => Verdict::Retry { after: HOURS, failure: Failure::failed("later") },
        Word::RetryNow => Verdict::Retry { after: Duration::ZERO, failure: Failure::failed("now") },
        Word::SnoozeLater => Verdict::Snooze { after: HOURS },
        Word::SnoozeNow => Verdict::Snooze { after: Duration::ZERO },
        Word::Undecodable => rejected(DeadReason::Undecodable, AttemptKind::Undecodable, "bytes"),
    }
}

fn equal<T: Debug + PartialEq>(what: &str, engine: &T, reference: &T) -> Outcome {
    if engine == reference {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{what} differs:\n  engine:    {engine:?}\n  reference: {reference:?}")))
}

/// Equal answers, or errors of the same code. Gives the answer, if it was one.
fn equal_results<T: Debug + PartialEq>(
    what: &str,
    engine: Result<T>,
    reference: Result<T>,
) -> Outcome<Option<T>> {
    let code = |error: Error| error.code().as_str();
    let (engine, reference) = (engine.map_err(code), reference.map_err(code));
    equal(what, &engine, &reference)?;
    Ok(engine.ok())
}

/// The answer of a call that must not fail.
fn unexpected<T>(what: &str, answer: Result<T>) -> Outcome<T> {
    answer.map_err(|error| TestCaseError::fail(format!("{what} failed: {}", error.full())))
}

fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).unwrap_or_else(|error| panic!("{error}"))
}

fn sorted(mut ids: Vec<JobId>) -> Vec<JobId> {
    ids.sort_unstable();
    ids
}

fn task_name() -> TaskName {
    TaskName::new("work").unwrap_or_else(|error| panic!("{error}"))
}
