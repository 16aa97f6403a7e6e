//! The full check that every store gets by itself.

use std::time::{Duration, Instant};

use celeriac_core::{Broker, CheckOptions, ClaimOptions, EnqueueOptions, MaintainOptions, QueueName};
use celeriac_testkit::postgres::fresh_url;
use tokio::time::sleep;

use crate::load::{PATIENCE, connect, new_job, open, register};

/// Jobs that nothing leads to any more, and jobs of a worker that nobody knows, come back by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_nothing_leads_to_come_back_by_themselves() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let broker = open(&url, "15s").await;
    let client = connect(&url).await;
    let worker = register(&broker, PATIENCE).await;
    let stranger = register(&broker, PATIENCE).await;
    broker.enqueue((0..7).map(|_| new_job()).collect(), EnqueueOptions::default()).await.unwrap();
    let take = async |worker, limit| {
        broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], limit)).await.unwrap().len()
    };
    // Held by a worker that vanishes, held and kept, and taken by a claim that vanishes.
    assert_eq!((take(stranger, 2).await, take(worker, 2).await, take(worker, 3).await), (2, 2, 3));
    let damage = format!(
        "delete from {schema}.workers where id = (select worker from {schema}.claims order by claim limit 1);
         update {schema}.claims set closed = true where claim = (select max(claim) from {schema}.claims);
         update {schema}.patrol set due_at = clock_timestamp()"
    );
    client.batch_execute(&damage).await.unwrap();
    // Another process: the first has already asked when the check is due.
    let other = open(&url, "15s").await;
    let started = Instant::now();
    let mut mended = 0;
    while mended < 4 {
        assert!(started.elapsed() < PATIENCE, "{mended} were found");
        mended += other.maintain(MaintainOptions::default()).await.unwrap().mended;
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(take(worker, 10).await, 5, "what is held stays where it is");
    let (wait, found): (f64, i64) = {
        let asked = format!(
            "select extract(epoch from due_at - clock_timestamp())::float8, found from {schema}.patrol"
        );
        let row = client.query_one(&asked, &[]).await.unwrap();
        (row.get(0), row.get(1))
    };
    assert!(wait > 60.0, "the next check is in {wait} s");
    assert_eq!(found, 4, "one claim of an unknown worker, and three jobs");
    let report = broker.check(CheckOptions::default()).await.unwrap();
    let broken: Vec<_> =
        report.violations.iter().filter(|found| !found.invariant.contains("figures")).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
