//! What the cases share: a store, and short ways to say what happens on it.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, BulkAct, BulkOptions, CheckOptions, ClaimOptions, Claimed, DeadReason, Declared, Details,
    EnqueueOptions, Enqueued, Error, Failure, Filter, Idempotency, JobId, MaintainOptions, Maintenance,
    NewJob, PageOptions, Payload, QueueChange, QueueName, QueueStats, Room, Settled, Settlement, TaskInfo,
    TaskName, TaskSpec, Verdict, WorkerId, WorkerInfo,
};
use uuid::Uuid;

/// Longer than any test runs.
pub(crate) const HOURS: Duration = Duration::from_secs(10 * 3600);

/// How long a case waits for something that must happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// A fresh store with two handles on it.
#[derive(Debug)]
pub struct Scene {
    /// A handle.
    pub broker: Arc<dyn Broker>,
    /// Another one, as another process has it.
    pub other: Arc<dyn Broker>,
    made: AtomicU64,
}

impl Scene {
    /// A scene on a store.
    pub fn new(broker: Arc<dyn Broker>, other: Arc<dyn Broker>) -> Self {
        Self { broker, other, made: AtomicU64::new(0) }
    }

    /// A job of the task `work` for `queue` that is not stored yet.
    pub fn job(&self, queue: &str) -> NewJob {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let payload = Payload::from_json(&format!("{{\"n\": {number}}}")).unwrap();
        NewJob::new(fresh_id(), queue_name(queue), task_name("work"), payload)
    }

    /// The same with the wish to be remembered.
    pub fn idempotent_job(&self, queue: &str) -> NewJob {
        let mut job = self.job(queue);
        job.idempotency = Idempotency::ById;
        job
    }

    /// Declares queues with default settings.
    pub async fn declare(&self, names: &[&str]) {
        for name in names {
            self.change(name, QueueChange::default()).await;
        }
    }

    /// Declares a queue, or changes its settings.
    pub async fn change(&self, name: &str, change: QueueChange) -> Declared {
        self.broker.declare(queue_name(name), change).await.unwrap()
    }

    /// Stores jobs that must all be new.
    pub async fn put(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let answers = self.broker.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
        assert_eq!(answers, ids.iter().map(|id| Enqueued::New(*id)).collect::<Vec<_>>());
        ids
    }

    /// Stores jobs that must be refused.
    pub async fn refused(&self, jobs: Vec<NewJob>) -> Error {
        self.broker.enqueue(jobs, EnqueueOptions::default()).await.unwrap_err()
    }

    /// Stores `count` plain jobs in one batch.
    pub async fn fill(&self, queue: &str, count: usize) -> Vec<JobId> {
        self.put((0..count).map(|_| self.job(queue)).collect()).await
    }

    /// Stores one plain job in `default`.
    pub async fn put_one(&self) -> JobId {
        self.fill("default", 1).await[0]
    }

    /// Registers a worker that will live long enough.
    pub async fn worker(&self) -> WorkerId {
        self.worker_with("host:1", HOURS, &[]).await
    }

    /// Registers a worker.
    pub async fn worker_with(&self, label: &str, lease: Duration, tasks: &[&str]) -> WorkerId {
        let id = WorkerId::from_uuid(Uuid::new_v4());
        let mut info = WorkerInfo::new(id, label, [QueueName::default_queue()], lease);
        info.tasks =
            tasks.iter().map(|name| TaskInfo::new(&TaskSpec::new(task_name(name)), Vec::new())).collect();
        self.broker.register(info).await.unwrap();
        id
    }

    /// Claims from `default`, suspects too.
    pub async fn claim(&self, worker: WorkerId, limit: usize) -> Vec<Claimed> {
        self.claim_from(worker, &["default"], limit).await
    }

    /// Claims in strict order.
    pub async fn claim_from(&self, worker: WorkerId, queues: &[&str], limit: usize) -> Vec<Claimed> {
        self.broker.claim(claim_options(worker, queues, limit)).await.unwrap()
    }

    /// Claims one job, which must be there.
    pub async fn claim_one(&self, worker: WorkerId) -> Claimed {
        let mut claimed = self.claim(worker, 1).await;
        assert_eq!(claimed.len(), 1, "one job is claimed");
        claimed.remove(0)
    }

    /// Writes one verdict back.
    pub async fn settle(&self, worker: WorkerId, claimed: &Claimed, verdict: Verdict) -> Settled {
        let answers = self.settle_all(worker, std::slice::from_ref(claimed), &verdict).await;
        assert_eq!(answers.len(), 1, "one answer for each verdict");
        answers[0]
    }

    /// Writes the same verdict back for several jobs, in one call.
    pub async fn settle_all(&self, worker: WorkerId, claimed: &[Claimed], verdict: &Verdict) -> Vec<Settled> {
        let verdicts =
            claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: verdict.clone() }).collect();
        self.broker.settle(worker, verdicts).await.unwrap()
    }

    /// Writes one verdict back that must be carried out.
    pub async fn apply(&self, worker: WorkerId, claimed: &Claimed, verdict: Verdict) {
        assert_eq!(self.settle(worker, claimed, verdict).await, Settled::Applied);
    }

    /// Stores a job in `default` and sends it to the bin as rejected with `error`.
    pub async fn bury_one(&self, worker: WorkerId, job: NewJob, error: &str) -> JobId {
        let queue = job.queue.clone();
        let id = self.put(vec![job]).await[0];
        let claimed = self.claim_from(worker, &[queue.as_str()], 1).await;
        assert_eq!(ids(&claimed), [id]);
        self.apply(worker, &claimed[0], reject(error)).await;
        id
    }

    /// One job, wherever it is.
    pub async fn find(&self, id: JobId) -> Option<Details> {
        self.broker.find(id).await.unwrap()
    }

    /// One job that must exist.
    pub async fn details(&self, id: JobId) -> Details {
        self.find(id).await.unwrap_or_else(|| panic!("job {id} is gone"))
    }

    /// The room of a job.
    pub async fn room(&self, id: JobId) -> Option<Room> {
        self.find(id).await.map(|details| details.room)
    }

    /// One round of maintenance.
    pub async fn maintain(&self) -> Maintenance {
        self.broker.maintain(MaintainOptions::default()).await.unwrap()
    }

    /// Maintains until all that `done` waits for has happened; gives the sum of all rounds.
    pub async fn maintain_until(&self, what: &str, done: impl Fn(&Maintenance) -> bool) -> Maintenance {
        let started = Instant::now();
        let mut total = Maintenance::default();
        loop {
            let round = self.maintain().await;
            total.promoted += round.promoted;
            total.dead_workers += round.dead_workers;
            total.redelivered += round.redelivered;
            total.buried += round.buried;
            total.expired += round.expired;
            total.pruned += round.pruned;
            if done(&total) && !round.more {
                return total;
            }
            assert!(started.elapsed() < DEADLINE, "waited in vain for: {what}; so far {total:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until a worker with a short lease was declared dead.
    pub async fn rescue(&self) -> Maintenance {
        self.maintain_until("a dead worker", |total| total.dead_workers > 0).await
    }

    /// One step of an act, with the default size.
    pub async fn bulk(&self, filter: Filter, act: BulkAct) -> Vec<JobId> {
        let page = self.broker.bulk(filter, act, BulkOptions::default()).await.unwrap();
        page.jobs.iter().map(|details| details.job.id).collect()
    }

    /// All jobs of a room, by pages of `size`.
    pub async fn list_all(&self, filter: &Filter, size: usize) -> Vec<Details> {
        let mut page = PageOptions::default();
        page.limit = size;
        let mut all = Vec::new();
        loop {
            let answer = self.broker.list(filter.clone(), page.clone()).await.unwrap();
            assert!(answer.jobs.len() <= size, "a page holds no more than was asked for");
            all.extend(answer.jobs);
            assert!(answer.next.is_none() || answer.next != page.after, "a page leads onwards");
            page.after = answer.next;
            if page.after.is_none() {
                return all;
            }
        }
    }

    /// The figures of one queue.
    pub async fn figures(&self, queue: &str) -> QueueStats {
        let stats = self.broker.stats().await.unwrap();
        let found = stats.queues.into_iter().find(|figures| figures.name.as_str() == queue);
        found.unwrap_or_else(|| panic!("no figures of queue {queue}"))
    }

    /// Asserts that nothing is broken, and that the figures are what counting gives. Every case ends with it.
    pub async fn sound(&self) {
        let report = self.broker.check(CheckOptions::default()).await.unwrap();
        assert!(report.violations.is_empty(), "violations: {:#?}", report.violations);
        let stats = self.broker.stats().await.unwrap();
        let mut counted: BTreeMap<(QueueName, &str), u64> = BTreeMap::new();
        let mut present = 0;
        for room in Room::ALL {
            for details in self.list_all(&Filter::room(room), 1_000).await {
                let kind = if details.held_by.is_some() { "held" } else { room.as_str() };
                *counted.entry((details.job.queue, kind)).or_default() += 1;
                present += 1;
            }
        }
        let count = |queue: &QueueName, kind| counted.get(&(queue.clone(), kind)).copied().unwrap_or(0);
        let (mut stored, mut gone) = (0, 0);
        for queue in &stats.queues {
            let name = &queue.name;
            assert_eq!(queue.ready, count(name, "jobs"), "ready in {name}");
            assert_eq!(queue.held, count(name, "held"), "held in {name}");
            assert_eq!(queue.scheduled, count(name, "scheduled"), "scheduled in {name}");
            assert_eq!(queue.parked, count(name, "parked"), "parked in {name}");
            assert_eq!(queue.dead, count(name, "dead"), "dead in {name}");
            stored += queue.enqueued;
            gone += queue.done + queue.cancelled + queue.dropped;
        }
        assert_eq!(stored, gone + present, "every job that was stored is there, or was counted when it went");
        assert_eq!(report.jobs, present, "the check looked at every job");
    }
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// When there is none within a minute.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn claim_options(worker: WorkerId, queues: &[&str], limit: usize) -> ClaimOptions {
    ClaimOptions::new(worker, queues.iter().map(|name| queue_name(name)), limit)
}

pub(crate) fn fresh_id() -> JobId {
    JobId::from_uuid(Uuid::now_v7())
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.job.id).collect()
}

pub(crate) fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn reject(error: &str) -> Verdict {
    Verdict::Reject { reason: DeadReason::Rejected, failure: Some(rejection(error)) }
}

pub(crate) fn rejection(error: &str) -> Failure {
    Failure::new(celeriac_core::AttemptKind::Rejected, error)
}

pub(crate) fn retry(after: Duration, error: &str) -> Verdict {
    Verdict::Retry { after, failure: Failure::failed(error) }
}

pub(crate) fn task_name(name: &str) -> TaskName {
    TaskName::new(name).unwrap()
}
