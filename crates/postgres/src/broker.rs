use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use celeriac_core::{
    BoxFuture, Broker, BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, ClaimOptions, Claimed,
    Declared, Details, EnqueueOptions, Enqueued, Error, Filter, Finished, Holding, JobId, MaintainOptions,
    Maintenance, NewJob, Page, PageOptions, QueueChange, QueueName, Receipt, Renewal, Result, Room,
    SampleOptions, Sampled, Settled, Settlement, Stats, Suspects, TaskInfo, Transactions, WaitOptions,
    WorkerId, WorkerInfo,
};
use tokio::sync::RwLock;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::claim::Claims;
use crate::enqueue::Stored;
use crate::options::{Listening, PostgresOptions};
use crate::patrol::Patrol;
use crate::sample::StoreClock;
use crate::statement::Statement;
use crate::store::{SharedStore, Store, micros};
use crate::transaction::InTransaction;
use crate::wake::{News, Notifier, Signals, listen};

/// How often a wait looks by itself while no notifications arrive. With jitter, so that workers do not look in step.
const POLL: Duration = Duration::from_millis(500);

/// A [`Broker`] on PostgreSQL 14 or newer.
///
/// Open one a process and share it. It keeps a pool of connections, one connection for leases, and, once somebody
/// waits for jobs, one that listens.
pub struct PostgresBroker {
    pub(crate) store: SharedStore,
    pub(crate) signals: Arc<Signals>,
    pub(crate) notifier: Notifier,
    pub(crate) claims: Arc<Claims>,
    pub(crate) patrol: Patrol,
    pub(crate) clock: StoreClock,
    /// Claims read, reconciling writes: see `claim.rs`.
    pub(crate) claiming: RwLock<()>,
    /// Marks our own notifications.
    tag: String,
    listener: OnceLock<AbortHandle>,
}

impl PostgresBroker {
    /// The newest schema that this program knows.
    pub const SCHEMA_VERSION: i64 = crate::migration::SUPPORTED;

    /// Connects, and brings the schema to this program's version unless the URL says `migrate=off`.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached, `SchemaTooNew`, `NotAStore` for an old schema that may not be
    /// migrated, `UnsupportedUrl` for certificates that cannot be read.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        let migrate = options.migrate;
        let store = Arc::new(Store::new(options)?);
        if migrate {
            store.migrate().await?;
        } else {
            store.judge_version(store.schema_version().await?).await?;
        }
        store.load_queues().await?;
        let signals = Arc::new(Signals::default());
        let tag = format!("{:012x}", fastrand::u64(..1 << 48));
        let notifier = Notifier::start(&store, &signals, &tag);
        Ok(Self {
            store,
            signals,
            notifier,
            claims: Arc::default(),
            patrol: Patrol::default(),
            clock: StoreClock::default(),
            claiming: RwLock::new(()),
            tag,
            listener: OnceLock::new(),
        })
    }

    /// The version of the schema at `options`; 0 if there is none.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached.
    pub async fn schema_version(options: &PostgresOptions) -> Result<i64> {
        Store::new(options.clone())?.schema_version().await
    }

    /// Stores jobs in a transaction of yours: they are there after its commit, and never were after a rollback. Workers
    /// are woken soon after the commit, without anything of ours in your transaction. It must be of the same database:
    /// one of `tokio_postgres` or `deadpool_postgres`, or the [`Transaction`](crate::Transaction) of a handler.
    ///
    /// A queue with a length limit makes its producers take turns from half the limit on, until your commit.
    ///
    /// # Errors
    /// As [`Broker::enqueue`]; the transaction is then broken, as after any failed statement.
    pub async fn enqueue_in(
        &self,
        transaction: &impl InTransaction,
        jobs: Vec<NewJob>,
        options: EnqueueOptions,
    ) -> Result<Vec<Enqueued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (stored, id) = self.store.enqueue_in(transaction.client(), &jobs, &options).await?;
        self.notifier.wake_after(&id, &stored.queues);
        Ok(stored.answers)
    }

    async fn enqueue_jobs(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> Result<Vec<Enqueued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let Stored { answers, queues, crowded } = self.store.enqueue(&jobs, &options).await?;
        for queue in crowded {
            self.store.query("drop the oldest jobs", Statement::Trim, &[&queue]).await?;
        }
        self.notifier.wake(&queues);
        Ok(answers)
    }

    async fn wait_for_jobs(&self, options: WaitOptions) -> Result<()> {
        let deadline = Instant::now() + options.limit;
        self.start_listening();
        let mut queues = Vec::with_capacity(options.queues.len());
        for name in &options.queues {
            queues.extend(self.store.queue_number(name).await?);
        }
        let suspects = options.suspects == Suspects::Take;
        let mut changed = self.signals.subscribe();
        let mut look = false;
        loop {
            changed.mark_unchanged();
            match self.signals.news(&queues) {
                News::Changed => return Ok(()),
                News::Unknown => look = true,
                News::Nothing => {}
            }
            if look {
                let rows = self.store.query("wait for jobs", Statement::Look, &[&queues, &suspects]).await?;
                if rows.first().is_some_and(|row| row.get(0)) {
                    return Ok(());
                }
                look = false;
            }
            let poll = Instant::now() + POLL.mul_f64(0.75 + fastrand::f64() / 2.0);
            let until = if self.signals.is_listening() { deadline } else { deadline.min(poll) };
            // The sender lives as long as this value.
            if timeout_at(until, changed.changed()).await.is_err() {
                if Instant::now() >= deadline {
                    return Ok(());
                }
                look = true;
            }
        }
    }

    fn start_listening(&self) {
        if matches!(self.store.options.listening, Listening::Off) {
            return;
        }
        self.listener.get_or_init(|| {
            let (store, signals) = (Arc::clone(&self.store), Arc::clone(&self.signals));
            tokio::spawn(listen(store, signals, self.tag.clone())).abort_handle()
        });
    }

    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        let id = Uuid::from_bytes(*worker.id.as_bytes());
        let queues: Vec<&str> = worker.queues.iter().map(QueueName::as_str).collect();
        let tasks: Vec<&str> = worker.tasks.iter().map(|task| task.name.as_str()).collect();
        let infos: Vec<String> = worker
            .tasks
            .iter()
            .map(|task| {
                serde_json::to_string(task)
                    .map_err(|error| Error::invalid("task", task.name.as_str(), error.to_string()))
            })
            .collect::<Result<_>>()?;
        let handlers = i64::from(worker.concurrency);
        self.store
            .query(
                "register a worker",
                Statement::Register,
                &[&id, &worker.label, &queues, &tasks, &infos, &handlers, &micros(worker.lease)],
            )
            .await
            .map(drop)
    }

    async fn declare_queue(&self, name: QueueName, change: QueueChange) -> Result<Declared> {
        // What is wrong with the change must be known before the queue is made.
        change.apply(celeriac_core::QueueSettings::default())?;
        let (number, created) = self.store.create_queue(&name).await?;
        if change != QueueChange::default() {
            self.change_queue(number, &change).await?;
            self.notifier.wake(&[number]);
        }
        Ok(if created { Declared::Created } else { Declared::Existed })
    }

    async fn cancel_job(&self, id: JobId) -> Result<Cancelled> {
        let rows = self.store.query("cancel a job", Statement::Cancel, &[&id.as_uuid()]).await?;
        let room: Option<&str> = rows.first().and_then(|row| row.get(0));
        Ok(match room {
            None => Cancelled::NotFound,
            Some("held") => Cancelled::Requested,
            Some(room) => Cancelled::Removed(room.parse::<Room>()?),
        })
    }
}

impl Drop for PostgresBroker {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
    }
}

impl fmt::Debug for PostgresBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBroker").field("options", &self.store.options).finish_non_exhaustive()
    }
}

impl fmt::Display for PostgresBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.store.options.shown)
    }
}

impl Broker for PostgresBroker {
    fn enqueue(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> BoxFuture<'_, Result<Vec<Enqueued>>> {
        Box::pin(self.enqueue_jobs(jobs, options))
    }

    fn claim(&self, options: ClaimOptions) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        Box::pin(async move { self.claim_jobs(&options).await })
    }

    fn acknowledge(&self, worker: WorkerId, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Holding>>> {
        Box::pin(async move { self.acknowledge_jobs(worker, &receipts).await })
    }

    fn settle(&self, worker: WorkerId, verdicts: Vec<Settlement>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        Box::pin(self.settle_jobs(worker, verdicts))
    }

    fn wait(&self, options: WaitOptions) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.wait_for_jobs(options))
    }

    fn register(&self, worker: WorkerInfo) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.register_worker(worker))
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let id = Uuid::from_bytes(*worker.as_bytes());
            let rows =
                self.store.query_lease("renew a lease", Statement::Renew, &[&id, &micros(lease)]).await?;
            let held = rows.first().is_some_and(|row| row.get(0));
            Ok(if held { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.retire_worker(worker))
    }

    fn cancellations(&self, worker: WorkerId) -> BoxFuture<'_, Result<Vec<JobId>>> {
        Box::pin(async move {
            let id = Uuid::from_bytes(*worker.as_bytes());
            let rows = self.store.query("look for cancellations", Statement::CancellationsOf, &[&id]).await?;
            Ok(rows.iter().map(|row| JobId::from_uuid(row.get(0))).collect())
        })
    }

    fn maintain(&self, options: MaintainOptions) -> BoxFuture<'_, Result<Maintenance>> {
        Box::pin(async move { self.run_duties(&options).await })
    }

    fn declare(&self, queue: QueueName, change: QueueChange) -> BoxFuture<'_, Result<Declared>> {
        Box::pin(self.declare_queue(queue, change))
    }

    fn find(&self, id: JobId) -> BoxFuture<'_, Result<Option<Details>>> {
        Box::pin(self.find_job(id))
    }

    fn finished(&self, id: JobId) -> BoxFuture<'_, Result<Option<Finished>>> {
        Box::pin(self.finished_job(id))
    }

    fn list(&self, filter: Filter, page: PageOptions) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.list_page(&filter, &page).await })
    }

    fn cancel(&self, id: JobId) -> BoxFuture<'_, Result<Cancelled>> {
        Box::pin(self.cancel_job(id))
    }

    fn bulk(&self, filter: Filter, act: BulkAct, options: BulkOptions) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.act_on(&filter, &act, &options).await })
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        Box::pin(self.read_stats())
    }

    fn sample(&self, options: SampleOptions) -> BoxFuture<'_, Result<Sampled>> {
        Box::pin(async move { self.share_sample(&options).await })
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskInfo>>> {
        Box::pin(async move {
            let rows = self.store.query("list tasks", Statement::Tasks, &[]).await?;
            rows.iter()
                .map(|row| {
                    serde_json::from_str(row.get::<_, &str>(0))
                        .map_err(|error| Error::corrupt("a task's description", error.to_string()))
                })
                .collect()
        })
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn check(&self, options: CheckOptions) -> BoxFuture<'_, Result<CheckReport>> {
        Box::pin(async move { self.check_store(&options).await })
    }
}
