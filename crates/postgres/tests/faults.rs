//! Bad days of a server and of the network. After each: every job that was confirmed is done, and nothing hangs.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, EnqueueOptions, Error, JobId, MaintainOptions, NewJob, Payload,
    QueueName, Renewal, Settled, Settlement, TaskName, Verdict, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::postgres::{StopMode, TestServer, fresh_schema, fresh_url};
use celeriac_testkit::{FaultProxy, Weather};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;
use uuid::Uuid;

/// The end of what a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(90);

fn new_job() -> NewJob {
    let payload = Payload::from_json("{}").unwrap();
    let id = JobId::from_uuid(Uuid::now_v7());
    NewJob::new(id, QueueName::default_queue(), TaskName::new("work").unwrap(), payload)
}

async fn open(url: &str, deadline: &str) -> Arc<PostgresBroker> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let options = PostgresOptions::from_url(&format!("{url}{separator}deadline={deadline}")).unwrap();
    Arc::new(PostgresBroker::open(options).await.unwrap())
}

async fn register(broker: &PostgresBroker, lease: Duration) -> WorkerId {
    let id = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(id, "fault:1", [QueueName::default_queue()], lease);
    broker.register(info).await.unwrap();
    id
}

/// Producers and workers that go on through every error, and an account of what was confirmed and what ran.
#[derive(Default)]
struct Load {
    confirmed: Mutex<HashSet<JobId>>,
    done: Mutex<HashSet<JobId>>,
    claims: Mutex<Vec<Instant>>,
    stopped: AtomicBool,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Load {
    async fn start(broker: &Arc<PostgresBroker>) -> Arc<Self> {
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
                    assert!(error.is_transient(), "{}", error.full());
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
                    assert!(error.is_transient(), "{}", error.full());
                    assert!(started.elapsed() < PATIENCE, "the verdicts were never taken");
                    sleep(Duration::from_millis(20)).await;
                }
                Ok::<_, Error>(())
            };
            match step.await {
                Ok(()) => {}
                Err(Error::LeaseLost { .. }) => registered = false,
                Err(error) => {
                    assert!(error.is_transient(), "{}", error.full());
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    fn missing(&self) -> usize {
        let done = self.done.lock().unwrap();
        self.confirmed.lock().unwrap().iter().filter(|id| !done.contains(id)).count()
    }

    /// Waits until jobs are confirmed and claimed that were not before.
    async fn progress(&self) {
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
    fn recovery(&self, end: Instant) -> Duration {
        let claims = self.claims.lock().unwrap();
        claims.iter().find(|at| **at > end).map(|at| *at - end).unwrap()
    }

    async fn finish(&self, broker: &PostgresBroker) {
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

/// `kill -9` of the server under load, then an immediate and a fast stop: each time it starts again and the load goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing() {
    let server = TestServer::private().unwrap();
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    for mode in [StopMode::Kill, StopMode::Immediate, StopMode::Fast] {
        load.progress().await;
        server.stop(mode).unwrap();
        server.start().unwrap();
        let end = Instant::now();
        load.progress().await;
        let recovery = load.recovery(end);
        println!("{mode:?}: first claim {recovery:?} after the start");
        assert!(recovery < Duration::from_secs(60), "{mode:?}: {recovery:?}");
    }
    load.finish(&broker).await;
}

/// Every connection is terminated, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn terminated_connections_lose_nothing() {
    let server = TestServer::private().unwrap();
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        load.progress().await;
        client
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'celeriac'",
                &[],
            )
            .await
            .unwrap();
    }
    load.finish(&broker).await;
}

/// The network is gone for longer than the lease, then back: the worker learns it, its late verdicts change nothing, and
/// its jobs are done by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_longer_than_the_lease_costs_the_jobs_not_the_order() {
    let server = TestServer::shared().unwrap();
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let schema = fresh_schema();
    let healthy = open(&format!("{}?schema={schema}", server.url()), "15s").await;
    let cut_off = open(&format!("{}?schema={schema}", server.url_at(proxy.port())), "2s").await;
    let lease = Duration::from_secs(1);
    let worker = register(&cut_off, lease).await;
    let ids: HashSet<JobId> = {
        let jobs: Vec<NewJob> = (0..50).map(|_| new_job()).collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        cut_off.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
        ids
    };
    let held = cut_off.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 30)).await.unwrap();
    assert_eq!(held.len(), 30);
    for weather in [Weather::Silent, Weather::Cut] {
        proxy.set(weather);
        let error = timeout(PATIENCE, cut_off.renew(worker, lease)).await.unwrap().unwrap_err();
        assert!(error.is_transient(), "{}", error.full());
    }
    let mut lost = 0;
    let dead = async {
        while lost < 30 {
            lost += healthy.maintain(MaintainOptions::default()).await.unwrap().redelivered;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dead).await.unwrap();
    proxy.set(Weather::Clear);
    let renewal = async {
        loop {
            match cut_off.renew(worker, lease).await {
                Ok(renewal) => return renewal,
                Err(error) => assert!(error.is_transient(), "{}", error.full()),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, renewal).await.unwrap(), Renewal::Lost);
    let late = held.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
    let answers = cut_off.settle(worker, late).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Settled::Stale));
    let second = register(&healthy, PATIENCE).await;
    let mut done = HashSet::new();
    while done.len() < ids.len() {
        let claimed =
            healthy.claim(ClaimOptions::new(second, [QueueName::default_queue()], 20)).await.unwrap();
        assert!(!claimed.is_empty(), "{} of {} jobs came", done.len(), ids.len());
        let verdicts: Vec<Settlement> =
            claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
        let answers = healthy.settle(second, verdicts).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Applied));
        done.extend(claimed.iter().map(|job| job.job.id));
    }
    assert_eq!(done, ids);
    let report = healthy.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// Answers that break off in the middle of a message: what was claimed unheard of is given back, and all jobs come.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_that_break_off_hide_no_job() {
    let server = TestServer::shared().unwrap();
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let schema = fresh_schema();
    let healthy = open(&format!("{}?schema={schema}", server.url()), "15s").await;
    let broker = open(&format!("{}?schema={schema}&pool_size=1", server.url_at(proxy.port())), "5s").await;
    let worker = register(&broker, Duration::from_secs(3600)).await;
    let jobs: Vec<NewJob> = (0..400).map(|_| new_job()).collect();
    healthy.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
    let mut done = 0;
    let mut broken = 0;
    let started = Instant::now();
    while done < 400 {
        assert!(started.elapsed() < PATIENCE, "{done} of 400 jobs came, {broken} answers broke off");
        // Far enough for a connection and a statement to be made, short of the whole answer.
        proxy.set(if broken < 3 { Weather::ResetAfter(6_000) } else { Weather::Clear });
        match broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 100)).await {
            Ok(claimed) => {
                let verdicts: Vec<Settlement> = claimed
                    .iter()
                    .map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done })
                    .collect();
                proxy.set(Weather::Clear);
                let settled = healthy.settle(worker, verdicts).await.unwrap();
                done += settled.iter().filter(|answer| **answer == Settled::Applied).count();
            }
            Err(error) => {
                assert!(error.is_transient(), "{}", error.full());
                broken += 1;
            }
        }
    }
    assert_eq!(broken, 3);
}

/// A transaction of a user that enqueued and stays open: the jobs around it flow, its own come right after its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_long_transaction_of_a_user_holds_nobody_up() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "15s").await;
    let worker = register(&broker, PATIENCE).await;
    let (mut client, connection) =
        tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = client.transaction().await.unwrap();
    let late: Vec<NewJob> = (0..3).map(|_| new_job()).collect();
    let late_ids: HashSet<JobId> = late.iter().map(|job| job.id).collect();
    broker.enqueue_in(&transaction, late, EnqueueOptions::default()).await.unwrap();
    let take = async || {
        let claimed =
            broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 10)).await.unwrap();
        let verdicts =
            claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
        broker.settle(worker, verdicts).await.unwrap();
        claimed.iter().map(|job| job.job.id).collect::<HashSet<JobId>>()
    };
    for _ in 0..50 {
        let job = new_job();
        let id = job.id;
        broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
        assert_eq!(take().await, HashSet::from([id]));
    }
    assert!(take().await.is_empty());
    let waiting = {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move {
            broker
                .wait(celeriac_core::WaitOptions::new([QueueName::default_queue()], PATIENCE))
                .await
                .unwrap();
        })
    };
    transaction.commit().await.unwrap();
    timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert_eq!(take().await, late_ids);
    // A rolled back one leaves nothing, and what stood for it is forgotten.
    let transaction = client.transaction().await.unwrap();
    broker.enqueue_in(&transaction, vec![new_job()], EnqueueOptions::default()).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(take().await.is_empty());
    let report = broker.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// Two programs find no schema at the same time: one makes it, both go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_migrators_do_it_once() {
    let url = fresh_url().unwrap();
    let (one, two, three) = tokio::join!(open(&url, "30s"), open(&url, "30s"), open(&url, "30s"));
    for broker in [one, two, three] {
        assert_eq!(broker.stats().await.unwrap().queues.len(), 1);
        broker.enqueue(vec![new_job()], EnqueueOptions::default()).await.unwrap();
    }
}

/// A call that cannot get its lock ends at its deadline with an error that says so, and the connection is of use again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_that_takes_too_long_ends() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "300ms").await;
    let worker = register(&broker, PATIENCE).await;
    broker.enqueue(vec![new_job()], EnqueueOptions::default()).await.unwrap();
    let (mut client, connection) =
        tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let blocker = client.transaction().await.unwrap();
    blocker.batch_execute(&format!("lock table {schema}.jobs in access exclusive mode")).await.unwrap();
    for _ in 0..3 {
        let error =
            broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await.unwrap_err();
        assert_eq!(error.code().as_str(), "deadline_passed", "{}", error.full());
    }
    blocker.rollback().await.unwrap();
    let claim = async {
        loop {
            match broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await {
                Ok(claimed) if !claimed.is_empty() => return claimed.len(),
                Ok(_) => {}
                Err(error) => assert!(error.is_transient(), "{}", error.full()),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, claim).await.unwrap(), 1);
}
