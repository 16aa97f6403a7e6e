use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use celeriac_core::{
    Broker, Call, Cancelled, Details, EnqueueOptions, Enqueued, Error, JobId, NewJob, Result,
};
use celeriac_metrics::ClientMeters;
use celeriac_postgres::{InTransaction, PostgresBroker};
use celeriac_worker::inject;
use tracing::Instrument;
use uuid::Uuid;

use crate::connect::connect_broker;

/// Calls tasks: stores jobs, and looks after those that are stored.
///
/// A clone is cheap and shares the connection. A worker hands its own client to handlers that take a
/// `State<Client>`.
///
/// ```
/// use celeriac::prelude::*;
///
/// #[task]
/// async fn greet(name: String) {
///     println!("Hello, {name}!");
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let celeriac = Client::connect("sqlite::memory:").await?;
/// let job = celeriac.enqueue(greet::call("Ada")).await?;
/// assert!(celeriac.job(job.id()).await?.is_some());
/// # Ok::<_, celeriac::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    broker: Arc<dyn Broker>,
    options: EnqueueOptions,
    meters: Arc<ClientMeters>,
}

impl Client {
    /// Opens the broker that `url` names, such as `sqlite:jobs.db`.
    ///
    /// # Errors
    /// As [`connect_broker`].
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(connect_broker(url).await?))
    }

    /// A client of a broker that is open already.
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        Self { broker, options: EnqueueOptions::default(), meters: Arc::new(ClientMeters::new()) }
    }

    /// Declares a queue that does not exist when a job is enqueued into it.
    ///
    /// Otherwise that is refused, since a typing error would collect jobs that nobody runs.
    #[must_use]
    pub const fn declare_missing_queues(mut self) -> Self {
        self.options.declare_missing = true;
        self
    }

    /// The largest payload in bytes that this client stores; default 1 MiB.
    ///
    /// A queue moves each payload several times; larger data belongs in a store made for it, with a reference to
    /// it in the job.
    #[must_use]
    pub const fn max_payload(mut self, bytes: usize) -> Self {
        self.options.max_payload = bytes;
        self
    }

    /// Stores a job. When this returns, the job is on the disk (unless the store is set to less: `synchronous=normal`).
    ///
    /// # Errors
    /// What was wrong with the call ([`Invalid`], [`InvalidName`], [`Arguments`]), [`PayloadTooLarge`],
    /// [`NoSuchQueue`], [`QueueFull`]: nothing is stored then. After [`Unavailable`] and [`DeadlinePassed`] the
    /// job may or may not be stored: repeat the call with [`Call::id`] or [`Call::idempotency_key`] to be sure of
    /// exactly one.
    ///
    /// [`Invalid`]: crate::Error::Invalid
    /// [`InvalidName`]: crate::Error::InvalidName
    /// [`Arguments`]: crate::Error::Arguments
    /// [`PayloadTooLarge`]: crate::Error::PayloadTooLarge
    /// [`NoSuchQueue`]: crate::Error::NoSuchQueue
    /// [`QueueFull`]: crate::Error::QueueFull
    /// [`Unavailable`]: crate::Error::Unavailable
    /// [`DeadlinePassed`]: crate::Error::DeadlinePassed
    pub async fn enqueue(&self, call: Call) -> Result<Enqueued> {
        let id = fresh_id();
        let stored = self.store(vec![call.into_job(id)?]).await?;
        // One answer for each job is the broker's contract; without an answer the call succeeded all the same.
        Ok(stored.into_iter().next().unwrap_or(Enqueued::New(id)))
    }

    /// Stores many jobs in one round trip: all of them or none. The answer has one entry for each, in order.
    ///
    /// # Errors
    /// As [`Client::enqueue`], for the first call that is refused.
    pub fn enqueue_all(
        &self,
        calls: impl IntoIterator<Item = Call>,
    ) -> impl Future<Output = Result<Vec<Enqueued>>> + Send {
        // Before the first await, so that the iterator need not be `Send`.
        let jobs: Result<Vec<NewJob>> = calls.into_iter().map(|call| call.into_job(fresh_id())).collect();
        async move {
            match jobs? {
                none if none.is_empty() => Ok(Vec::new()),
                jobs => self.store(jobs).await,
            }
        }
    }

    /// Stores a job in a transaction of yours on the same PostgreSQL database: it is there after your commit, and never
    /// was after a rollback. Workers hear of it soon after the commit. The transaction is one of `tokio_postgres` or
    /// `deadpool_postgres`, or the one that a worker hands to a handler.
    ///
    /// ```no_run
    /// # use celeriac::prelude::*;
    /// # use celeriac::postgres::tokio_postgres;
    /// # #[task] async fn ship(order: i64) {}
    /// # async fn example(database: &mut tokio_postgres::Client, celeriac: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = database.transaction().await?;
    /// let order: i64 = transaction.query_one("insert into orders default values returning id", &[]).await?.get(0);
    /// celeriac.enqueue_in(&transaction, ship::call(order)).await?;
    /// transaction.commit().await?; // both, or neither
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::enqueue`], and [`Invalid`](Error::Invalid) if this client's store is not on PostgreSQL. After an
    /// error of the database your transaction can only be rolled back.
    pub async fn enqueue_in(&self, transaction: &impl InTransaction, call: Call) -> Result<Enqueued> {
        let id = fresh_id();
        let stored = self.store_in(transaction, vec![call.into_job(id)?]).await?;
        Ok(stored.into_iter().next().unwrap_or(Enqueued::New(id)))
    }

    /// As [`Client::enqueue_in`], with many jobs in one round trip. The answer has one entry for each, in order.
    ///
    /// # Errors
    /// As [`Client::enqueue_in`], for the first call that is refused.
    pub async fn enqueue_all_in(
        &self,
        transaction: &impl InTransaction,
        calls: impl IntoIterator<Item = Call> + Send,
    ) -> Result<Vec<Enqueued>> {
        let jobs: Result<Vec<NewJob>> = calls.into_iter().map(|call| call.into_job(fresh_id())).collect();
        self.store_in(transaction, jobs?).await
    }

    async fn store_in(
        &self,
        transaction: &impl InTransaction,
        mut jobs: Vec<NewJob>,
    ) -> Result<Vec<Enqueued>> {
        let broker: &dyn Any = &*self.broker;
        let Some(broker) = broker.downcast_ref::<PostgresBroker>() else {
            return Err(Error::invalid(
                "store",
                self.broker.to_string(),
                "a transaction of PostgreSQL reaches only a store in the same database; connect to postgres://…",
            ));
        };
        jobs.iter_mut().for_each(inject);
        let kinds: Vec<_> = jobs.iter().map(|job| (job.queue.clone(), job.task.clone())).collect();
        let asked = Instant::now();
        let answer = broker.enqueue_in(transaction, jobs, self.options.clone()).await;
        // Counted now: whether the caller commits is not for us to know.
        self.meters.many(&kinds, &answer, asked.elapsed());
        answer
    }

    async fn store(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        let asked = Instant::now();
        let span = match &jobs[..] {
            [job] => tracing::info_span!("enqueue", job = %job.id, task = %job.task, queue = %job.queue),
            jobs => tracing::info_span!("enqueue", jobs = jobs.len()),
        };
        span.in_scope(|| jobs.iter_mut().for_each(inject));
        if let [job] = &jobs[..] {
            let (queue, task) = (job.queue.clone(), job.task.clone());
            let answer = self.broker.enqueue(jobs, self.options.clone()).instrument(span).await;
            self.meters.one(&queue, &task, &answer, asked.elapsed());
            return answer;
        }
        let kinds: Vec<_> = jobs.iter().map(|job| (job.queue.clone(), job.task.clone())).collect();
        let answer = self.broker.enqueue(jobs, self.options.clone()).instrument(span).await;
        self.meters.many(&kinds, &answer, asked.elapsed());
        answer
    }

    /// Removes a job that waits; asks the handler to stop if it runs.
    ///
    /// # Errors
    /// Only those of a store that cannot be reached; a job that is finished is [`Cancelled::NotFound`].
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled> {
        self.broker.cancel(id).await
    }

    /// A job, where it is and what happened to it; `None` if it is finished or never was.
    ///
    /// # Errors
    /// Only those of a store that cannot be reached or is damaged.
    pub async fn job(&self, id: JobId) -> Result<Option<Details>> {
        self.broker.find(id).await
    }

    /// The broker itself, for everything that an operator needs.
    pub const fn broker(&self) -> &Arc<dyn Broker> {
        &self.broker
    }
}

impl fmt::Debug for Client {
    /// The store's address, which the broker prints without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.broker)
    }
}

/// Ids grow with time, so neighbours in time are neighbours in the store's indexes.
fn fresh_id() -> JobId {
    JobId::from_uuid(Uuid::now_v7())
}
