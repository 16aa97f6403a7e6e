//! The duties that any process may do at any time.

use std::time::Duration;

use celeriac_core::{MaintainOptions, Maintenance, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::fault::Fault;
use crate::history;
use crate::lease::rescue_dead;
use crate::room::{
    JobRow, bury_damaged, count_ready_gone, delete_job, delete_parked, delete_scheduled, expire, place_job,
    write_jobs,
};
use crate::state::parts;
use crate::transaction::Transaction;

/// How long ids of idempotent enqueues are remembered. A week covers a weekend's outage of the caller.
const REMEMBER: Duration = Duration::from_secs(7 * 24 * 3600);

/// One bounded round of every duty.
pub(crate) fn maintain(
    transaction: &mut Transaction<'_>,
    options: &MaintainOptions,
) -> Result<Maintenance, Fault> {
    let mut done = Maintenance::default();
    let limit = options.limit.clamp(1, 100_000);
    let promoted = promote_due(transaction, limit)?;
    done.promoted = u64::try_from(promoted).unwrap_or(u64::MAX);
    done.more |= promoted == limit;
    rescue_dead(transaction, &mut done)?;
    expire_waiting(transaction, limit, &mut done)?;
    prune(transaction, limit, &mut done)?;
    done.next_due = next_due(transaction.connection)?.map(|due| due.since(transaction.now));
    Ok(done)
}

/// Moves due jobs to their queues, the longest due first.
pub(crate) fn promote_due(transaction: &mut Transaction<'_>, limit: usize) -> Result<usize, Fault> {
    let due: Vec<(i64, i32, JobRow)> = transaction
        .connection
        .prepare_cached(
            "select key, queue, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, \
             extras from scheduled where due_at <= ?1 order by due_at, key limit ?2",
        )?
        .query_map(params![transaction.now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok((row.get(0)?, row.get(1)?, JobRow::read(row, 2)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut placed = Vec::with_capacity(due.len());
    for (key, queue, row) in &due {
        delete_scheduled(transaction, *queue, *key)?;
        if row.damaged {
            bury_damaged(transaction, *queue, row.clone())?;
            continue;
        }
        placed.push((place_job(transaction, *queue, row.priority)?, row));
    }
    write_jobs(transaction, &placed)?;
    Ok(due.len())
}

/// When the next scheduled job is due.
pub(crate) fn next_due(connection: &rusqlite::Connection) -> Result<Option<Timestamp>, Fault> {
    let due: Option<i64> = connection
        .prepare_cached("select due_at from scheduled order by due_at limit 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(due.map(Timestamp::from_micros))
}

/// Jobs whose time to live has passed and that no claim has met.
fn expire_waiting(
    transaction: &mut Transaction<'_>,
    limit: usize,
    done: &mut Maintenance,
) -> Result<(), Fault> {
    let now = transaction.now.as_micros();
    let mut ready = Vec::new();
    {
        let connection = transaction.connection;
        let mut statement =
            connection.prepare_cached("select key from jobs where expires_at <= ?1 order by expires_at")?;
        let mut expired = statement.query([now])?;
        while let Some(row) = expired.next()? {
            if ready.len() == limit {
                done.more = true;
                break;
            }
            let key = row.get(0)?;
            // A job that a worker holds has started in time.
            if transaction.queue(parts(key).0)?.is_ready(key) {
                ready.push(key);
            }
        }
    }
    for key in ready {
        let row: JobRow = transaction
            .connection
            .prepare_cached(
                "select id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras \
                 from jobs where key = ?1",
            )?
            .query_row([key], |row| JobRow::read(row, 0))?;
        delete_job(transaction, key)?;
        count_ready_gone(transaction, key)?;
        expire(transaction, parts(key).0, &row)?;
        done.expired += 1;
    }
    let parked: Vec<(i64, i32, JobRow)> = transaction
        .connection
        .prepare_cached(
            "select key, queue, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, \
             extras from parked where expires_at <= ?1 order by expires_at limit ?2",
        )?
        .query_map(params![now, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok((row.get(0)?, row.get(1)?, JobRow::read(row, 2)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    done.more |= parked.len() == limit;
    for (key, queue, row) in parked {
        delete_parked(transaction, queue, key)?;
        expire(transaction, queue, &row)?;
        done.expired += 1;
    }
    Ok(())
}

/// Removes what nobody asked to keep longer: old ids, requests for jobs that are gone, and dead jobs past
/// their queue's retention.
fn prune(transaction: &mut Transaction<'_>, limit: usize, done: &mut Maintenance) -> Result<(), Fault> {
    let now = transaction.now.as_micros();
    let bound = i64::try_from(limit).unwrap_or(i64::MAX);
    let old = now.saturating_sub(i64::try_from(REMEMBER.as_micros()).unwrap_or(i64::MAX));
    let forgotten = transaction
        .connection
        .prepare_cached(
            "delete from remembered where id in (select id from remembered where at < ?1 limit ?2)",
        )?
        .execute(params![old, bound])?;
    done.more |= forgotten == limit;
    transaction
        .connection
        .prepare_cached("delete from cancellations where not exists (select 1 from jobs where jobs.id = cancellations.id)")?
        .execute([])?;
    done.more |= history::prune(transaction, bound)?;
    let queues: Vec<i32> = transaction
        .connection
        .prepare_cached(
            "select queue from queues where json_extract(settings, '$.dead_retention') is not null",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for queue in queues {
        let Some(kept) = transaction.queue(queue)?.settings.dead_retention else { continue };
        let before = now.saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX));
        let removed = transaction
            .connection
            .prepare_cached(
                "delete from dead where key in \
                 (select key from dead where queue = ?1 and since <= ?2 order by since limit ?3)",
            )?
            .execute(params![queue, before, bound])?;
        if removed > 0 {
            let counts = &mut transaction.queue_mut(queue)?.counts;
            let removed_count = i64::try_from(removed).unwrap_or(0);
            counts.dead -= removed_count;
            counts.dropped += removed_count;
            done.pruned += u64::try_from(removed).unwrap_or(0);
            done.more |= removed == limit;
        }
    }
    Ok(())
}
