//! The usual way to keep a queue in PostgreSQL, to compare with: one table with a state column. To take jobs is to
//! mark them with `SKIP LOCKED`, to finish them is to delete them, and both are done in batches.
//!
//! It is written as well as it can be: a partial index that the taking scans in order, plans pinned to it, prepared
//! statements, an autovacuum that starts early and does not pause. It has no leases, retries or wake-ups, runs no
//! handlers, and polls; a real queue of this kind does more for each job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac_postgres::PostgresOptions;
use celeriac_postgres::tokio_postgres::{Client, Statement};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::floor::Load;
use super::scratch::Scratch;
use super::series::Series;
use super::server::{Cost, Server, refused};
use super::workload::window;
use crate::failure::Failure;

const TABLE: &str = "create table @.usual (
    id bigint generated always as identity primary key,
    queue text not null,
    task text not null,
    priority smallint not null default 0,
    state smallint not null default 0,
    attempt smallint not null default 0,
    run_at timestamptz not null default now(),
    locked_by text,
    locked_at timestamptz,
    payload bytea not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index on @.usual (queue, priority desc, run_at, id) where state = 0";

const INSERT: &str = "insert into @.usual (queue, task, payload) select 'bench', 'no_op', payload from unnest($1::bytea[]) as x (payload)";

const TAKE: &str = "with picked as materialized (
    select id from @.usual where queue = 'bench' and state = 0 and run_at <= now()
    order by priority desc, run_at, id limit $1 for update skip locked
)
update @.usual u set state = 1, attempt = u.attempt + 1, locked_by = $2, locked_at = now()
from picked where u.id = picked.id returning u.id, u.payload";

const FINISH: &str = "delete from @.usual where id = any($1)";

/// The planner takes such a table for empty, and would read it whole.
const PLANS: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; \
    set enable_mergejoin = off; set jit = off; set plan_cache_mode = force_generic_plan";

/// Jobs that one statement takes: about what a worker of ours takes when many wait.
const FETCH: i64 = 500;

/// Connections of one consumer process. More of them stand in each other's way on the locks of rows.
const TAKERS: usize = 4;

/// What the usual way came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualRate {
    pub(crate) jobs_per_s: f64,
    /// The rates of the first and the last seconds.
    pub(crate) ends: Option<(f64, f64)>,
    pub(crate) cost: Cost,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Jobs wait; they are taken and finished.
    Drain,
    /// Jobs are stored until all are, or the time is over.
    Enqueue(Duration),
    /// Both at once, for so long.
    Steady(Duration),
}

/// The table, with one connection for each who uses it.
#[derive(Debug)]
pub(crate) struct Usual {
    options: PostgresOptions,
}

#[derive(Debug, Default)]
struct Counters {
    stored: AtomicU64,
    finished: AtomicU64,
    /// 1 when no more are stored.
    closed: AtomicU64,
}

struct Session {
    client: Client,
    insert: Statement,
    take: Statement,
    finish: Statement,
}

impl Usual {
    pub(crate) const fn new(options: PostgresOptions) -> Self {
        Self { options }
    }

    pub(crate) async fn measure(&self, work: Work, load: Load) -> Result<UsualRate, Failure> {
        let scratch = Scratch::create(&self.options, TABLE).await?;
        let measured = self.measure_in(&scratch, work, load).await;
        scratch.remove().await?;
        measured
    }

    async fn measure_in(&self, scratch: &Scratch, work: Work, load: Load) -> Result<UsualRate, Failure> {
        let counters = Arc::new(Counters::default());
        let (mut callers, mut takers) = (Vec::new(), Vec::new());
        if work != Work::Drain {
            for _ in 0..load.callers {
                callers.push(Session::open(&self.options, scratch).await?);
            }
        }
        if !matches!(work, Work::Enqueue(_)) {
            for _ in 0..load.processes * TAKERS {
                takers.push(Session::open(&self.options, scratch).await?);
            }
        }
        if work == Work::Drain {
            let filler = Session::open(&self.options, scratch).await?;
            while counters.stored.load(Ordering::Relaxed) < load.jobs {
                let left = load.jobs - counters.stored.load(Ordering::Relaxed);
                filler.store(left.min(1_000), &load.payload, &counters).await?;
            }
            counters.closed.store(1, Ordering::Relaxed);
        }
        let server = Server::connect(&self.options).await?;
        let before = server.read().await?;
        let time = match work {
            Work::Drain => None,
            Work::Enqueue(time) | Work::Steady(time) => Some(time),
        };
        let mut series = Series::start();
        let mut running = JoinSet::new();
        let storing = Arc::new(AtomicU64::new(callers.len() as u64));
        for session in callers {
            let (load, counters, storing) = (load.clone(), Arc::clone(&counters), Arc::clone(&storing));
            let most = match work {
                Work::Steady(_) => window(load.callers, load.batch),
                _ => u64::MAX,
            };
            let jobs = if matches!(work, Work::Enqueue(_)) { load.jobs } else { u64::MAX };
            let start = series.started();
            running.spawn(async move {
                let ended = session.store_until(&load, &counters, jobs, most, start, time).await;
                if storing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    counters.closed.store(1, Ordering::Release);
                }
                ended
            });
        }
        for (number, session) in takers.into_iter().enumerate() {
            let counters = Arc::clone(&counters);
            running.spawn(async move { session.work(&format!("worker-{number}"), &counters).await });
        }
        let enqueue = matches!(work, Work::Enqueue(_));
        let counted = |counters: &Counters| {
            let counter = if enqueue { &counters.stored } else { &counters.finished };
            counter.load(Ordering::Relaxed)
        };
        let mut seconds = 0.0;
        let mut jobs = 0;
        loop {
            let over = time.is_some_and(|time| series.started().elapsed() >= time);
            // A failure of one ends the wait for the others, which go with the set.
            let ended = tokio::select! {
                joined = running.join_next() => match joined {
                    None => true,
                    Some(Ok(Ok(()))) => continue,
                    Some(Ok(Err(failure))) => return Err(failure),
                    Some(Err(error)) => {
                        return Err(Failure::failed("bench", format!("the usual way failed: {error}")));
                    }
                },
                () = sleep(LOOK) => false,
            };
            if seconds == 0.0 && !over {
                series.note(counted(&counters));
            }
            // The rate is of the time that was asked for; what is finished afterwards is in the costs alone.
            if seconds == 0.0 && (over || ended) {
                (jobs, seconds) = (counted(&counters), series.started().elapsed().as_secs_f64());
            }
            if ended {
                break;
            }
        }
        let all = counters.stored.load(Ordering::Relaxed);
        let finished = counters.finished.load(Ordering::Relaxed);
        if !enqueue && finished != all {
            return Err(Failure::failed(
                "bench",
                format!("the usual way stored {all} jobs and finished {finished}"),
            ));
        }
        Ok(UsualRate {
            jobs_per_s: rate(jobs, seconds),
            ends: matches!(work, Work::Steady(_)).then(|| series.first_and_last()).flatten(),
            cost: server.cost_since(&before, all).await?,
        })
    }
}

impl Session {
    async fn open(options: &PostgresOptions, scratch: &Scratch) -> Result<Self, Failure> {
        let client = options.connect().await?;
        client.batch_execute(PLANS).await.map_err(refused)?;
        let prepare = async |text: &str| client.prepare(&scratch.named(text)).await.map_err(refused);
        let (insert, take, finish) = (prepare(INSERT).await?, prepare(TAKE).await?, prepare(FINISH).await?);
        Ok(Self { client, insert, take, finish })
    }

    async fn store(&self, jobs: u64, payload: &[u8], counters: &Counters) -> Result<(), Failure> {
        let payloads = vec![payload; usize::try_from(jobs).unwrap_or_default()];
        self.client.execute(&self.insert, &[&payloads]).await.map_err(refused)?;
        counters.stored.fetch_add(jobs, Ordering::Relaxed);
        Ok(())
    }

    async fn store_until(
        &self,
        load: &Load,
        counters: &Counters,
        jobs: u64,
        most: u64,
        start: Instant,
        time: Option<Duration>,
    ) -> Result<(), Failure> {
        while time.is_none_or(|time| start.elapsed() < time) {
            let stored = counters.stored.load(Ordering::Relaxed);
            if stored >= jobs {
                return Ok(());
            }
            if stored.saturating_sub(counters.finished.load(Ordering::Relaxed)) >= most {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            self.store(load.batch as u64, &load.payload, counters).await?;
        }
        Ok(())
    }

    /// Takes and finishes until nothing is left and nothing more comes.
    async fn work(&self, name: &str, counters: &Counters) -> Result<(), Failure> {
        loop {
            let closed = counters.closed.load(Ordering::Acquire) == 1;
            let taken = self.client.query(&self.take, &[&FETCH, &name]).await.map_err(refused)?;
            if taken.is_empty() {
                let left =
                    counters.stored.load(Ordering::Relaxed) > counters.finished.load(Ordering::Relaxed);
                if closed && !left {
                    return Ok(());
                }
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            let ids: Vec<i64> = taken
                .iter()
                .map(|row| {
                    std::hint::black_box(row.get::<_, &[u8]>(1).len());
                    row.get(0)
                })
                .collect();
            let gone = self.client.execute(&self.finish, &[&ids]).await.map_err(refused)?;
            counters.finished.fetch_add(gone, Ordering::Relaxed);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "jobs of a run stay far below 2^52")]
fn rate(jobs: u64, seconds: f64) -> f64 {
    jobs as f64 / seconds.max(f64::EPSILON)
}

/// How often the counters are looked at.
const LOOK: Duration = Duration::from_millis(10);
