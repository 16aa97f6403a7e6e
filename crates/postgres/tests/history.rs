//! The ledger of finished jobs in its partitions, and what it costs.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::time::Duration;

use celeriac_core::{
    Broker, ClaimOptions, EnqueueOptions, JobId, MaintainOptions, NewJob, Payload, QueueChange, QueueName,
    Settlement, TaskName, Verdict, WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::postgres::{TestServer, fresh_url};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn open(url: &str) -> (PostgresBroker, Client, WorkerId) {
    let broker = PostgresBroker::open(PostgresOptions::from_url(url).unwrap()).await.unwrap();
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let worker = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(worker, "history:1", [QueueName::default_queue()], DAY);
    broker.register(info).await.unwrap();
    (broker, client, worker)
}

async fn keep(broker: &PostgresBroker, history: Option<Duration>) {
    let mut change = QueueChange::default();
    change.history = Some(history);
    broker.declare(QueueName::default_queue(), change).await.unwrap();
}

/// Stores and finishes `count` jobs in one batch; gives their ids.
async fn finish(broker: &PostgresBroker, worker: WorkerId, count: usize) -> Vec<JobId> {
    let task = TaskName::new("work").unwrap();
    let jobs: Vec<NewJob> = (0..count)
        .map(|_| {
            let payload = Payload::from_stored(vec![1; 200]);
            NewJob::new(JobId::from_uuid(Uuid::now_v7()), QueueName::default_queue(), task.clone(), payload)
        })
        .collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    broker.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
    let claimed = broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], count)).await.unwrap();
    let verdicts =
        claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
    broker.settle(worker, verdicts).await.unwrap();
    ids
}

/// Days get their partitions before they begin, and old ones are dropped whole.
#[tokio::test]
async fn partitions_come_and_go_by_themselves() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let (broker, client, worker) = open(&url).await;
    let partitions = async || -> Vec<String> {
        let rows = client
            .query(
                "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid \
                 where i.inhparent = ($1::text || '.history')::regclass order by 1",
                &[&schema],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let maintain = async || {
        broker.maintain(MaintainOptions::default()).await.unwrap();
    };
    maintain().await;
    assert_eq!(partitions().await, ["history_rest"], "nobody asked for a history");
    keep(&broker, Some(3 * DAY)).await;
    // Before the first maintenance there is no partition of today.
    let early = finish(&broker, worker, 3).await;
    let old = format!(
        "create table {schema}.history_20200101 partition of {schema}.history \
         for values from ('2020-01-01 00:00Z') to ('2020-01-02 00:00Z')"
    );
    client.batch_execute(&old).await.unwrap();
    maintain().await;
    let found = partitions().await;
    assert!(!found.contains(&"history_20200101".to_owned()), "{found:?}");
    let late = finish(&broker, worker, 3).await;
    for id in early.iter().chain(&late) {
        assert!(broker.finished(*id).await.unwrap().is_some(), "{id}; partitions {found:?}");
    }
    let tomorrow: String = client
        .query_one("select 'history_' || to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD')", &[])
        .await
        .unwrap()
        .get(0);
    assert!(found.contains(&tomorrow), "{found:?}");
}

/// What a history writes beside the rest: printed, for the decision about its default.
#[tokio::test]
async fn the_cost_of_a_history_is_told() {
    let server = TestServer::private().unwrap();
    let (broker, client, worker) = open(&format!("{}?schema=jobs", server.url())).await;
    let position = async || -> i64 {
        let row =
            client.query_one("select (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await.unwrap();
        row.get(0)
    };
    let (batches, size) = (50, 100);
    for history in [None, Some(DAY), None, Some(DAY)] {
        keep(&broker, history).await;
        broker.maintain(MaintainOptions::default()).await.unwrap();
        client.batch_execute("checkpoint").await.unwrap();
        finish(&broker, worker, size).await;
        let before = position().await;
        for _ in 0..batches {
            finish(&broker, worker, size).await;
        }
        let bytes = position().await - before;
        println!("history {history:?}: {} WAL bytes a job", bytes / (batches * i64::try_from(size).unwrap()));
    }
}
