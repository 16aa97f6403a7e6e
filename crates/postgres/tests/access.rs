//! SQL from other languages, and a role with no more rights than it needs.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use celeriac_core::{
    Broker, ClaimOptions, EnqueueOptions, JobId, NewJob, Payload, QueueChange, QueueName, Settlement,
    TaskName, Verdict, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions, grants};
use celeriac_testkit::postgres::fresh_url;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn worker(broker: &PostgresBroker) -> WorkerId {
    let id = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(id, "access:1", [QueueName::default_queue()], Duration::from_secs(600));
    broker.register(info).await.unwrap();
    id
}

/// A job that plain SQL stored is a job like any other, and wrong values are refused with the place named.
#[tokio::test]
async fn sql_enqueues_with_the_same_checks() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let broker = PostgresBroker::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let worker = worker(&broker).await;
    let client = connect(&url).await;
    let sql = format!(
        "select {schema}.enqueue('default', 'thumbnail', '{{\"path\": \"a.png\", \"width\": 200}}', priority => 7)"
    );
    let id: Uuid = client.query_one(&sql, &[]).await.unwrap().get(0);
    assert_eq!(id.get_version_num(), 7);
    let claimed = broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 5)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let job = &claimed[0].job;
    assert_eq!((job.id, job.task.as_str(), job.priority.get()), (JobId::from_uuid(id), "thumbnail", 7));
    assert_eq!(job.payload.to_json().unwrap(), serde_json::json!({"path": "a.png", "width": 200}));
    for (arguments, code) in [
        ("'nowhere', 't', '{}'", "CJ001"),
        ("'default', 'no task', '{}'", "CJ005"),
        ("'default', 't', '[1]'", "CJ005"),
        ("'default', 't', null", "CJ005"),
        ("'default', 't', '{}', priority => 10", "CJ005"),
        ("'default', 't', '{}', delay => '-1 s'", "CJ005"),
        ("'default', 't', '{\"x\": \"0123456789\"}', max_payload => 10", "CJ003"),
    ] {
        let error =
            client.query_one(&format!("select {schema}.enqueue({arguments})"), &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), code, "{arguments}");
    }
    // The same id twice is one job.
    let again = Uuid::now_v7();
    for _ in 0..2 {
        client
            .query_one(&format!("select {schema}.enqueue('default', 't', '{{}}', id => '{again}')"), &[])
            .await
            .unwrap();
    }
    let claimed = broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 5)).await.unwrap();
    assert_eq!(claimed.len(), 1);
}

/// The recipe is enough for a service and a worker, and not for more.
#[tokio::test]
async fn a_role_with_few_rights_is_enough() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let options = PostgresOptions::from_url(&url).unwrap();
    let owner = PostgresBroker::open(options.clone()).await.unwrap();
    let client = connect(&url).await;
    let role = format!("app_{schema}");
    client.batch_execute(&format!("create role {role} login; {}", grants(&options, &role))).await.unwrap();
    let as_role = url.replace("//postgres@", &format!("//{role}@"));
    let broker = PostgresBroker::open(PostgresOptions::from_url(&as_role).unwrap()).await.unwrap();
    let mut change = QueueChange::default();
    change.delivery_limit = Some(5);
    let media = QueueName::new("media").unwrap();
    broker.declare(media.clone(), change).await.unwrap();
    let task = TaskName::new("work").unwrap();
    let job =
        NewJob::new(JobId::from_uuid(Uuid::now_v7()), media.clone(), task, Payload::from_json("{}").unwrap());
    broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
    let worker = worker(&broker).await;
    let claimed = broker.claim(ClaimOptions::new(worker, [media], 5)).await.unwrap();
    let verdicts =
        vec![Settlement { receipt: claimed[0].receipt, verdict: Verdict::Snooze { after: Duration::ZERO } }];
    broker.settle(worker, verdicts).await.unwrap();
    assert_eq!(broker.maintain(celeriac_core::MaintainOptions::default()).await.unwrap().promoted, 1);
    broker.retire(worker).await.unwrap();
    assert!(broker.check(celeriac_core::CheckOptions::default()).await.unwrap().violations.is_empty());
    let limited = connect(&as_role).await;
    for forbidden in [
        format!("drop table {schema}.jobs"),
        format!("create table {schema}.mine (x int)"),
        format!("insert into {schema}.migrations (version, name) values (99, 'x')"),
    ] {
        assert!(limited.batch_execute(&forbidden).await.is_err(), "{forbidden}");
    }
    drop(owner);
}

/// A store that a newer program made is refused, with both versions named.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let options = PostgresOptions::from_url(&url).unwrap();
    assert_eq!(PostgresBroker::schema_version(&options).await.unwrap(), 0);
    let refused =
        PostgresBroker::open(PostgresOptions::from_url(&format!("{url}&migrate=off")).unwrap()).await;
    assert_eq!(refused.unwrap_err().code().as_str(), "not_a_store");
    drop(PostgresBroker::open(options.clone()).await.unwrap());
    connect(&url)
        .await
        .batch_execute(&format!("insert into {schema}.migrations (version, name) values (99, 'x')"))
        .await
        .unwrap();
    let error = PostgresBroker::open(options).await.unwrap_err();
    assert_eq!(error.code().as_str(), "schema_too_new");
    assert!(error.to_string().contains("99"), "{error}");
}

/// `doctor` names what holds vacuum back, and says what a confirmed job has survived.
#[tokio::test]
async fn the_check_names_what_holds_vacuum_back() {
    // A server of its own: others hold transactions open too.
    let server = celeriac_testkit::postgres::TestServer::private().unwrap();
    let url = format!("{}?schema=jobs", server.url());
    let broker = PostgresBroker::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let notes = async || {
        let report = broker.check(celeriac_core::CheckOptions::default()).await.unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        report.notes.join("\n")
    };
    let before = notes().await;
    assert!(!before.contains("holds back vacuum"), "{before}");
    assert!(before.contains("on no synchronous replica"), "{before}");
    let forgotten = connect(&url).await;
    forgotten
        .batch_execute("set application_name = 'weekly report'; begin isolation level repeatable read; select 1 from pg_class")
        .await
        .unwrap();
    let slots = connect(&url).await;
    slots.batch_execute("set synchronous_commit = off").await.unwrap();
    // Other transactions come and go, many enough to matter.
    slots
        .batch_execute(
            "do $$ begin for n in 1..60000 loop perform pg_current_xact_id(); commit; end loop; end $$",
        )
        .await
        .unwrap();
    let after = notes().await;
    for part in ["application weekly report", "holds back vacuum", "pg_terminate_backend"] {
        assert!(after.contains(part), "{part} is missing in {after}");
    }
    forgotten.batch_execute("rollback").await.unwrap();
    let ended = notes().await;
    assert!(!ended.contains("holds back vacuum"), "{ended}");
}

/// What SQL refuses has the same codes in Rust.
#[tokio::test]
async fn refusals_of_sql_are_the_errors_of_the_program() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let broker = PostgresBroker::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let client = connect(&url).await;
    // A user's trigger calls our function within an enqueue.
    client
        .batch_execute(&format!(
            "create function {schema}.follow() returns trigger language plpgsql as $$ begin
               perform {schema}.enqueue('default', 'follow', '{{\"x\": \"0123456789\"}}', max_payload => 10);
               return new;
             end $$;
             create trigger follow after insert on {schema}.jobs for each row when (new.task = 'lead')
               execute function {schema}.follow()"
        ))
        .await
        .unwrap();
    let id = JobId::from_uuid(Uuid::now_v7());
    let task = TaskName::new("lead").unwrap();
    let job = NewJob::new(id, QueueName::default_queue(), task, Payload::from_json("{}").unwrap());
    let error = broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "payload_too_large", "{}", error.full());
    assert!(error.to_string().contains("follow") && error.to_string().contains("limit is 10"), "{error}");
}
