//! The plans of the hot statements, as the server makes them inside the functions, on tables of every size: an index
//! condition for each key, never a scan of a table, a filter over a lane, or a sort of one.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::time::Duration;

use celeriac_core::{
    Broker, ClaimOptions, EnqueueOptions, JobId, NewJob, Payload, QueueName, Settlement, TaskName, Verdict,
    WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::postgres::TestServer;
use celeriac_testkit::postgres::fresh_schema;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Rows of the large table; `CELERIAC_PLAN_ROWS` goes before.
const MANY: i64 = 200_000;

/// Every statement of a session with its plan, through the server's log: what runs inside a function is nowhere else.
const EXPLAIN: &str = "alter role postgres set session_preload_libraries = 'auto_explain';
    alter role postgres set auto_explain.log_min_duration = 0;
    alter role postgres set auto_explain.log_nested_statements = on;
    alter role postgres set auto_explain.log_analyze = on;
    alter role postgres set auto_explain.log_timing = off;";

fn jobs(count: usize) -> Vec<NewJob> {
    let one = || {
        let id = JobId::from_uuid(Uuid::now_v7());
        let payload = Payload::from_json("{}").unwrap();
        NewJob::new(id, QueueName::default_queue(), TaskName::new("work").unwrap(), payload)
    };
    (0..count).map(|_| one()).collect()
}

/// One of everything that is hot: enqueue in bulk and singly, claim, done in runs and singly, a retry.
async fn exercise(broker: &PostgresBroker) {
    let worker = WorkerId::from_uuid(Uuid::new_v4());
    let info = WorkerInfo::new(worker, "plans:1", [QueueName::default_queue()], Duration::from_secs(600));
    broker.register(info).await.unwrap();
    for _ in 0..3 {
        broker.enqueue(jobs(20), EnqueueOptions::default()).await.unwrap();
        broker.enqueue(jobs(1), EnqueueOptions::default()).await.unwrap();
        let claimed =
            broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 15)).await.unwrap();
        let settle = async |from: usize, to: usize, step: usize, verdict: Verdict| {
            let verdicts = claimed[from..to]
                .iter()
                .step_by(step)
                .map(|job| Settlement { receipt: job.receipt, verdict: verdict.clone() })
                .collect();
            broker.settle(worker, verdicts).await.unwrap();
        };
        settle(0, 8, 1, Verdict::Done).await;
        settle(8, 12, 2, Verdict::Done).await;
        settle(9, 10, 1, Verdict::Snooze { after: Duration::from_secs(600) }).await;
        settle(11, 12, 1, Verdict::Release).await;
    }
    broker.retire(worker).await.unwrap();
}

async fn client(server: &TestServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Complaints about the plans that the log holds for statements on the large tables of `schema`.
fn complaints(log: &str, schema: &str) -> Vec<String> {
    let mut found = Vec::new();
    let large = ["jobs", "claims", "scheduled", "dead", "remembered"];
    let mut relation = String::new();
    for line in log.lines() {
        for table in large {
            let name = format!(" on {table}");
            let scanned = line.contains(&name);
            if scanned
                && line.contains("Seq Scan")
                && !line.contains("never executed")
                && !line.contains("rows=0 ")
            {
                found.push(line.trim().to_owned());
            }
            if scanned {
                relation = line.trim().to_owned();
            }
        }
        // A filter that drops more rows than a batch has reads a lane where an index condition would not.
        if let Some(count) = line.trim().strip_prefix("Rows Removed by Filter: ")
            && count.parse::<u64>().unwrap_or(0) > 200
        {
            found.push(format!("{relation}: {count} rows were read and dropped ({schema})"));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_statements_use_their_keys_on_tables_of_every_size() {
    let server = TestServer::private().unwrap();
    let admin = client(&server).await;
    let rows = std::env::var("CELERIAC_PLAN_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(MANY);
    let schema = fresh_schema();
    let options =
        PostgresOptions::from_url(&format!("{}?schema={schema}&deadline=60s", server.url())).unwrap();
    // Sessions of the first broker are made without the explanations: its set-up scans what is empty.
    drop(PostgresBroker::open(options.clone()).await.unwrap());
    admin.batch_execute(EXPLAIN).await.unwrap();
    for size in [0, 1_000, rows] {
        let fill = format!(
            "set session auto_explain.log_min_duration = -1; truncate {schema}.jobs, {schema}.claims, {schema}.scheduled;
             select setval('{schema}.lane_1_0', 1 + {size} / 100);
             insert into {schema}.jobs (queue, lane, seq, id, enqueued_at, task, payload)
               select 1, 0, ((1 + n / 100) << 16) + n % 100, gen_random_uuid(), now(), 'work', '\\x027b7d' from generate_series(1, {size}) n;
             insert into {schema}.scheduled (queue, priority, attempt, deliveries, id, enqueued_at, due_at, since, task, payload)
               select 1, 0, 0, 0, gen_random_uuid(), now(), now() + '1 hour', now(), 'work', '\\x027b7d' from generate_series(1, {size}) n"
        );
        let quiet = client(&server).await;
        quiet.batch_execute(&fill).await.unwrap();
        // What the planner knows: first nothing, then what is there.
        for analyze in [false, true] {
            if analyze {
                quiet
                    .batch_execute(&format!(
                        "vacuum analyze {schema}.jobs, {schema}.claims, {schema}.scheduled"
                    ))
                    .await
                    .unwrap();
            }
            let before = server.log().unwrap().len();
            let broker = PostgresBroker::open(options.clone()).await.unwrap();
            exercise(&broker).await;
            let log = server.log().unwrap();
            let plans = &log[before..];
            assert!(plans.contains("Query Text"), "the log has no plans");
            let found = complaints(plans, &schema);
            assert!(found.is_empty(), "{size} rows, analyzed: {analyze}: {found:#?}");
        }
    }
}

/// The complaints would be heard.
#[test]
fn a_bad_plan_is_seen() {
    assert!(
        !complaints(
            "  ->  Seq Scan on jobs y  (cost=0.00..1.00 rows=1 width=4) (actual rows=7 loops=1)",
            "s"
        )
        .is_empty()
    );
    assert!(
        !complaints("Index Scan using jobs_pkey on jobs y\n   Rows Removed by Filter: 5000", "s").is_empty()
    );
    assert!(
        complaints("Index Scan using jobs_pkey on jobs y\n   Rows Removed by Filter: 12", "s").is_empty()
    );
}
