//! What people and programs do to jobs: cancel one, act on many.

use celeriac_core::{
    Attempt, AttemptKind, BulkAct, BulkOptions, Cancelled, Details, Error, Failure, Filter, JobId, Page,
    PageOptions, Room,
};

use crate::enqueue::no_such_queue;
use crate::fault::Fault;
use crate::inspect::{Found, find_in, matching};
use crate::room::{
    JobRow, count_ready_gone, delete_dead, delete_job, delete_parked, delete_scheduled, insert_job,
};
use crate::transaction::Transaction;

/// Removes a job that waits; asks for the end of one that is held.
pub(crate) fn cancel(transaction: &mut Transaction<'_>, id: JobId) -> Result<Cancelled, Fault> {
    for room in Room::ALL {
        let Some(found) = find_in(transaction.connection, room, id)? else { continue };
        if room == Room::Jobs && !transaction.queue(found.queue)?.is_ready(found.key) {
            transaction
                .connection
                .prepare_cached(
                    "insert into cancellations (id, asked_at) values (?1, ?2) on conflict (id) do nothing",
                )?
                .execute((id.as_bytes(), transaction.now.as_micros()))?;
            return Ok(Cancelled::Requested);
        }
        remove(transaction, room, &found)?;
        transaction.queue_mut(found.queue)?.counts.cancelled += 1;
        return Ok(Cancelled::Removed(room));
    }
    Ok(Cancelled::NotFound)
}

/// One bounded step of an act on all jobs that match. Held jobs are left alone.
pub(crate) fn bulk(
    transaction: &mut Transaction<'_>,
    filter: &Filter,
    act: &BulkAct,
    options: &BulkOptions,
) -> Result<Page, Fault> {
    let mut size = PageOptions::default();
    size.limit = options.limit;
    let limit = size.checked_limit()?;
    let target = match act {
        BulkAct::Replay { .. } if filter.room != Room::Dead => {
            return Err(Error::invalid(
                "room",
                filter.room.as_str(),
                "only jobs in the room dead can be replayed",
            )
            .into());
        }
        BulkAct::Replay { queue: Some(name) } => match transaction.number(name)? {
            Some(queue) => Some(queue),
            None => return Err(no_such_queue(transaction, name)?.into()),
        },
        BulkAct::Nothing | BulkAct::Purge | BulkAct::Replay { queue: None } => None,
        _ => return Err(Error::invalid("act", format!("{act:?}"), "this engine does not know it").into()),
    };
    let connection = transaction.connection;
    let now = transaction.now;
    let idle = |found: &Found| {
        if filter.room != Room::Jobs {
            return Ok(true);
        }
        Ok(transaction.queue(found.queue)?.is_ready(found.key))
    };
    let (found, next) = matching(connection, filter, options.after.as_deref(), limit, now, idle)?;
    let mut jobs: Vec<Details> = Vec::with_capacity(found.len());
    for job in found {
        match act {
            BulkAct::Purge => {
                remove(transaction, filter.room, &job)?;
                transaction.queue_mut(job.queue)?.counts.dropped += 1;
            }
            BulkAct::Replay { .. } => replay(transaction, &job, target.unwrap_or(job.queue))?,
            _ => {}
        }
        let queue = transaction.name(job.queue)?;
        jobs.push(job.into_details(filter.room, queue, None)?);
    }
    Ok(Page::new(jobs, next))
}

fn remove(transaction: &mut Transaction<'_>, room: Room, found: &Found) -> Result<(), Fault> {
    match room {
        Room::Jobs => {
            delete_job(transaction, found.key)?;
            count_ready_gone(transaction, found.key)
        }
        Room::Scheduled => delete_scheduled(transaction, found.queue, found.key),
        Room::Parked => delete_parked(transaction, found.queue, found.key),
        _ => delete_dead(transaction, found.queue, found.key),
    }
}

/// Sends a dead job back: counters from zero, the history stays.
fn replay(transaction: &mut Transaction<'_>, found: &Found, queue: i32) -> Result<(), Fault> {
    delete_dead(transaction, found.queue, found.key)?;
    let mut row: JobRow = found.row.clone();
    let note = Failure::new(AttemptKind::Replayed, "sent back from the bin");
    row.record(Attempt::new(transaction.now, row.attempt.max(1), "", note));
    row.attempt = 0;
    row.deliveries = 0;
    row.due_at = transaction.now.as_micros();
    // A person wants it to run: a time to live that has passed must not bury it again.
    row.expires_at = None;
    insert_job(transaction, queue, row.priority, &row)?;
    Ok(())
}
