//! Producers and workers under which things break.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, EnqueueOptions, Error, JobId, MaintainOptions, NewJob, Payload,
    QueueName, Renewal, Settlement, TaskName, Verdict, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// The end of what a busy machine may need.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn new_job() -> NewJob {
    let payload = Payload::from_json("{}").unwrap();
    let id = JobId::from_uuid(Uuid::now_v7());
    NewJob::new(id, QueueName::default_queue(), TaskName::new("work").unwrap(), payload)
}

pub(crate) async fn open(url: &str, deadline: &str) -> Arc<PostgresBroker> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let options = PostgresOptions::from_url(&format!("{url}{separator}deadline={deadline}")).unwrap();
    Arc::new(PostgresBroker::open(options).await.unwrap())
}

pub(crate) async fn register(broker: &PostgresBroker, lease: Duration) -> WorkerId {
    let id = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(id, "fault:1", [QueueName::default_queue()], lease);
    broker.register(info).await.unwrap();
    id
}

/// A plain connection to a server.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Producers and workers that go on through every error, and an account of what was confirmed and what ran.
#[derive(Default)]
pub(crate) struct Load {
    confirmed: Mutex<HashSet<JobId>>,
    done: Mutex<HashSet<JobId>>,
    claims: Mutex<Vec<Instant>>,
    /// What went wrong on the way.
    codes: Mutex<BTreeSet<&'static str>>,
    stopped: AtomicBool,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Load {
    pub(crate) async fn start(broker: &Arc<PostgresBroker>) -> Arc<Self> {
        let load = Arc::new(Self::default());
        let mut tasks = load.tasks.lock().await;
        for _ in 0..2 {
            tasks.spawn(Arc::clone(&load).produce(Arc::clone(broker)));
        }
        for _ in 0..2 {
            tasks.spawn(Arc::clone(&load).work(Arc::clone(broker)));
        }
        drop(tasks);
        load
    }

    async fn produce(self: Arc<Self>, broker: Arc<PostgresBroker>) {
        while !self.stopped.load(Ordering::SeqCst) {
            let jobs: Vec<NewJob> = (0..5).map(|_| new_job()).collect();
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            match broker.enqueue(jobs, EnqueueOptions::default()).await {
                Ok(_) => self.confirmed.lock().unwrap().extend(ids),
                Err(error) => {
                    self.note(&error);
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    async fn work(self: Arc<Self>, broker: Arc<PostgresBroker>) {
        let mut worker = WorkerId::from_uuid(Uuid::new_v4());
        let mut registered = false;
        let started = Instant::now();
        while !self.stopped.load(Ordering::SeqCst) || self.missing() > 0 {
            assert!(started.elapsed() < PATIENCE, "{} confirmed jobs never came", self.missing());
            let step = async {
                if !registered {
                    worker = WorkerId::from_uuid(Uuid::new_v4());
                    let lease = Duration::from_secs(5);
                    broker
                        .register(WorkerInfo::new(worker, "load:1", [QueueName::default_queue()], lease))
                        .await?;
                    registered = true;
                }
                if broker.renew(worker, Duration::from_secs(5)).await? == Renewal::Lost {
                    registered = false;
                    return Ok(());
                }
                broker.maintain(MaintainOptions::default()).await?;
                let options = ClaimOptions::new(worker, [QueueName::default_queue()], 20);
                let claimed = broker.claim(options).await?;
                if claimed.is_empty() {
                    sleep(Duration::from_millis(5)).await;
                    return Ok(());
                }
                self.claims.lock().unwrap().push(Instant::now());
                self.done.lock().unwrap().extend(claimed.iter().map(|job| job.job.id));
                let verdicts: Vec<Settlement> = claimed
                    .iter()
                    .map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done })
                    .collect();
                // A worker keeps its verdicts until the store takes them.
                while let Err(error) = broker.settle(worker, verdicts.clone()).await {
                    self.note(&error);
                    assert!(started.elapsed() < PATIENCE, "the verdicts were never taken");
                    sleep(Duration::from_millis(20)).await;
                }
                Ok::<_, Error>(())
            };
            match step.await {
                Ok(()) => {}
                Err(Error::LeaseLost { .. }) => registered = false,
                Err(error) => {
                    self.note(&error);
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// Every error of a fault is one that a worker waits out.
    fn note(&self, error: &Error) {
        assert!(error.is_transient(), "{}", error.full());
        self.codes.lock().unwrap().insert(error.code().as_str());
    }

    /// Waits until calls fail with one of these codes.
    pub(crate) async fn trouble(&self, codes: &[&str]) {
        self.codes.lock().unwrap().clear();
        let failed = async {
            while !codes.iter().any(|code| self.codes.lock().unwrap().contains(code)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, failed).await.unwrap_or_else(|_| panic!("nobody fails with {codes:?}"));
    }

    fn missing(&self) -> usize {
        let done = self.done.lock().unwrap();
        self.confirmed.lock().unwrap().iter().filter(|id| !done.contains(id)).count()
    }

    /// Waits until jobs are confirmed and claimed that were not before.
    pub(crate) async fn progress(&self) {
        let (confirmed, claims) = (self.confirmed.lock().unwrap().len(), self.claims.lock().unwrap().len());
        let more = async {
            while self.confirmed.lock().unwrap().len() < confirmed + 50
                || self.claims.lock().unwrap().len() < claims + 10
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, more).await.unwrap_or_else(|_| panic!("the load stands still"));
    }

    /// How long after `end` the next claim succeeded.
    pub(crate) fn recovery(&self, end: Instant) -> Duration {
        let claims = self.claims.lock().unwrap();
        claims.iter().find(|at| **at > end).map(|at| *at - end).unwrap()
    }

    pub(crate) async fn finish(&self, broker: &PostgresBroker) {
        self.stopped.store(true, Ordering::SeqCst);
        let mut tasks = self.tasks.lock().await;
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(self.missing(), 0);
        assert!(self.confirmed.lock().unwrap().len() > 100);
        // On a busy machine a look at everything may take longer than the short deadline of these tests.
        let started = Instant::now();
        let report = loop {
            match broker.check(CheckOptions::default()).await {
                Ok(report) => break report,
                Err(error) => {
                    assert!(error.is_transient(), "{}", error.full());
                    assert!(started.elapsed() < Duration::from_secs(120), "{}", error.full());
                }
            }
        };
        let broken: Vec<_> =
            report.violations.iter().filter(|found| !found.invariant.contains("figures")).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}
