//! Callers that give up on a call while the store is at work on it.

use std::time::Duration;

use celeriac_core::{
    Broker, ClaimOptions, EnqueueOptions, JobId, NewJob, Payload, QueueName, Result, Settlement, TaskName,
    Verdict, WorkerId, WorkerInfo,
};
use celeriac_sqlite::{SqliteBroker, SqliteOptions};
use uuid::Uuid;

const JOBS: usize = 300;

/// Claims whose answer nobody hears must not hold their jobs for as long as their worker lives.
#[tokio::test]
async fn a_claim_that_nobody_waits_for_holds_nothing() -> Result<()> {
    let folder =
        tempfile::tempdir().map_err(|error| celeriac_core::Error::corrupt("a folder", error.to_string()))?;
    let broker = SqliteBroker::open(SqliteOptions::file(folder.path().join("jobs.db"))).await?;
    let queue = QueueName::default_queue();
    let task = TaskName::new("task")?;
    let jobs = (0..JOBS).map(|number| {
        let id = JobId::from_key("task", &number.to_string());
        NewJob::new(id, queue.clone(), task.clone(), Payload::from_stored(vec![1, 0x80]))
    });
    broker.enqueue(jobs.collect(), EnqueueOptions::default()).await?;
    let worker = WorkerId::from_uuid(Uuid::from_bytes([7; 16]));
    broker.register(WorkerInfo::new(worker, "test", [queue.clone()], Duration::from_secs(600))).await?;
    let claim = || broker.claim(ClaimOptions::new(worker, [queue.clone()], 1));

    let (mut unheard, mut done) = (0, 0);
    while done < JOBS {
        // Given up at many different moments: before, while and after the store works on it.
        let patience = Duration::from_micros(20 * (unheard % 60));
        let heard = tokio::time::timeout(patience, claim()).await;
        let Ok(claimed) = heard else {
            unheard += 1;
            // Every other job is claimed in peace, so that the test ends on the slowest machine.
            let claimed = claim().await?;
            assert!(!claimed.is_empty(), "{done} done; the others are held by claims that nobody heard of");
            for job in claimed {
                broker
                    .settle(worker, vec![Settlement { receipt: job.receipt, verdict: Verdict::Done }])
                    .await?;
                done += 1;
            }
            continue;
        };
        let claimed = claimed?;
        assert!(!claimed.is_empty(), "{done} done; the others are held by claims that nobody heard of");
        for job in claimed {
            broker.settle(worker, vec![Settlement { receipt: job.receipt, verdict: Verdict::Done }]).await?;
            done += 1;
        }
    }
    assert!(unheard > 0, "no claim was given up");
    let stats = broker.stats().await?;
    assert_eq!((stats.queues[0].ready, stats.queues[0].held), (0, 0));
    Ok(())
}
