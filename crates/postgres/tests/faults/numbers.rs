//! Numbers past 2^31: sequences of a store that has run for years.

use std::collections::HashSet;
use std::time::Duration;

use celeriac_core::{
    Broker, BulkAct, BulkOptions, CheckOptions, ClaimOptions, DeadReason, EnqueueOptions, Filter, JobId,
    MaintainOptions, PageOptions, QueueName, Room, Settled, Settlement, Start, Verdict,
};
use celeriac_testkit::postgres::fresh_url;

use crate::load::{PATIENCE, connect, new_job, open, register};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_past_two_billion_work_in_every_room() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let broker = open(&url, "15s").await;
    let client = connect(&url).await;
    // Every sequence of the schema, also those of numbered rows.
    let raise = "select setval(format('%I.%I', schemaname, sequencename), 5000000000 + 64 * row_number() over ()) \
                 from pg_sequences where schemaname = $1 and data_type = 'bigint'::regtype and sequencename not like 'admitted%'";
    let raised = client.query(raise, &[&schema]).await.unwrap().len();
    assert!(raised >= 15, "{raised} sequences");
    let worker = register(&broker, PATIENCE).await;
    let mut ids = HashSet::new();
    for delayed in [false, true] {
        let mut jobs: Vec<_> = (0..4).map(|_| new_job()).collect();
        if delayed {
            jobs.iter_mut().for_each(|job| job.start = Start::After(Duration::from_millis(1)));
        }
        ids.extend(jobs.iter().map(|job| job.id));
        broker.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
    }
    let mut done: HashSet<JobId> = HashSet::new();
    let mut step = 0;
    while done.len() < ids.len() {
        broker.maintain(MaintainOptions::default()).await.unwrap();
        let claimed = broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await.unwrap();
        if let Some(job) = claimed.first() {
            assert!(job.receipt.seq >> 16 > i64::from(i32::MAX), "{:?}", job.receipt);
            let verdict = match step {
                0 => Verdict::Snooze { after: Duration::ZERO },
                1 => Verdict::Release,
                2 => Verdict::Park,
                3 => Verdict::Reject { reason: DeadReason::Rejected, failure: None },
                _ => Verdict::Done,
            };
            if verdict == Verdict::Done || verdict == Verdict::Park {
                done.insert(job.job.id);
            }
            let answers =
                broker.settle(worker, vec![Settlement { receipt: job.receipt, verdict }]).await.unwrap();
            assert_eq!(answers, [Settled::Applied]);
            step += 1;
        } else {
            let replay = BulkAct::Replay { queue: None };
            broker.bulk(Filter::room(Room::Dead), replay, BulkOptions::default()).await.unwrap();
        }
        assert!(step < 100, "the jobs go round and round");
    }
    let parked = broker.list(Filter::room(Room::Parked), PageOptions::default()).await.unwrap();
    assert_eq!(parked.jobs.len(), 1);
    let report = broker.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}
