//! Workers come, renew, go, and die. What a dead one held is given to others.

use std::time::Duration;

use celeriac_core::{
    Attempt, AttemptKind, Failure, JobId, Maintenance, Redelivery, Renewal, WorkerId, WorkerInfo, redeliver,
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::claim::contains;
use crate::fault::Fault;
use crate::room::{bury, insert_job, take_job};
use crate::state::{SUSPECTS, ranges};
use crate::transaction::Transaction;

pub(crate) fn register(transaction: &Transaction<'_>, worker: &WorkerInfo) -> Result<(), Fault> {
    let now = transaction.now;
    let queues: Vec<&str> = worker.queues.iter().map(|queue| queue.as_str()).collect();
    let tasks: Vec<&str> = worker.tasks.iter().map(|task| task.name.as_str()).collect();
    transaction
        .connection
        .prepare_cached(
            "insert into workers (worker, label, queues, tasks, concurrency, started_at, lease_until) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict (worker) do update set label = excluded.label, \
             queues = excluded.queues, tasks = excluded.tasks, concurrency = excluded.concurrency, \
             lease_until = excluded.lease_until",
        )?
        .execute(params![
            worker.id.as_bytes(),
            worker.label,
            json(&queues),
            json(&tasks),
            worker.concurrency,
            now.as_micros(),
            now.saturating_add(worker.lease).as_micros(),
        ])?;
    let mut remember = transaction.connection.prepare_cached(
        "insert into tasks (name, info, seen_at) values (?1, ?2, ?3) \
         on conflict (name) do update set info = excluded.info, seen_at = excluded.seen_at",
    )?;
    for task in &worker.tasks {
        let info = serde_json::to_string(task).unwrap_or_default();
        remember.execute(params![task.name.as_str(), info, now.as_micros()])?;
    }
    Ok(())
}

/// Renews a lease. One small statement that needs nothing of a [`Transaction`]: it runs on a connection of its
/// own and waits behind no other request.
pub(crate) fn renew(
    connection: &Connection,
    now: celeriac_core::Timestamp,
    worker: WorkerId,
    lease: Duration,
) -> Result<Renewal, Fault> {
    let renewed = connection
        .prepare_cached("update workers set lease_until = ?2 where worker = ?1")?
        .execute(params![worker.as_bytes(), now.saturating_add(lease).as_micros()])?;
    Ok(if renewed == 0 { Renewal::Lost } else { Renewal::Held })
}

pub(crate) fn retire(transaction: &mut Transaction<'_>, worker: WorkerId) -> Result<(), Fault> {
    rescue(transaction, worker, &mut Maintenance::default())
}

/// Declares workers dead whose lease has lapsed, and takes back what they held.
pub(crate) fn rescue_dead(transaction: &mut Transaction<'_>, done: &mut Maintenance) -> Result<(), Fault> {
    let dead: Vec<[u8; 16]> = transaction
        .connection
        .prepare_cached("select worker from workers where lease_until <= ?1")?
        .query_map([transaction.now.as_micros()], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for worker in dead {
        rescue(transaction, WorkerId::from_uuid(Uuid::from_bytes(worker)), done)?;
        done.dead_workers += 1;
    }
    Ok(())
}

/// Rewrites everything that a worker holds under new numbers, so that whatever it still sends matches nothing,
/// and forgets the worker.
fn rescue(transaction: &mut Transaction<'_>, worker: WorkerId, done: &mut Maintenance) -> Result<(), Fault> {
    let label: Option<String> = transaction
        .connection
        .prepare_cached("select label from workers where worker = ?1")?
        .query_row([worker.as_bytes()], |row| row.get(0))
        .optional()?;
    let label = label.unwrap_or_else(|| worker.to_string());
    let claims: Vec<(i64, i32, Vec<u8>, Vec<u8>)> = transaction
        .connection
        .prepare_cached(
            "select claim, queue, keys, acknowledged from claims where worker = ?1 order by claim",
        )?
        .query_map([worker.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (claim, queue, keys, acknowledged) in claims {
        let acknowledged = ranges(&acknowledged);
        for range in ranges(&keys) {
            for key in range.low..=range.high {
                take_back(transaction, queue, key, contains(&acknowledged, key), &label, done)?;
            }
        }
        transaction.connection.prepare_cached("delete from claims where claim = ?1")?.execute([claim])?;
    }
    transaction
        .connection
        .prepare_cached("delete from workers where worker = ?1")?
        .execute([worker.as_bytes()])?;
    Ok(())
}

fn take_back(
    transaction: &mut Transaction<'_>,
    queue: i32,
    key: i64,
    acknowledged: bool,
    label: &str,
    done: &mut Maintenance,
) -> Result<(), Fault> {
    transaction.queue_mut(queue)?.counts.held -= 1;
    let Some(mut row) = take_job(transaction, key)? else { return Ok(()) };
    if transaction.take_cancellation(&row.id)? {
        // Somebody asked for its end, and nobody runs it any more.
        transaction.queue_mut(queue)?.counts.cancelled += 1;
        return Ok(());
    }
    let redelivery = redeliver(row.deliveries, acknowledged, &transaction.queue(queue)?.settings);
    row.deliveries = row.deliveries.saturating_add(1);
    let failure = Failure::new(AttemptKind::WorkerLost, "the worker died or was cut off");
    row.record(Attempt::new(transaction.now, row.deliveries, label, failure));
    if let Redelivery::Bury(reason) = redelivery {
        done.buried += 1;
        return bury(transaction, queue, &row, reason);
    }
    done.redelivered += 1;
    transaction.queue_mut(queue)?.counts.redelivered += 1;
    insert_job(transaction, queue, SUSPECTS, &row)?;
    Ok(())
}

/// The jobs that a worker holds and whose cancellation was asked for.
pub(crate) fn cancellations(connection: &Connection, worker: WorkerId) -> Result<Vec<JobId>, Fault> {
    let asked: Vec<([u8; 16], i64)> = connection
        .prepare_cached("select c.id, j.key from cancellations c join jobs j on j.id = c.id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let held: Vec<Vec<u8>> = connection
        .prepare_cached("select keys from claims where worker = ?1")?
        .query_map([worker.as_bytes()], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let held: Vec<_> = held.iter().map(|keys| ranges(keys)).collect();
    Ok(asked
        .into_iter()
        .filter(|(_, key)| held.iter().any(|keys| contains(keys, *key)))
        .map(|(id, _)| JobId::from_uuid(Uuid::from_bytes(id)))
        .collect())
}

fn json(words: &[&str]) -> String {
    // A list of strings always serialises.
    serde_json::to_string(words).unwrap_or_else(|_| "[]".to_owned())
}
