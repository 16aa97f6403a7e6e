use std::any::Any;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::id::{ClaimId, JobId, WorkerId};
use crate::inspect::{
    BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, Details, Filter, Finished, Page, PageOptions,
    Stats,
};
use crate::job::{Job, NewJob};
use crate::name::{QueueName, TaskName};
use crate::queue::{Declared, QueueChange};
use crate::sample::{SampleOptions, Sampled};
use crate::task::TaskInfo;
use crate::time::Timestamp;
use crate::transaction::Transactions;
use crate::verdict::Verdict;

/// A future that an object-safe trait can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store and the rules on it.
///
/// # Contract
/// * A job is in exactly one room. Every move is one transaction: no observer sees a part of it.
/// * [`claim`](Broker::claim) hands a job to at most one holder. [`settle`](Broker::settle) is fenced: a verdict
///   for a claim that is gone changes nothing.
/// * All instants are those of the store's own clock; callers pass durations.
/// * When a call returns `Ok`, enqueues and verdicts are as durable as the store makes them. Claims may be
///   lost in a crash of the store: that is a redelivery.
/// * Every call has a deadline and ends in a typed [`Error`](crate::Error).
/// * `Display` gives the store's address without secrets.
///
/// Every implementation passes the conformance suite in `celeriac-testkit`. The trait is not sealed, but it
/// may gain methods in any minor version.
///
/// What only one engine can do (store a job in a transaction of its database) is a method of its own type: a
/// `&dyn Broker` is a `&dyn Any`, which can be asked for it.
pub trait Broker: Any + Debug + Display + Send + Sync + 'static {
    /// Stores jobs, all of them or none.
    ///
    /// # Errors
    /// `NoSuchQueue`, `QueueFull`, `PayloadTooLarge`, `Invalid`; nothing is stored then.
    fn enqueue(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> BoxFuture<'_, Result<Vec<Enqueued>>>;

    /// Hands out at most `limit` jobs that are due, none of them to two holders.
    ///
    /// Parked jobs of these queues whose task this worker knows come first, then at most one suspect of a crash
    /// (if asked for), then each queue in the order given: its highest lane first, within a lane first in, first
    /// out. Jobs whose time to live has passed are moved to the bin on the way; scheduled jobs that are due may be
    /// moved to their queues first.
    ///
    /// A claim that ends in an error has handed out nothing, or the engine gives back by itself what it took, at
    /// the latest before the worker's next claim: the caller has no receipts for it, and while it renews its
    /// lease nobody else would ever get those jobs. Callers wait for the answer, unless they end the worker too.
    ///
    /// # Errors
    /// `LeaseLost` if the worker is not registered (any more); `NoSuchQueue` for a queue that nobody declared.
    fn claim(&self, options: ClaimOptions) -> BoxFuture<'_, Result<Vec<Claimed>>>;

    /// Marks held jobs as never to be delivered again, before they run: at most once.
    ///
    /// Returns for each receipt whether the job is still held; one that is not must not be run.
    fn acknowledge(&self, worker: WorkerId, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Holding>>>;

    /// Writes verdicts back, all in one transaction. The answer has one entry for each verdict.
    fn settle(&self, worker: WorkerId, verdicts: Vec<Settlement>) -> BoxFuture<'_, Result<Vec<Settled>>>;

    /// Returns when one of the queues may have something to claim that was not there at the last claim through
    /// this value, or after `options.limit`. A hint: it may return early, and callers claim again anyway.
    fn wait(&self, options: WaitOptions) -> BoxFuture<'_, Result<()>>;

    /// Announces a worker and starts its lease.
    fn register(&self, worker: WorkerInfo) -> BoxFuture<'_, Result<()>>;

    /// Renews the lease of a worker. Must not wait behind other calls of the same process.
    fn renew(&self, worker: WorkerId, lease: Duration) -> BoxFuture<'_, Result<Renewal>>;

    /// Ends a worker in order. What it still holds is treated as after a lost lease, without the wait.
    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<()>>;

    /// The ids among the jobs that `worker` holds whose cancellation was asked for.
    fn cancellations(&self, worker: WorkerId) -> BoxFuture<'_, Result<Vec<JobId>>>;

    /// One bounded round of the duties that any process may do at any time: move due jobs to their queues,
    /// rescue the jobs of dead workers, expire, prune.
    fn maintain(&self, options: MaintainOptions) -> BoxFuture<'_, Result<Maintenance>>;

    /// Creates a queue, or changes its settings if it exists.
    fn declare(&self, queue: QueueName, change: QueueChange) -> BoxFuture<'_, Result<Declared>>;

    /// One job, in whichever room it is; `None` if it is finished or never was.
    fn find(&self, id: JobId) -> BoxFuture<'_, Result<Option<Details>>>;

    /// When and by whom a job was done, if its queue keeps a [history](crate::QueueSettings::history) and it was no longer
    /// ago than that. Default: the store remembers nothing.
    fn finished(&self, id: JobId) -> BoxFuture<'_, Result<Option<Finished>>> {
        let _ = id;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Jobs of one room, oldest first, by pages.
    fn list(&self, filter: Filter, page: PageOptions) -> BoxFuture<'_, Result<Page>>;

    /// Removes a job that waits; asks for the cancellation of one that is held.
    fn cancel(&self, id: JobId) -> BoxFuture<'_, Result<Cancelled>>;

    /// One bounded step of an operator's act on all jobs that match. Held jobs are left alone.
    fn bulk(&self, filter: Filter, act: BulkAct, options: BulkOptions) -> BoxFuture<'_, Result<Page>>;

    /// Queues and workers with their figures, at a cost that does not depend on the number of jobs.
    fn stats(&self) -> BoxFuture<'_, Result<Stats>>;

    /// The figures that the store keeps of itself, at most `options.max_age` old.
    ///
    /// Of all who ask at a moment, one takes them anew if need be; the others read one row. While it is at work they may
    /// get the sample before.
    fn sample(&self, options: SampleOptions) -> BoxFuture<'_, Result<Sampled>>;

    /// Every task that a worker ever announced, by name.
    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskInfo>>>;

    /// How handlers write in the transaction that settles their job, if this store can do that. Default: it cannot.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// Proves the store's invariants by looking at every job. Safe on a live store; as slow as the store is
    /// large.
    fn check(&self, options: CheckOptions) -> BoxFuture<'_, Result<CheckReport>>;
}

/// How to enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueOptions {
    /// The largest payload in bytes. Default 1 MiB: a queue moves each payload several times, and larger data
    /// belongs in a store made for it.
    pub max_payload: usize,
    /// Declare a missing queue instead of refusing. Default: refuse, since a typing error would otherwise
    /// collect jobs that nobody runs.
    pub declare_missing: bool,
}

impl Default for EnqueueOptions {
    fn default() -> Self {
        Self { max_payload: 1024 * 1024, declare_missing: false }
    }
}

/// What an enqueue did with one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A job of this id was enqueued before; nothing was stored.
    Existed(JobId),
    /// Stored.
    New(JobId),
}

impl Enqueued {
    /// The job's id, stored now or earlier.
    pub const fn id(self) -> JobId {
        match self {
            Self::Existed(id) | Self::New(id) => id,
        }
    }
}

/// What to claim.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimOptions {
    /// For whom. Must be registered.
    pub worker: WorkerId,
    /// From where, in this order; what the shares leave free goes to the queues in the same order.
    pub queues: Vec<QueueShare>,
    /// The most jobs.
    pub limit: usize,
    /// The most payload bytes; the first job comes whatever its size. Default 8 MiB: it bounds the memory of a
    /// worker whatever its prefetch.
    pub max_bytes: usize,
    /// Whether this worker may take a job that was in the hands of a worker when that died.
    pub suspects: Suspects,
    /// The tasks that this worker knows, for parked jobs.
    pub tasks: Arc<[TaskName]>,
}

impl ClaimOptions {
    /// Up to `limit` jobs from `queues` in strict order.
    pub fn new(worker: WorkerId, queues: impl IntoIterator<Item = QueueName>, limit: usize) -> Self {
        Self {
            worker,
            queues: queues.into_iter().map(|name| QueueShare { name, share: limit }).collect(),
            limit,
            max_bytes: 8 * 1024 * 1024,
            suspects: Suspects::Take,
            tasks: Arc::from([]),
        }
    }
}

/// A queue and how many jobs of one claim it may give before the others had their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueShare {
    /// Which queue.
    pub name: QueueName,
    /// The most jobs in the first round.
    pub share: usize,
}

/// Whether a claim may take one suspect of a crash.
///
/// A worker holds at most one at a time, so that when it dies again only the culprit and fresh neighbours
/// are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspects {
    /// None: this worker has one in hand.
    Leave,
    /// At most one, in a claim of its own.
    Take,
}

/// A job in the hands of a worker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Claimed {
    /// The job as it is stored.
    pub job: Job,
    /// What verdicts must carry.
    pub receipt: Receipt,
    /// When it was handed out, by the store's clock. For figures only: an engine may know it to the second.
    pub claimed_at: Timestamp,
}

impl Claimed {
    /// For engines.
    pub const fn new(job: Job, receipt: Receipt, claimed_at: Timestamp) -> Self {
        Self { job, receipt, claimed_at }
    }

    /// Whether it was in the hands of a worker that died, and has had no verdict since.
    pub const fn is_suspect(&self) -> bool {
        self.receipt.lane == Receipt::SUSPECTS
    }
}

/// Proof that a job was handed out: the claim, and the job's place in the store at that time. Opaque to all
/// but the engine that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The claim.
    pub claim: ClaimId,
    /// The engine's number of the queue.
    pub queue: i32,
    /// The lane.
    pub lane: i16,
    /// The place within queue and lane. Changes whenever the job is redelivered.
    pub seq: i64,
}

impl Receipt {
    /// The lane of the suspects of a crash, in every engine. Lanes 0 to 9 are the priorities.
    pub const SUSPECTS: i16 = 10;
}

/// Whether a job is still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holding {
    /// By this worker.
    Held,
    /// No more: the claim is gone. Do not run the job.
    Lost,
}

/// A verdict for one held job.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// Which delivery.
    pub receipt: Receipt,
    /// What becomes of the job.
    pub verdict: Verdict,
}

/// What a verdict did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It was carried out.
    Applied,
    /// The claim or the job's place is gone: the job was given to another worker. Nothing was changed.
    Stale,
}

/// What to wait for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitOptions {
    /// Any of these queues.
    pub queues: Vec<QueueName>,
    /// At the longest.
    pub limit: Duration,
    /// Whether a suspect of a crash counts as something to claim.
    pub suspects: Suspects,
}

impl WaitOptions {
    /// Waits for any of `queues`, at the longest `limit`.
    pub fn new(queues: impl IntoIterator<Item = QueueName>, limit: Duration) -> Self {
        Self { queues: queues.into_iter().collect(), limit, suspects: Suspects::Take }
    }
}

/// A worker as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its identity: random, new at each start.
    pub id: WorkerId,
    /// For people: `host:pid`.
    pub label: String,
    /// The queues that it serves.
    pub queues: Vec<QueueName>,
    /// The tasks that it knows. The store remembers them after the worker is gone.
    pub tasks: Vec<TaskInfo>,
    /// How many handlers it runs at once.
    pub concurrency: u32,
    /// How long it may be silent before it is taken for dead.
    pub lease: Duration,
}

impl WorkerInfo {
    /// A worker that serves `queues` and can be silent for `lease`.
    pub fn new(
        id: WorkerId,
        label: impl Into<String>,
        queues: impl IntoIterator<Item = QueueName>,
        lease: Duration,
    ) -> Self {
        Self {
            id,
            label: label.into(),
            queues: queues.into_iter().collect(),
            tasks: Vec::new(),
            concurrency: 1,
            lease,
        }
    }
}

/// What a renewal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease holds for another period.
    Held,
    /// The worker was declared dead, or never registered. Its jobs went to others.
    Lost,
}

/// How to maintain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintainOptions {
    /// The most jobs that each duty moves in this round. Default 1,000: a few tens of milliseconds under the
    /// store's lock.
    pub limit: usize,
}

impl Default for MaintainOptions {
    fn default() -> Self {
        Self { limit: 1_000 }
    }
}

/// What one round of maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintenance {
    /// Due jobs moved to their queues.
    pub promoted: u64,
    /// Workers found dead.
    pub dead_workers: u64,
    /// Jobs taken back from dead workers, to be delivered again.
    pub redelivered: u64,
    /// Jobs taken back from dead workers that went to the bin.
    pub buried: u64,
    /// Jobs whose time to live had passed.
    pub expired: u64,
    /// Dead jobs removed after their queue's retention.
    pub pruned: u64,
    /// Jobs that nothing led to any more and that were given back to their queues. That happens by an error of ours, or
    /// after something had held back the store's oldest transaction for hours.
    pub mended: u64,
    /// Whether a duty stopped at its limit: call again at once.
    pub more: bool,
    /// Time until the next scheduled job is due.
    pub next_due: Option<Duration>,
}
