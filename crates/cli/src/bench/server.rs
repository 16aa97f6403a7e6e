//! What the database server does for the jobs that are measured: write-ahead log, processor time, transactions.

use std::fs;

use celeriac_postgres::PostgresOptions;
use celeriac_postgres::tokio_postgres::{Client, Error};

use super::process::{cpu_of_children, cpu_seconds};
use crate::failure::Failure;

/// A PostgreSQL server under measurement.
pub(crate) struct Server {
    client: Client,
    /// The server's first process, if it runs on this machine.
    first_process: Option<u32>,
}

/// The server's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    wal_bytes: i64,
    cpu_seconds: Option<f64>,
    /// Of this database, by everybody.
    transactions: i64,
}

/// What the server did for one job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) wal_bytes_per_job: Option<f64>,
    /// `None` if the server runs elsewhere.
    pub(crate) db_cpu_us_per_job: Option<f64>,
}

impl Server {
    pub(crate) async fn connect(options: &PostgresOptions) -> Result<Self, Failure> {
        let client = options.connect().await?;
        let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.map_err(refused)?.get(0);
        let first_process = u32::try_from(pid).ok().and_then(first_process_of);
        Ok(Self { client, first_process })
    }

    pub(crate) async fn read(&self) -> Result<Reading, Failure> {
        const COUNTERS: &str = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, \
            (select xact_commit + xact_rollback from pg_stat_database where datname = current_database())";
        let row = self.client.query_one(COUNTERS, &[]).await.map_err(refused)?;
        Ok(Reading {
            wal_bytes: row.get(0),
            cpu_seconds: self.first_process.and_then(cpu_of_server),
            transactions: row.get(1),
        })
    }

    /// What was done since `before`, for each of `jobs`.
    #[expect(clippy::cast_precision_loss, reason = "bytes and jobs of a run stay far below 2^52")]
    pub(crate) async fn cost_since(&self, before: &Reading, jobs: u64) -> Result<Cost, Failure> {
        let now = self.read().await?;
        let each = |sum: f64| (jobs > 0).then(|| sum / jobs as f64);
        Ok(Cost {
            wal_bytes_per_job: each((now.wal_bytes - before.wal_bytes) as f64),
            db_cpu_us_per_job: match (now.cpu_seconds, before.cpu_seconds) {
                (Some(now), Some(before)) => each((now - before) * 1_000_000.0),
                _ => None,
            },
        })
    }
}

impl Reading {
    /// Transactions between two readings, but for that of the first reading itself.
    #[expect(clippy::cast_precision_loss, reason = "a few seconds' worth")]
    pub(crate) fn transactions_since(&self, before: &Self) -> f64 {
        (self.transactions - before.transactions - 1).max(0) as f64
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("first_process", &self.first_process).finish_non_exhaustive()
    }
}

/// A failure of one of the benchmark's own statements. The driver's own text is "db error" and no more.
pub(crate) fn refused(error: Error) -> Failure {
    let text = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    Failure::failed("bench", format!("the database refused a statement of the benchmark: {text}"))
}

/// The parent of a server process, if it is one of this machine: elsewhere the number belongs to nobody here, or to
/// another program.
fn first_process_of(backend: u32) -> Option<u32> {
    let title = fs::read_to_string(format!("/proc/{backend}/cmdline")).ok()?;
    if !title.starts_with("postgres:") {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{backend}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Processor time of all processes of a server: those that run, and those that have ended.
fn cpu_of_server(first: u32) -> Option<f64> {
    let mut seconds = cpu_seconds(Some(first))? + cpu_of_children(first)?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(status) = fs::read_to_string(format!("/proc/{id}/status")) else { continue };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        if parent.and_then(|parent| parent.parse::<u32>().ok()) == Some(first) {
            seconds += cpu_seconds(Some(id)).unwrap_or_default();
        }
    }
    Some(seconds)
}
