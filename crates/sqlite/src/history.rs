//! What is remembered of jobs that are done: one row a batch, in queues that ask for it.

use celeriac_core::{Finished, JobId, Timestamp};
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::inspect::queue_name;
use crate::state::{QueueState, as_ranges};
use crate::transaction::Transaction;

/// Batches that one look reads at most. Ids of one time lie together, so an id is in few of them.
const MOST: i64 = 10_000;

/// Notes jobs that are about to be removed as done.
pub(crate) fn note(
    transaction: &Transaction<'_>,
    queue: i32,
    worker: &str,
    done: &[i64],
) -> Result<(), Fault> {
    let mut ids: Vec<Vec<u8>> = Vec::with_capacity(done.len());
    let mut statement =
        transaction.connection.prepare_cached("select id from jobs where key >= ?1 and key <= ?2")?;
    for range in as_ranges(done.iter().copied()) {
        let found = statement.query_map([range.low, range.high], |row| row.get(0))?;
        // A damaged id is nobody's.
        ids.extend(found.filter_map(|id: rusqlite::Result<Vec<u8>>| id.ok().filter(|id| id.len() == 16)));
    }
    ids.sort_unstable();
    let (Some(low), Some(high)) = (ids.first(), ids.last()) else { return Ok(()) };
    transaction
        .connection
        .prepare_cached(
            "insert into history (at, queue, worker, low, high, ids) values (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![transaction.now.as_micros(), queue, worker, low, high, ids.concat()])?;
    Ok(())
}

/// When and by whom a job was done.
pub(crate) fn find(connection: &Connection, id: JobId, now: Timestamp) -> Result<Option<Finished>, Fault> {
    let mut statement = connection.prepare_cached(
        "select at, queue, worker, low, ids from history where high >= ?1 order by high limit ?2",
    )?;
    let mut rows = statement.query(params![id.as_bytes(), MOST])?;
    while let Some(row) = rows.next()? {
        let low: Vec<u8> = row.get(3)?;
        if low.as_slice() > id.as_bytes().as_slice() {
            continue;
        }
        let ids: Vec<u8> = row.get(4)?;
        if !ids.chunks_exact(16).any(|one| one == id.as_bytes()) {
            continue;
        }
        let (at, queue) = (Timestamp::from_micros(row.get(0)?), row.get(1)?);
        let kept = QueueState::load(connection, queue)?.settings.history;
        if kept.is_some_and(|kept| at.saturating_add(kept) > now) {
            return Ok(Some(Finished::new(id, queue_name(connection, queue)?, row.get(2)?, at)));
        }
    }
    Ok(None)
}

/// Removes what is older than its queue remembers; gives whether there is more.
pub(crate) fn prune(transaction: &mut Transaction<'_>, limit: i64) -> Result<bool, Fault> {
    let connection = transaction.connection;
    let queues: Vec<i32> = connection
        .prepare_cached(
            "select queue from queues where exists (select 1 from history h where h.queue = queues.queue)",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut more = false;
    for queue in queues {
        let kept = transaction.queue(queue)?.settings.history.unwrap_or_default();
        let before =
            transaction.now.as_micros().saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX));
        let removed = transaction
            .connection
            .prepare_cached(
                "delete from history where n in (select n from history where queue = ?1 and at <= ?2 order by at limit ?3)",
            )?
            .execute(params![queue, before, limit])?;
        more |= i64::try_from(removed).unwrap_or(i64::MAX) >= limit;
    }
    Ok(more)
}
