use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use celeriac_core::{
    BoxFuture, Broker, BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, ClaimOptions, Claimed,
    Declared, Details, EnqueueOptions, Enqueued, Error, Filter, Finished, Holding, JobId, MaintainOptions,
    Maintenance, NewJob, Page, PageOptions, QueueChange, QueueName, Receipt, Renewal, Result, SampleOptions,
    Sampled, Settled, Settlement, Stats, TaskInfo, WaitOptions, WorkerId, WorkerInfo,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::clock::{Clock, ManualClock};
use store::Store;

mod dispatch;
mod inspection;
mod store;

/// The whole [`Broker`] contract in memory: one lock, ordered maps, no cleverness.
///
/// It is what engines are compared with, so it is written to be read and not to be fast. A clone of a handle, made
/// with [`ReferenceBroker::handle`], stands for a further process on the same store.
#[derive(Debug)]
pub struct ReferenceBroker {
    shared: Arc<Shared>,
    /// How many jobs had been parked at the last claim through this handle.
    parkings_seen: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    clock: Clock,
    /// Told after every call that may have made something claimable.
    changed: Notify,
    out: AtomicBool,
}

/// Whether a [`ReferenceBroker`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Every call fails with `Unavailable` and changes nothing.
    Begins,
    /// Calls work again.
    Ends,
}

impl ReferenceBroker {
    /// An empty store with the queue `default`, on the system's clock.
    pub fn new() -> Self {
        Self::on(Clock::Real)
    }

    /// An empty store whose time is moved by `clock` alone. The limit of [`Broker::wait`] stays real time.
    pub fn with_clock(clock: ManualClock) -> Self {
        Self::on(Clock::Manual(clock))
    }

    /// A further handle on the same store.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), parkings_seen: AtomicU64::new(0) }
    }

    /// Starts or ends a time in which the store answers nobody, for all handles.
    pub fn outage(&self, outage: Outage) {
        self.shared.out.store(outage == Outage::Begins, Ordering::SeqCst);
        self.shared.changed.notify_waiters();
    }

    /// Claims as another engine did: where jobs have no order among them, the order of `like` holds.
    pub(crate) fn claim_like(&self, options: &ClaimOptions, like: &[JobId]) -> Result<Vec<Claimed>> {
        let mut store = self.store("claim jobs")?;
        self.parkings_seen.store(store.parkings, Ordering::SeqCst);
        store.begin_moment();
        store.claim(options, like, self.shared.clock.now())
    }

    fn on(clock: Clock) -> Self {
        let shared = Shared {
            store: Mutex::new(Store::new()),
            clock,
            changed: Notify::new(),
            out: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), parkings_seen: AtomicU64::new(0) }
    }

    fn store(&self, operation: &'static str) -> Result<MutexGuard<'_, Store>> {
        if self.shared.out.load(Ordering::SeqCst) {
            return Err(Error::Unavailable {
                store: self.to_string(),
                operation,
                source: "an outage was asked for".into(),
            });
        }
        // Only a panic of ours can poison the lock, and the test that caused it has failed already.
        Ok(self.shared.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs one call under the lock and wakes those who wait.
    fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut Store, celeriac_core::Timestamp) -> Result<T> + Send,
    ) -> BoxFuture<'static, Result<T>> {
        let answer = self.store(operation).and_then(|mut store| {
            store.begin_moment();
            act(&mut store, self.shared.clock.now())
        });
        self.shared.changed.notify_waiters();
        Box::pin(std::future::ready(answer))
    }
}

impl Default for ReferenceBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for ReferenceBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reference::memory:")
    }
}

impl Broker for ReferenceBroker {
    fn enqueue(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> BoxFuture<'_, Result<Vec<Enqueued>>> {
        self.change("enqueue", |store, now| store.enqueue(jobs, &options, now))
    }

    fn claim(&self, options: ClaimOptions) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        Box::pin(std::future::ready(self.claim_like(&options, &[])))
    }

    fn acknowledge(&self, worker: WorkerId, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Holding>>> {
        self.change("acknowledge jobs", |store, _| Ok(store.acknowledge(worker, &receipts)))
    }

    fn settle(&self, worker: WorkerId, verdicts: Vec<Settlement>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        self.change("settle jobs", |store, now| Ok(store.settle(worker, verdicts, now)))
    }

    fn wait(&self, options: WaitOptions) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let deadline = Instant::now() + options.limit;
            loop {
                let mut changed = std::pin::pin!(self.shared.changed.notified());
                // Listens from here on, so that a change between the look and the wait is not missed.
                changed.as_mut().enable();
                {
                    let store = self.store("wait for jobs")?;
                    let parked = store.parkings != self.parkings_seen.load(Ordering::SeqCst);
                    if parked || store.may_claim(&options) {
                        return Ok(());
                    }
                }
                if timeout_at(deadline, changed).await.is_err() {
                    return Ok(());
                }
            }
        })
    }

    fn register(&self, worker: WorkerInfo) -> BoxFuture<'_, Result<()>> {
        self.change("register a worker", |store, now| {
            store.register(worker, now);
            Ok(())
        })
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> BoxFuture<'_, Result<Renewal>> {
        self.change("renew a lease", |store, now| Ok(store.renew(worker, lease, now)))
    }

    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        self.change("retire a worker", |store, now| {
            store.retire(worker, now);
            Ok(())
        })
    }

    fn cancellations(&self, worker: WorkerId) -> BoxFuture<'_, Result<Vec<JobId>>> {
        self.change("look for cancellations", |store, _| Ok(store.cancellations(worker)))
    }

    fn maintain(&self, options: MaintainOptions) -> BoxFuture<'_, Result<Maintenance>> {
        self.change("maintain", |store, now| Ok(store.maintain(&options, now)))
    }

    fn declare(&self, queue: QueueName, change: QueueChange) -> BoxFuture<'_, Result<Declared>> {
        self.change("declare a queue", |store, _| store.declare(queue, &change))
    }

    fn finished(&self, id: JobId) -> BoxFuture<'_, Result<Option<Finished>>> {
        self.change("look for a finished job", move |store, now| Ok(store.finished(id, now)))
    }

    fn find(&self, id: JobId) -> BoxFuture<'_, Result<Option<Details>>> {
        self.change("find a job", |store, _| Ok(store.find(id)))
    }

    fn list(&self, filter: Filter, page: PageOptions) -> BoxFuture<'_, Result<Page>> {
        self.change("list jobs", |store, now| store.list(&filter, &page, now))
    }

    fn cancel(&self, id: JobId) -> BoxFuture<'_, Result<Cancelled>> {
        self.change("cancel a job", |store, _| Ok(store.cancel(id)))
    }

    fn bulk(&self, filter: Filter, act: BulkAct, options: BulkOptions) -> BoxFuture<'_, Result<Page>> {
        self.change("act on jobs", |store, now| store.bulk(&filter, &act, &options, now))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.change("read the figures", |store, now| Ok(store.stats(now)))
    }

    fn sample(&self, options: SampleOptions) -> BoxFuture<'_, Result<Sampled>> {
        self.change("take a sample", move |store, now| Ok(store.sample(&options, now)))
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskInfo>>> {
        self.change("list tasks", |store, _| Ok(store.known_tasks()))
    }

    fn check(&self, options: CheckOptions) -> BoxFuture<'_, Result<CheckReport>> {
        self.change("check the store", |store, _| Ok(store.check(&options)))
    }
}
