//! The full check that every store gets by itself, by one process at a time.

use std::time::{Duration, Instant};

use celeriac_core::{CheckOptions, CheckReport, Result};
use rusqlite::params;

use crate::broker::SqliteBroker;
use crate::check::breaks_a_place;
use crate::fault::Fault;
use crate::transaction::Transaction;
use crate::writer::Durability;

use celeriac_core::Broker;

/// Between two checks at the least; also how long a process has for one before another begins anew.
const SHORTEST: Duration = Duration::from_secs(600);

const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A check takes no more than this part of the time.
const SHARE: u32 = 100;

/// Whether this process is to make the check now.
pub(crate) fn begin(transaction: &Transaction<'_>) -> Result<bool, Fault> {
    let now = transaction.now.as_micros();
    let connection = transaction.connection;
    let due: i64 = connection
        .prepare_cached("select due_at from patrol where id = 1")?
        .query_row([], |row| row.get(0))?;
    if due > now {
        return Ok(false);
    }
    connection
        .prepare_cached("update patrol set due_at = ?1 where id = 1")?
        .execute([now.saturating_add(micros(SHORTEST))])?;
    // A new store has time until its first.
    Ok(due > 0)
}

fn end(transaction: &Transaction<'_>, took: Duration, found: u64) -> Result<(), Fault> {
    let wait = took.saturating_mul(SHARE).clamp(SHORTEST, LONGEST);
    let due = transaction.now.as_micros().saturating_add(micros(wait));
    transaction
        .connection
        .prepare_cached("update patrol set due_at = ?1, found = found + ?2 where id = 1")?
        .execute(params![due, i64::try_from(found).unwrap_or(i64::MAX)])?;
    Ok(())
}

impl SqliteBroker {
    /// Looks at everything without the write lock, and mends what is broken. Gives how many places were.
    pub(crate) async fn patrol(&self) -> Result<u64> {
        let started = Instant::now();
        let looked = self.check(CheckOptions::default()).await?;
        let took = started.elapsed();
        let mut found = 0;
        if broken(&looked) > 0 {
            let mut repair = CheckOptions::default();
            repair.repair = true;
            let report = self.check(repair).await?;
            found = broken(&report);
        }
        self.writer
            .run("note the check", Durability::Volatile, move |transaction| end(transaction, took, found))
            .await?;
        Ok(found)
    }
}

fn broken(report: &CheckReport) -> u64 {
    let count = report.violations.iter().filter(|violation| breaks_a_place(violation)).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
