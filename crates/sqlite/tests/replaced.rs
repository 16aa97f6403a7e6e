//! A file that is taken away from under its users.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::fs;

use celeriac_core::{Broker, EnqueueOptions, JobId, NewJob, Payload, QueueName, TaskName};
use celeriac_sqlite::{SqliteBroker, SqliteOptions};

fn job(key: &str) -> Vec<NewJob> {
    let task = TaskName::new("task").unwrap();
    let id = JobId::from_key("task", key);
    vec![NewJob::new(id, QueueName::default_queue(), task, Payload::from_stored(vec![1, 0x80]))]
}

/// An enqueue into a file that nobody else can find any more must not be confirmed.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_confirms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let broker = SqliteBroker::open(SqliteOptions::file(&path)).await.unwrap();
    broker.enqueue(job("before"), EnqueueOptions::default()).await.unwrap();

    for name in ["jobs.db", "jobs.db-wal", "jobs.db-shm"] {
        fs::rename(folder.path().join(name), folder.path().join(format!("old-{name}"))).unwrap();
    }
    let error = broker.enqueue(job("removed"), EnqueueOptions::default()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "not_a_store", "{}", error.full());
    assert!(error.to_string().contains("restart"), "{error}");
    assert!(broker.stats().await.is_err());

    let other = SqliteBroker::open(SqliteOptions::file(&path)).await.unwrap();
    broker.enqueue(job("replaced"), EnqueueOptions::default()).await.unwrap_err();
    other.enqueue(job("new"), EnqueueOptions::default()).await.unwrap();
    assert_eq!(other.stats().await.unwrap().queues[0].ready, 1);
}
