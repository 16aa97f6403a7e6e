use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{
    BoxFuture, Broker, BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, ClaimOptions, Claimed,
    Declared, Details, EnqueueOptions, Enqueued, Error, Filter, Finished, Holding, JobId, MaintainOptions,
    Maintenance, NewJob, Page, PageOptions, QueueChange, QueueName, Receipt, Renewal, Result, SampleOptions,
    Sampled, Settled, Settlement, Stats, TaskInfo, Verdict, WaitOptions, WorkerId, WorkerInfo,
};
use rusqlite::Connection;

use crate::enqueue::Incoming;
use crate::fault::Fault;
use crate::options::{Place, SqliteOptions, Synchronous};
use crate::reader::Reader;
use crate::wake::{Wake, Watcher, has_work};
use crate::writer::{Clock, Durability, Writer};
use crate::{
    check, claim, connection, enqueue, history, inspect, lease, maintain, operate, patrol, queues, sample,
    schema, settle,
};

/// The embedded engine: one SQLite file, shared by any number of processes of one machine.
///
/// Each value has one thread that writes (and commits once for all that wait), one that reads, one that renews
/// leases, and one that wakes idle workers. Share one value in a process, in an `Arc`.
pub struct SqliteBroker {
    options: SqliteOptions,
    wake: Arc<Wake>,
    /// Absent for a store in memory: nothing else can see that.
    side: Option<Side>,
    pub(crate) writer: Writer,
}

/// What a file has beside the writer.
struct Side {
    reader: Reader,
    /// Renewals wait behind nothing else. They need not reach the disk: a lease is over after a power cut.
    leases: Reader,
    _watcher: Watcher,
}

impl SqliteBroker {
    /// Opens the store; creates the file or migrates its schema if need be.
    ///
    /// # Errors
    /// `NotAStore` for a file that is something else or lies in a folder that does not exist, `SchemaTooNew`,
    /// `ReadOnly`, `StoreFull`, `Unavailable`.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        // Opening may wait for another process's migration, and must not hold up the caller's runtime.
        let (reply, answer) = tokio::sync::oneshot::channel();
        let store = options.to_string();
        let unavailable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unavailable {
            store: store.clone(),
            operation: "open the store",
            source,
        };
        std::thread::Builder::new()
            .name("celeriac-open".to_owned())
            .spawn(move || {
                let _ = reply.send(Self::open_blocking(options));
            })
            .map_err(|error| unavailable(error.into()))?;
        answer.await.map_err(|error| unavailable(error.into()))?
    }

    fn open_blocking(options: SqliteOptions) -> Result<Self> {
        let store = options.to_string();
        let open = |options: &SqliteOptions| {
            connection::open(options).map_err(|fault| fault.into_error(&store, "open the store"))
        };
        let mut first = open(&options)?;
        schema::migrate(&mut first, &store)
            .map_err(|fault| fault.into_error(&store, "migrate the schema"))?;
        let clock = Arc::new(Clock::default());
        let wake = Arc::new(Wake::default());
        let side = if options.place == Place::Memory {
            None
        } else {
            let mut relaxed = options.clone();
            relaxed.synchronous = Synchronous::Normal;
            let reader = Reader::start("celeriac-read", open(&relaxed)?, &options, Arc::clone(&clock))?;
            let leases = Reader::start("celeriac-lease", open(&relaxed)?, &options, Arc::clone(&clock))?;
            let watching = open(&relaxed)?;
            let watcher = Watcher::start(watching, &options, Arc::clone(&clock), Arc::clone(&wake)).map_err(
                |error| Error::Unavailable {
                    store: store.clone(),
                    operation: "start the watcher thread",
                    source: error.into(),
                },
            )?;
            Some(Side { reader, leases, _watcher: watcher })
        };
        let writer = Writer::start(first, &options, clock, Arc::clone(&wake))?;
        Ok(Self { options, wake, side, writer })
    }

    /// The schema version of stores that this program makes.
    pub const fn schema_version() -> i64 {
        schema::VERSION
    }

    async fn read<T, F>(&self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection, celeriac_core::Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        match &self.side {
            Some(side) => {
                let work = move |connection: &Connection, now| {
                    // One snapshot: a job on its way between two rooms is seen in one of them.
                    let snapshot = connection.unchecked_transaction()?;
                    work(&snapshot, now)
                };
                side.reader.run(operation, work).await
            }
            None => {
                let work = move |transaction: &mut crate::transaction::Transaction<'_>| {
                    transaction.flush()?;
                    work(transaction.connection, transaction.now)
                };
                self.writer.run(operation, Durability::Volatile, work).await
            }
        }
    }
}

impl Broker for SqliteBroker {
    fn enqueue(&self, jobs: Vec<NewJob>, options: EnqueueOptions) -> BoxFuture<'_, Result<Vec<Enqueued>>> {
        Box::pin(async move {
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            let mut jobs =
                jobs.into_iter().map(|job| Incoming::new(job, &options)).collect::<Result<Vec<_>>>()?;
            self.writer
                .run("enqueue", Durability::Durable, move |transaction| {
                    enqueue::enqueue(transaction, &mut jobs, &options)
                })
                .await
        })
    }

    fn claim(&self, options: ClaimOptions) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        Box::pin(async move {
            let worker = options.worker;
            let (_, claimed) = self
                .writer
                .run_or_undo(
                    "claim",
                    move |transaction| Ok((worker, claim::claim(transaction, &options)?)),
                    // Jobs that nobody knows to hold would wait for the end of the worker.
                    |(worker, claimed)| {
                        let releases: Vec<Settlement> = claimed
                            .into_iter()
                            .map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Release })
                            .collect();
                        Box::new(move |transaction| settle::settle(transaction, worker, &releases).map(drop))
                    },
                )
                .await?;
            Ok(claimed)
        })
    }

    fn acknowledge(&self, worker: WorkerId, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Holding>>> {
        Box::pin(self.writer.run("acknowledge", Durability::Durable, move |transaction| {
            settle::acknowledge(transaction, worker, &receipts)
        }))
    }

    fn settle(&self, worker: WorkerId, verdicts: Vec<Settlement>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        Box::pin(self.writer.run("settle", Durability::Durable, move |transaction| {
            settle::settle(transaction, worker, &verdicts)
        }))
    }

    fn wait(&self, options: WaitOptions) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.side.is_some() {
                self.wake.wait(&options).await;
                return Ok(());
            }
            let wanted = options.clone();
            let look = self.read("wait", move |connection, now| {
                let queues = wanted.queues.iter().map(QueueName::as_str);
                let due = maintain::next_due(connection)?;
                if due.is_some_and(|due| due <= now) || has_work(connection, queues, wanted.suspects)? {
                    return Ok(None);
                }
                Ok(Some(due.map_or(Duration::MAX, |due| due.since(now))))
            });
            self.wake.wait_and_look(&options, look).await
        })
    }

    fn register(&self, worker: WorkerInfo) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.writer.run("register a worker", Durability::Volatile, move |transaction| {
            lease::register(transaction, &worker)
        }))
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            match &self.side {
                Some(side) => {
                    side.leases
                        .run("renew a lease", move |connection, now| {
                            lease::renew(connection, now, worker, lease)
                        })
                        .await
                }
                None => {
                    self.writer
                        .run("renew a lease", Durability::Volatile, move |transaction| {
                            lease::renew(transaction.connection, transaction.now, worker, lease)
                        })
                        .await
                }
            }
        })
    }

    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.writer.run("retire a worker", Durability::Durable, move |transaction| {
            lease::retire(transaction, worker)
        }))
    }

    fn cancellations(&self, worker: WorkerId) -> BoxFuture<'_, Result<Vec<JobId>>> {
        Box::pin(
            self.read("look for cancellations", move |connection, _| {
                lease::cancellations(connection, worker)
            }),
        )
    }

    fn maintain(&self, options: MaintainOptions) -> BoxFuture<'_, Result<Maintenance>> {
        Box::pin(async move {
            let maintain = self.writer.run("maintain", Durability::Durable, move |transaction| {
                let due = patrol::begin(transaction)?;
                Ok((maintain::maintain(transaction, &options)?, due))
            });
            let (mut done, due) = maintain.await?;
            if due {
                done.mended = self.patrol().await?;
            }
            Ok(done)
        })
    }

    fn declare(&self, queue: QueueName, change: QueueChange) -> BoxFuture<'_, Result<Declared>> {
        Box::pin(self.writer.run("declare a queue", Durability::Durable, move |transaction| {
            queues::declare(transaction, &queue, &change)
        }))
    }

    fn find(&self, id: JobId) -> BoxFuture<'_, Result<Option<Details>>> {
        Box::pin(self.read("find a job", move |connection, _| inspect::find(connection, id)))
    }

    fn finished(&self, id: JobId) -> BoxFuture<'_, Result<Option<Finished>>> {
        Box::pin(
            self.read("look for a finished job", move |connection, now| history::find(connection, id, now)),
        )
    }

    fn list(&self, filter: Filter, page: PageOptions) -> BoxFuture<'_, Result<Page>> {
        Box::pin(
            self.read("list jobs", move |connection, now| inspect::list(connection, &filter, &page, now)),
        )
    }

    fn cancel(&self, id: JobId) -> BoxFuture<'_, Result<Cancelled>> {
        Box::pin(
            self.writer.run("cancel a job", Durability::Durable, move |transaction| {
                operate::cancel(transaction, id)
            }),
        )
    }

    fn bulk(&self, filter: Filter, act: BulkAct, options: BulkOptions) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.writer.run("act on jobs", Durability::Durable, move |transaction| {
            operate::bulk(transaction, &filter, &act, &options)
        }))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        Box::pin(self.read("read figures", inspect::stats))
    }

    fn sample(&self, options: SampleOptions) -> BoxFuture<'_, Result<Sampled>> {
        Box::pin(async move {
            let max_age = options.max_age;
            let kept =
                self.read("read the sample", move |connection, now| sample::kept(connection, max_age, now));
            if let Some(sampled) = kept.await? {
                return Ok(sampled);
            }
            let log = match &self.options.place {
                Place::File(path) => {
                    let mut log = path.clone().into_os_string();
                    log.push("-wal");
                    Some(PathBuf::from(log))
                }
                Place::Memory => None,
            };
            self.writer
                .run("take a sample", Durability::Volatile, move |transaction| {
                    sample::take(transaction, max_age, log.as_deref())
                })
                .await
        })
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskInfo>>> {
        Box::pin(self.read("list tasks", |connection, _| queues::tasks(connection)))
    }

    fn check(&self, options: CheckOptions) -> BoxFuture<'_, Result<CheckReport>> {
        Box::pin(async move {
            // A look at a large store takes long and must hold up no other reader.
            let mut report = match &self.side {
                None => self.read("check", |connection, _| check::check_within(connection)).await?,
                Some(_) => {
                    let options = self.options.clone();
                    let store = self.to_string();
                    let looked = tokio::task::spawn_blocking(move || {
                        connection::open(&options)
                            .and_then(|connection| check::check(&connection))
                            .map_err(|fault| fault.into_error(&store, "check"))
                    });
                    looked.await.map_err(|error| Error::Unavailable {
                        store: self.to_string(),
                        operation: "check",
                        source: error.into(),
                    })??
                }
            };
            if options.repair && !report.violations.is_empty() {
                report = self.writer.run("repair", Durability::Durable, check::repair).await?;
            }
            report.notes.push(match (&self.options.place, self.options.synchronous) {
                (Place::Memory, _) => "in memory: nothing survives this process".to_owned(),
                (_, Synchronous::Full) => {
                    "synchronous=full: what was confirmed survives a power cut".to_owned()
                }
                (_, Synchronous::Normal) => {
                    "synchronous=normal: a power cut may take the last commits; kill -9 takes nothing"
                        .to_owned()
                }
            });
            Ok(report)
        })
    }
}

impl fmt::Display for SqliteBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

impl fmt::Debug for SqliteBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteBroker({self})")
    }
}
