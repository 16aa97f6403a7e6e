//! Programs of two versions on one schema, and processes whose clocks differ.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use celeriac_core::{Broker, ClaimOptions, EnqueueOptions, JobId, QueueName, Renewal};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::postgres::fresh_url;
use tokio_postgres::error::SqlState;
use uuid::{Timestamp, Uuid};

use crate::load::{PATIENCE, connect, new_job, open, register};

/// What programs of schema version 1 send. A step of the schema that breaks one of these would stop workers that are
/// still running when the first new one starts.
const VERSION_1: &str = include_str!("statements_of_version_1.txt");

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

#[tokio::test]
async fn the_newest_schema_serves_older_programs() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    drop(open(&url, "30s").await);
    let client = connect(&url).await;
    for statement in VERSION_1.lines().filter(|line| !line.starts_with("begin") && *line != "commit") {
        let text = statement.replace("@.", &format!("{schema}."));
        if let Err(error) = client.prepare(&text).await {
            // The programs give types to parameters that the text leaves open.
            let open = [
                SqlState::INDETERMINATE_DATATYPE,
                SqlState::AMBIGUOUS_PARAMETER,
                SqlState::AMBIGUOUS_FUNCTION,
            ];
            assert!(error.code().is_some_and(|code| open.contains(code)), "{text}: {error:?}");
        }
    }
}

/// A program that starts on a schema of the next version goes on if that version says that it may.
#[tokio::test]
async fn an_older_program_starts_on_a_newer_schema_that_serves_it() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    drop(open(&url, "30s").await);
    let client = connect(&url).await;
    let newer = |oldest: &str| {
        format!(
            "delete from {schema}.migrations where version = 99;
             insert into {schema}.migrations (version, name, oldest) values (99, 'of the future', {oldest})"
        )
    };
    client.batch_execute(&newer("1")).await.unwrap();
    let broker = open(&url, "30s").await;
    broker.enqueue(vec![new_job()], EnqueueOptions::default()).await.unwrap();
    for oldest in ["99", "null"] {
        client.batch_execute(&newer(oldest)).await.unwrap();
        let error = PostgresBroker::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap_err();
        assert_eq!(error.code().as_str(), "schema_too_new", "{oldest}");
    }
}

/// Producers whose clocks are an hour off make ids of other times; nothing else of their clocks gets anywhere. (No
/// statement takes an instant of the program: see `statement.rs`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_off_changes_nothing() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "15s").await;
    let worker = register(&broker, PATIENCE).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let hour = Duration::from_secs(3600);
    let mut ids = Vec::new();
    for clock in [now, now + hour, now - hour, now] {
        let time = Timestamp::from_unix(uuid::NoContext, clock.as_secs(), clock.subsec_nanos());
        let mut job = new_job();
        job.id = JobId::from_uuid(Uuid::new_v7(time));
        ids.push(job.id);
        broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
    }
    let claimed = broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 9)).await.unwrap();
    assert_eq!(claimed.iter().map(|job| job.job.id).collect::<Vec<_>>(), ids, "first in, first out");
    assert_eq!(broker.renew(worker, PATIENCE).await.unwrap(), Renewal::Held);
    let stats = broker.stats().await.unwrap();
    assert!(stats.workers[0].lease_left <= PATIENCE && stats.workers[0].lease_left > PATIENCE / 2);
}
