//! What a handler writes in the worker's transaction is there once its job is done, and was never there otherwise.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, ClaimOptions, DecodeError, Details, EnqueueOptions, JobId, NewJob, Payload, QueueName, TaskName,
    TaskSpec, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions, Transaction};
use celeriac_testkit::ReferenceBroker;
use celeriac_testkit::postgres::fresh_url;
use celeriac_worker::generated::hand_in;
use celeriac_worker::{
    Invocation, Registry, Report, Shutdown, StateKey, TaskDefinition, TaskError, TaskFuture, Worker,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// The end of what a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names the URL to the process that is killed.
const VICTIM: &str = "CELERIAC_TEST_VICTIM_URL";

/// What the task is to do after its write.
const MODES: [&str; 4] = ["succeed", "fail once", "panic once", "ignore an error once"];

/// Writes its job's id, and ends in the way that its argument says.
fn write() -> TaskDefinition {
    fn spec() -> TaskSpec {
        let mut spec = TaskSpec::new(TaskName::new("write").unwrap());
        spec.retry = "1ms, 1ms".parse().unwrap();
        spec.max_attempts = 3;
        spec
    }
    fn run(mut invocation: Invocation) -> Result<TaskFuture, DecodeError> {
        let arguments: BTreeMap<String, String> = invocation.payload.decode()?;
        Ok(Box::pin(async move {
            let transaction: Transaction = hand_in(&mut invocation.transaction)?;
            let context = invocation.context;
            let (mode, schema) = (arguments["mode"].as_str(), arguments["schema"].as_str());
            let id = context.job_id().as_uuid();
            let failed = TaskError::from;
            let insert = format!("insert into {schema}.writes (job) values ($1)");
            transaction.execute(&insert, &[&id]).await.map_err(failed)?;
            let first = context.attempt() == 1 && context.lost_deliveries() == 0;
            match mode {
                "fail once" if first => return Err(TaskError::failed("as it should")),
                "panic once" if first => panic!("as it should"),
                "ignore an error once" if first => drop(transaction.execute("select 1 / 0", &[]).await),
                "wait first" if first => {
                    let other = connect(&arguments["url"]).await;
                    other
                        .execute(&format!("insert into {schema}.started (job) values ($1)"), &[&id])
                        .await
                        .unwrap();
                    let opened = format!("select count(*) from {schema}.gate");
                    while other.query_one(&opened, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                        sleep(Duration::from_millis(5)).await;
                    }
                }
                "commit" => transaction.batch_execute("rollback; begin").await.map_err(failed)?,
                "leak" => drop(tokio::spawn(async move {
                    let _kept = transaction;
                    std::future::pending::<()>().await;
                })),
                "break a deferred rule" => {
                    transaction.execute(&insert, &[&id]).await.map_err(failed)?;
                }
                _ => {}
            }
            Ok(())
        }))
    }
    TaskDefinition::new("write", spec, run, |_| Ok(()), &[], Vec::new, file!(), line!())
        .in_transaction(StateKey::of::<Transaction>)
}

struct Bench {
    url: String,
    schema: String,
    broker: Arc<PostgresBroker>,
    client: Client,
}

impl Bench {
    async fn new() -> Self {
        let url = fresh_url().unwrap();
        let schema = url.split("schema=").nth(1).unwrap().to_owned();
        let broker = open(&url).await;
        let client = connect(&url).await;
        let tables = format!(
            "create table {schema}.writes (job uuid not null unique deferrable initially deferred);
             create table {schema}.started (job uuid not null);
             create table {schema}.gate (opened bool not null)"
        );
        client.batch_execute(&tables).await.unwrap();
        Self { url, schema, broker, client }
    }

    async fn enqueue(&self, mode: &str) -> JobId {
        let arguments = serde_json::json!({"mode": mode, "schema": self.schema, "url": self.url});
        let payload = Payload::from_json(&arguments.to_string()).unwrap();
        let id = JobId::from_uuid(Uuid::now_v7());
        let job = NewJob::new(id, QueueName::default_queue(), TaskName::new("write").unwrap(), payload);
        self.broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
        id
    }

    async fn count(&self, table: &str) -> i64 {
        let count = format!("select count(*) from {}.{table}", self.schema);
        self.client.query_one(&count, &[]).await.unwrap().get(0)
    }

    /// Waits until a question has the answer `true`.
    async fn until(&self, what: &str, question: &str) {
        let started = Instant::now();
        let question = question.replace("@.", &format!("{}.", self.schema));
        while !self.client.query_one(&question, &[]).await.unwrap().get::<_, bool>(0) {
            assert!(started.elapsed() < PATIENCE, "waited in vain for: {what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn all_gone(&self) {
        self.until(
            "the end of all jobs",
            "select not exists (select 1 from @.jobs) and not exists (select 1 from @.scheduled)",
        )
        .await;
    }

    async fn buried(&self, id: JobId) -> Details {
        self.all_gone().await;
        self.broker.find(id).await.unwrap().unwrap()
    }
}

async fn open(url: &str) -> Arc<PostgresBroker> {
    Arc::new(PostgresBroker::open(PostgresOptions::from_url(url).unwrap()).await.unwrap())
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn start(broker: &Arc<PostgresBroker>, lease: Duration) -> (Shutdown, JoinHandle<Report>) {
    let registry = Registry::new().with(write()).unwrap();
    let worker = Worker::builder(Arc::clone(broker) as Arc<dyn Broker>, registry)
        .concurrency(4)
        .lease(lease)
        .build()
        .unwrap();
    let shutdown = Shutdown::new();
    let told = shutdown.clone();
    (shutdown, tokio::spawn(async move { worker.run(told).await.unwrap() }))
}

async fn stop((shutdown, worker): (Shutdown, JoinHandle<Report>)) -> Report {
    shutdown.drain();
    timeout(PATIENCE, worker).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_of_jobs_that_fail_on_the_way_happen_once() {
    let bench = Bench::new().await;
    for mode in MODES.iter().cycle().take(40) {
        bench.enqueue(mode).await;
    }
    let running = start(&bench.broker, Worker::DEFAULT_LEASE);
    bench.all_gone().await;
    let report = stop(running).await;
    assert_eq!((report.done, report.retried, report.stale), (40, 30, 0), "{report}");
    assert_eq!(bench.count("writes").await, 40);
    let figures = bench.broker.stats().await.unwrap().queues.remove(0);
    assert_eq!((figures.done, figures.dead, figures.held), (40, 0, 0));
    assert_eq!(bench.count("claims").await, 1, "claims are closed, and the newest is the queue's state");
    let report = bench.broker.check(Default::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// Each mistake ends in the bin with a text that says what to change, and nothing of it is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_meddle_with_the_transaction_store_nothing() {
    let bench = Bench::new().await;
    let running = start(&bench.broker, Worker::DEFAULT_LEASE);
    for (mode, text) in [
        ("commit", "leave commit and rollback to the worker"),
        ("leak", "end what it started"),
        ("break a deferred rule", "duplicate key"),
    ] {
        let id = bench.enqueue(mode).await;
        let dead = bench.buried(id).await;
        let error = dead.last_error().unwrap();
        assert!(error.contains(text), "{mode}: {error}");
        assert_eq!(dead.job.attempt, 3, "{mode}");
    }
    stop(running).await;
    assert_eq!(bench.count("writes").await, 0);
}

/// The worker was declared dead while its handler ran: what the handler wrote is not committed, and its job runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_lost_its_lease_cannot_commit() {
    let bench = Bench::new().await;
    bench.enqueue("wait first").await;
    let running = start(&bench.broker, Worker::DEFAULT_LEASE);
    bench.until("the handler", "select exists (select 1 from @.started)").await;
    let other = open(&bench.url).await;
    let worker = other.stats().await.unwrap().workers[0].id;
    other.retire(worker).await.unwrap();
    let gate = format!("insert into {}.gate (opened) values (true)", bench.schema);
    bench.client.batch_execute(&gate).await.unwrap();
    bench.all_gone().await;
    let report = stop(running).await;
    // It learns of the loss from its lease or from its verdict, whichever comes first.
    assert_eq!((report.done, report.leases_lost), (1, 1), "{report}");
    assert_eq!(bench.count("writes").await, 1);
}

/// `kill -9` between the write and its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_worker_leaves_nothing_and_its_job_runs_again() {
    let bench = Bench::new().await;
    bench.enqueue("wait first").await;
    let mut victim = Victim::start(&bench.url);
    bench.until("the handler", "select exists (select 1 from @.started)").await;
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    assert_eq!(bench.count("writes").await, 0);
    let running = start(&bench.broker, Worker::DEFAULT_LEASE);
    bench.all_gone().await;
    assert_eq!(stop(running).await.done, 1);
    assert_eq!(bench.count("writes").await, 1);
}

struct Victim(Child);

impl Victim {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_victim_of_the_kill", "--ignored"]).env(VICTIM, url);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "no test: a process that another test starts and kills"]
async fn the_victim_of_the_kill() {
    let Ok(url) = std::env::var(VICTIM) else { return };
    // Long enough for a busy machine to keep it, short enough to be waited out after the kill.
    let (_shutdown, worker) = start(&open(&url).await, Duration::from_secs(10));
    worker.await.unwrap();
}

/// The connection is gone when the verdict is written and the commit is not: neither is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_breaks_between_verdict_and_commit_stores_neither() {
    let bench = Bench::new().await;
    let id = bench.enqueue("succeed").await;
    let worker = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(worker, "once:1", [QueueName::default_queue()], PATIENCE);
    bench.broker.register(info).await.unwrap();
    let claimed =
        bench.broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await.unwrap();
    let receipt = claimed[0].receipt;
    let transactions = bench.broker.transactions().unwrap();
    let mut open = transactions.begin(worker, receipt).await.unwrap();
    let transaction = open.lend().unwrap().downcast::<Transaction>().unwrap();
    let schema = &bench.schema;
    transaction
        .execute(&format!("insert into {schema}.writes (job) values ($1)"), &[&id.as_uuid()])
        .await
        .unwrap();
    let settle = format!(
        "select {schema}.settle_in('{}', {}, {}, {}::smallint, {}, current_setting('celeriac.delivery'), '{{}}', '{{}}')",
        Uuid::from_bytes(*worker.as_bytes()),
        receipt.queue,
        receipt.claim.get(),
        receipt.lane,
        receipt.seq
    );
    transaction.query(&settle, &[]).await.unwrap();
    drop((transaction, open));
    // The server has noticed once the job's row is free again.
    bench.client.query_one(&format!("select 1 from {schema}.jobs for update"), &[]).await.unwrap();
    assert_eq!(bench.count("writes").await, 0);
    assert!(bench.broker.find(id).await.unwrap().unwrap().held_by.is_some());
    let second = transactions.begin(worker, receipt).await.unwrap();
    assert!(matches!(second.commit().await, celeriac_core::Committed::Applied));
    assert!(bench.broker.find(id).await.unwrap().is_none());
}

/// A handler enqueues the next step in its own transaction: the step exists if and only if this one is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_stored_in_the_transaction_come_with_its_commit() {
    let bench = Bench::new().await;
    bench.enqueue("succeed").await;
    let worker = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(worker, "once:1", [QueueName::default_queue()], PATIENCE);
    bench.broker.register(info).await.unwrap();
    let take = async || {
        bench.broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 5)).await.unwrap()
    };
    let claimed = take().await;
    let transactions = bench.broker.transactions().unwrap();
    for committed in [false, true] {
        let mut open = transactions.begin(worker, claimed[0].receipt).await.unwrap();
        let transaction = open.lend().unwrap().downcast::<Transaction>().unwrap();
        let payload = Payload::from_json("{}").unwrap();
        let id = JobId::from_uuid(Uuid::now_v7());
        let next = NewJob::new(id, QueueName::default_queue(), TaskName::new("write").unwrap(), payload);
        bench.broker.enqueue_in(&*transaction, vec![next], EnqueueOptions::default()).await.unwrap();
        drop(transaction);
        assert!(take().await.is_empty(), "not before the commit");
        if committed {
            open.commit().await;
            let next: Vec<JobId> = take().await.iter().map(|job| job.job.id).collect();
            assert_eq!(next, [id]);
        } else {
            open.roll_back().await;
            assert!(take().await.is_empty(), "not after a rollback");
        }
    }
}

#[tokio::test]
async fn a_store_without_transactions_is_refused_at_the_start() {
    let registry = Registry::new().with(write()).unwrap();
    let error = Worker::builder(Arc::new(ReferenceBroker::new()), registry).build().unwrap_err().to_string();
    for part in ["write", "exactly_once.rs", "celeriac_postgres::transaction::Transaction", "postgres://"] {
        assert!(error.contains(part), "{part} is missing in: {error}");
    }
}
