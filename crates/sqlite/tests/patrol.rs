//! The full check that every store gets by itself.

use std::time::Duration;

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, EnqueueOptions, JobId, MaintainOptions, NewJob, Payload, QueueName,
    Result, TaskName, WorkerId, WorkerInfo,
};
use celeriac_sqlite::{SqliteBroker, SqliteOptions};
use uuid::Uuid;

/// Jobs of a claim whose worker nobody knows come back by themselves, once the check is due.
#[tokio::test]
async fn jobs_that_nothing_leads_to_come_back_by_themselves() -> Result<()> {
    let folder =
        tempfile::tempdir().map_err(|error| celeriac_core::Error::corrupt("a folder", error.to_string()))?;
    let file = folder.path().join("jobs.db");
    let broker = SqliteBroker::open(SqliteOptions::file(&file)).await?;
    let queue = QueueName::default_queue();
    let task = TaskName::new("task")?;
    let jobs = (0..5).map(|number| {
        let id = JobId::from_key("task", &number.to_string());
        NewJob::new(id, queue.clone(), task.clone(), Payload::from_stored(vec![1, 0x80]))
    });
    broker.enqueue(jobs.collect(), EnqueueOptions::default()).await?;
    let [worker, stranger] = [1, 2].map(|number| WorkerId::from_uuid(Uuid::from_bytes([number; 16])));
    for id in [worker, stranger] {
        broker.register(WorkerInfo::new(id, "test", [queue.clone()], Duration::from_secs(600))).await?;
    }
    let take = async |worker, limit| {
        Ok::<_, celeriac_core::Error>(
            broker.claim(ClaimOptions::new(worker, [queue.clone()], limit)).await?.len(),
        )
    };
    assert_eq!((take(stranger, 3).await?, take(worker, 2).await?), (3, 2));
    let maintain = async || broker.maintain(MaintainOptions::default()).await;
    assert_eq!(maintain().await?.mended, 0);
    let damage = rusqlite::Connection::open(&file).and_then(|connection| {
        connection.execute("delete from workers where worker = ?1", [[2_u8; 16]])?;
        connection.execute("update patrol set due_at = 1", [])
    });
    damage.map_err(|error| celeriac_core::Error::corrupt("the file", error.to_string()))?;
    assert_eq!(maintain().await?.mended, 1, "one claim");
    assert_eq!(maintain().await?.mended, 0, "not due again");
    let mut back = 0;
    // Suspects of a crash come one by one.
    for _ in 0..3 {
        back += take(worker, 5).await?;
    }
    assert!(back >= 1, "nothing came back");
    assert!(broker.check(CheckOptions::default()).await?.violations.is_empty());
    Ok(())
}
