//! A broker that counts what goes through it, and fails where a test says so.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use celeriac_core::{
    BoxFuture, Broker, BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, ClaimOptions, Claimed,
    Declared, Details, EnqueueOptions, Enqueued, Error, Filter, Holding, JobId, MaintainOptions, Maintenance,
    NewJob, Page, PageOptions, QueueChange, QueueName, Receipt, Renewal, Result, SampleOptions, Sampled,
    Settled, Settlement, Stats, Suspects, TaskInfo, Verdict, WaitOptions, WorkerId, WorkerInfo,
};
use celeriac_testkit::ReferenceBroker;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::probe::LIMIT;

pub(crate) struct WatchedBroker {
    inner: ReferenceBroker,
    seen: Mutex<Seen>,
    changed: Notify,
    faults: Mutex<Option<Fault>>,
}

/// What went through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) registered: Vec<WorkerId>,
    pub(crate) retired: Vec<WorkerId>,
    pub(crate) renewals: usize,
    pub(crate) maintained: usize,
    pub(crate) acknowledged: usize,
    /// Limit, suspects and answer of each claim that worked.
    pub(crate) claims: Vec<(usize, Suspects, usize)>,
    pub(crate) claimed: usize,
    pub(crate) verdicts: Vec<Verdict>,
    /// Calls that a fault made fail.
    pub(crate) failed: usize,
    /// The most jobs in the worker's hands at one moment.
    pub(crate) most_in_hand: usize,
    pub(crate) waits: usize,
}

impl Seen {
    pub(crate) fn count(&self, verdict: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.iter().filter(|seen| verdict(seen)).count()
    }
}

/// A call that may be made to fail.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    Acknowledge,
    Claim,
    Register,
    Renew,
    Settle(&'a [Settlement]),
}

/// What happens to a call.
#[derive(Debug)]
pub(crate) enum Act {
    /// It is carried out, and its answer is lost.
    Forget(Error),
    /// It is not carried out.
    Refuse(Error),
    Pass,
}

type Fault = Box<dyn FnMut(&Request<'_>) -> Act + Send>;

impl WatchedBroker {
    pub(crate) fn new(inner: ReferenceBroker) -> Arc<Self> {
        Arc::new(Self { inner, seen: Mutex::default(), changed: Notify::new(), faults: Mutex::default() })
    }

    pub(crate) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// From now on `fault` decides about each request.
    pub(crate) fn fault(&self, fault: impl FnMut(&Request<'_>) -> Act + Send + 'static) {
        *self.faults.lock().unwrap() = Some(Box::new(fault));
    }

    pub(crate) fn no_faults(&self) {
        *self.faults.lock().unwrap() = None;
    }

    pub(crate) async fn wait_for(&self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if condition(&self.lock()) {
                    return;
                }
                changed.await;
            }
        };
        if timeout(LIMIT, wait).await.is_err() {
            panic!("waited in vain until {what}; seen: {:?}", self.seen());
        }
    }

    fn act(&self, request: &Request<'_>) -> Act {
        let act = self.faults.lock().unwrap().as_mut().map_or(Act::Pass, |fault| fault(request));
        if !matches!(act, Act::Pass) {
            self.note(|seen| seen.failed += 1);
        }
        act
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.lock());
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }
}

/// The error of a store that is away for a moment.
pub(crate) fn unavailable() -> Error {
    Error::Unavailable { store: "test".into(), operation: "answer", source: "a fault was asked for".into() }
}

/// The error of a store that will never take this.
pub(crate) fn refused() -> Error {
    Error::Store { store: "test".into(), operation: "answer", source: "a fault was asked for".into() }
}

impl fmt::Debug for WatchedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchedBroker")
    }
}

impl fmt::Display for WatchedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watched({})", self.inner)
    }
}

impl Broker for WatchedBroker {
    fn enqueue(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> BoxFuture<'_, Result<Vec<Enqueued>>> {
        self.inner.enqueue(jobs, options)
    }

    fn claim(&self, options: ClaimOptions) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        Box::pin(async move {
            if let Act::Refuse(error) | Act::Forget(error) = self.act(&Request::Claim) {
                return Err(error);
            }
            let (limit, suspects) = (options.limit, options.suspects);
            let jobs = self.inner.claim(options).await?;
            self.note(|seen| {
                seen.claims.push((limit, suspects, jobs.len()));
                seen.claimed += jobs.len();
                seen.most_in_hand = seen.most_in_hand.max(seen.claimed - seen.verdicts.len());
            });
            Ok(jobs)
        })
    }

    fn acknowledge(&self, worker: WorkerId, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Holding>>> {
        Box::pin(async move {
            if let Act::Refuse(error) | Act::Forget(error) = self.act(&Request::Acknowledge) {
                return Err(error);
            }
            let answers = self.inner.acknowledge(worker, receipts).await?;
            self.note(|seen| seen.acknowledged += answers.len());
            Ok(answers)
        })
    }

    fn settle(&self, worker: WorkerId, verdicts: Vec<Settlement>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        Box::pin(async move {
            let act = self.act(&Request::Settle(&verdicts));
            if let Act::Refuse(error) = act {
                return Err(error);
            }
            let written: Vec<Verdict> =
                verdicts.iter().map(|settlement| settlement.verdict.clone()).collect();
            let answers = self.inner.settle(worker, verdicts).await?;
            if let Act::Forget(error) = act {
                return Err(error);
            }
            self.note(|seen| seen.verdicts.extend(written));
            Ok(answers)
        })
    }

    fn wait(&self, options: WaitOptions) -> BoxFuture<'_, Result<()>> {
        self.note(|seen| seen.waits += 1);
        self.inner.wait(options)
    }

    fn register(&self, worker: WorkerInfo) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Act::Refuse(error) | Act::Forget(error) = self.act(&Request::Register) {
                return Err(error);
            }
            let id = worker.id;
            self.inner.register(worker).await?;
            self.note(|seen| seen.registered.push(id));
            Ok(())
        })
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            if let Act::Refuse(error) | Act::Forget(error) = self.act(&Request::Renew) {
                return Err(error);
            }
            let renewal = self.inner.renew(worker, lease).await?;
            self.note(|seen| seen.renewals += 1);
            Ok(renewal)
        })
    }

    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        self.note(|seen| seen.retired.push(worker));
        self.inner.retire(worker)
    }

    fn cancellations(&self, worker: WorkerId) -> BoxFuture<'_, Result<Vec<JobId>>> {
        self.inner.cancellations(worker)
    }

    fn maintain(&self, options: MaintainOptions) -> BoxFuture<'_, Result<Maintenance>> {
        Box::pin(async move {
            let round = self.inner.maintain(options).await?;
            self.note(|seen| seen.maintained += 1);
            Ok(round)
        })
    }

    fn declare(&self, queue: QueueName, change: QueueChange) -> BoxFuture<'_, Result<Declared>> {
        self.inner.declare(queue, change)
    }

    fn find(&self, id: JobId) -> BoxFuture<'_, Result<Option<Details>>> {
        self.inner.find(id)
    }

    fn list(&self, filter: Filter, page: PageOptions) -> BoxFuture<'_, Result<Page>> {
        self.inner.list(filter, page)
    }

    fn cancel(&self, id: JobId) -> BoxFuture<'_, Result<Cancelled>> {
        self.inner.cancel(id)
    }

    fn bulk(&self, filter: Filter, act: BulkAct, options: BulkOptions) -> BoxFuture<'_, Result<Page>> {
        self.inner.bulk(filter, act, options)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.inner.stats()
    }

    fn sample(&self, options: SampleOptions) -> BoxFuture<'_, Result<Sampled>> {
        self.inner.sample(options)
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskInfo>>> {
        self.inner.tasks()
    }

    fn check(&self, options: CheckOptions) -> BoxFuture<'_, Result<CheckReport>> {
        self.inner.check(options)
    }
}
