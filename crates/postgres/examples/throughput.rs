//! What the engine costs beside the floor: `cargo run --example throughput -- postgres://… [seconds] [snapshot]`.
//!
//! Produces and consumes at once in batches of 100 with 200-byte payloads, in turn through the engine and as bare
//! `insert` and `delete` of a table of the same columns (the floor), and prints jobs a second, WAL bytes a job, and for
//! the engine the first and the last tenth. With `snapshot` another session holds an old snapshot all the time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, ClaimOptions, EnqueueOptions, JobId, NewJob, Payload, QueueName, Settlement, TaskName, Verdict,
    WorkerId, WorkerInfo,
};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

type Failure = Box<dyn Error + Send + Sync>;

const BATCH: usize = 100;
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 2;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: throughput URL [SECONDS] [snapshot]")?;
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let snapshot = arguments.next().is_some();
    let plain = url.split('?').next().unwrap_or(&url).to_owned();
    let admin = connect(&plain).await?;
    let holder = connect(&plain).await?;
    if snapshot {
        holder.batch_execute("begin isolation level repeatable read; select 1 from pg_class limit 1").await?;
    }
    for _ in 0..2 {
        let done = Arc::new(AtomicU64::new(0));
        measure("engine", seconds, &admin, &done, engine(&url, &done)).await?;
        let done = Arc::new(AtomicU64::new(0));
        measure("floor", seconds, &admin, &done, floor(&plain, &done)).await?;
    }
    Ok(())
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Runs a load for a while and prints its figures.
async fn measure(
    name: &str,
    seconds: u64,
    admin: &Client,
    done: &Arc<AtomicU64>,
    load: impl Future<Output = Result<(Arc<AtomicBool>, JoinSet<Result<(), Failure>>), Failure>>,
) -> Result<(), Failure> {
    let wal: String = admin.query_one("select pg_current_wal_lsn()::text", &[]).await?.get(0);
    let (stop, mut tasks) = load.await?;
    let started = Instant::now();
    let mut tenths = Vec::new();
    let mut last = 0;
    for _ in 0..10 {
        sleep(Duration::from_millis(seconds * 100)).await;
        let now = done.load(Ordering::Relaxed);
        tenths.push((now - last) * 10 / seconds.max(1));
        last = now;
    }
    let (jobs, elapsed) = (done.load(Ordering::Relaxed), started.elapsed());
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let all = done.load(Ordering::Relaxed).max(1);
    let bytes: i64 = admin
        .query_one("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::bigint", &[&wal])
        .await?
        .get(0);
    let rate = jobs as f64 / elapsed.as_secs_f64();
    println!("{name}: {rate:.0} jobs/s, {} WAL bytes a job, tenths {tenths:?}", bytes / i64::try_from(all)?);
    Ok(())
}

async fn engine(
    url: &str,
    done: &Arc<AtomicU64>,
) -> Result<(Arc<AtomicBool>, JoinSet<Result<(), Failure>>), Failure> {
    let broker = Arc::new(PostgresBroker::open(PostgresOptions::from_url(url)?).await?);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let task = TaskName::new("work")?;
    for _ in 0..PRODUCERS {
        let (broker, stop, task) = (Arc::clone(&broker), Arc::clone(&stop), task.clone());
        let done = Arc::clone(done);
        tasks.spawn(async move {
            let mut stored = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // A backlog of a second or so is kept, no more.
                if stored * PRODUCERS as u64 > done.load(Ordering::Relaxed) + 20_000 {
                    sleep(Duration::from_millis(2)).await;
                    continue;
                }
                let jobs = (0..BATCH)
                    .map(|_| {
                        let mut bytes = vec![b'x'; 200];
                        bytes[0] = 2;
                        let id = JobId::from_uuid(Uuid::now_v7());
                        NewJob::new(id, QueueName::default_queue(), task.clone(), Payload::from_stored(bytes))
                    })
                    .collect();
                broker.enqueue(jobs, EnqueueOptions::default()).await?;
                stored += BATCH as u64;
            }
            Ok(())
        });
    }
    for _ in 0..CONSUMERS {
        let (broker, stop, done) = (Arc::clone(&broker), Arc::clone(&stop), Arc::clone(done));
        tasks.spawn(async move {
            let worker = WorkerId::from_uuid(Uuid::new_v4());
            let queues = [QueueName::default_queue()];
            broker
                .register(WorkerInfo::new(worker, "bench:1", queues.clone(), Duration::from_secs(600)))
                .await?;
            while !stop.load(Ordering::Relaxed) {
                let claimed = broker.claim(ClaimOptions::new(worker, queues.clone(), BATCH)).await?;
                if claimed.is_empty() {
                    sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let settled = claimed.len() as u64;
                let verdicts = claimed
                    .iter()
                    .map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done })
                    .collect();
                broker.settle(worker, verdicts).await?;
                done.fetch_add(settled, Ordering::Relaxed);
            }
            broker.retire(worker).await?;
            Ok(())
        });
    }
    Ok((stop, tasks))
}

async fn floor(
    url: &str,
    done: &Arc<AtomicU64>,
) -> Result<(Arc<AtomicBool>, JoinSet<Result<(), Failure>>), Failure> {
    let admin = connect(url).await?;
    admin
        .batch_execute(
            "drop table if exists celeriac_floor; create table celeriac_floor (queue int, lane smallint, seq bigint, id uuid, \
             enqueued_at timestamptz, task text, payload bytea, primary key (queue, lane, seq))",
        )
        .await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for number in 0..i16::try_from(PRODUCERS + CONSUMERS)? {
        let (client, stop, done) = (connect(url).await?, Arc::clone(&stop), Arc::clone(done));
        tasks.spawn(async move {
            let insert = client
                .prepare(
                    "insert into celeriac_floor select 1, $1::int2, $2 + n, u.id, clock_timestamp(), 'work', u.payload \
                     from unnest($3::uuid[], $4::bytea[]) with ordinality as u(id, payload, n)",
                )
                .await?;
            let delete = client
                .prepare("delete from celeriac_floor where queue = 1 and lane = $1::int2 and seq > $2 and seq <= $3")
                .await?;
            let mut seq = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                let ids: Vec<Uuid> = (0..BATCH).map(|_| Uuid::now_v7()).collect();
                let payloads = vec![vec![b'x'; 200]; BATCH];
                client.execute(&insert, &[&number, &seq, &ids, &payloads]).await?;
                client.execute(&delete, &[&number, &seq, &(seq + BATCH as i64)]).await?;
                seq += BATCH as i64;
                done.fetch_add(BATCH as u64, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    Ok((stop, tasks))
}
