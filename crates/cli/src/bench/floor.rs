use std::sync::Arc;
use std::time::Duration;

use celeriac::core::Payload;

use self::postgres::PostgresFloor;
use self::sqlite::SqliteFloor;
use super::BenchCommand;
use super::producer::CALLERS;
use super::server::Cost;
use crate::failure::Failure;
use crate::store::Store;

mod postgres;
mod sqlite;

/// The bare database: what no queue on it can beat with transactions of the same size.
#[derive(Debug)]
pub(crate) enum Floor {
    Postgres(PostgresFloor),
    Sqlite(SqliteFloor),
}

/// Which part of a queue's work is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A transaction inserts a batch.
    Insert,
    /// A transaction inserts a batch, another deletes it.
    InsertAndDelete,
    /// A transaction inserts one row.
    InsertSingly,
    /// Rows are there; a transaction reads a batch and deletes it.
    ReadAndDelete,
}

/// How much of it at once.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Those who store at the same time.
    pub(crate) callers: usize,
    /// Those who take at the same time.
    pub(crate) processes: usize,
    /// Rows of one transaction.
    pub(crate) batch: usize,
    /// Rows that are there when they are taken.
    pub(crate) jobs: u64,
    /// Of each row.
    pub(crate) payload: Arc<[u8]>,
}

/// What a part of the floor came to.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) jobs_per_s: f64,
    /// Median time of one transaction (of both, for two).
    pub(crate) p50_ms: f64,
    pub(crate) cost: Cost,
}

impl Floor {
    /// The floor of a store: beside it, and as durable.
    pub(crate) fn beside(store: &Store) -> Result<Self, Failure> {
        if let Some(options) = store.postgres()? {
            return Ok(Self::Postgres(PostgresFloor::new(options)));
        }
        Ok(Self::Sqlite(SqliteFloor::beside(store)?))
    }

    /// Measures `part` in a fresh table that is removed afterwards.
    pub(crate) async fn measure(&self, part: Part, load: Load) -> Result<Rate, Failure> {
        match self {
            Self::Postgres(floor) => floor.measure(part, load).await,
            Self::Sqlite(floor) => floor.measure(part, load).await,
        }
    }
}

impl Load {
    pub(crate) fn of(command: &BenchCommand, payload: &Payload) -> Self {
        Self {
            callers: command.concurrency.unwrap_or(CALLERS),
            processes: command.processes,
            batch: command.batch,
            jobs: command.jobs().min(MOST_ROWS),
            payload: payload.as_bytes().into(),
        }
    }
}

impl Rate {
    #[expect(clippy::cast_precision_loss, reason = "jobs of a round stay far below 2^52")]
    fn new(jobs: u64, elapsed: Duration, times: &mut [Duration]) -> Self {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let seconds = elapsed.as_secs_f64();
        Self {
            jobs,
            seconds,
            jobs_per_s: jobs as f64 / seconds.max(f64::EPSILON),
            p50_ms: median.as_secs_f64() * 1_000.0,
            cost: Cost::default(),
        }
    }
}

/// Long enough for hundreds of transactions and some checkpoints.
const DURATION: Duration = Duration::from_secs(2);
/// Rows in one transaction while the table is filled; that is not measured.
const FILL: usize = 1_000;
/// More rows do not change the rate, only the time it takes to fill the table.
const MOST_ROWS: u64 = 200_000;
