use std::collections::HashSet;
use std::time::Duration;

use celeriac_core::{
    DeadReason, EnqueueOptions, Enqueued, Error, Idempotency, JobId, NewJob, Overflow, QueueName,
    QueueSettings, Result, Start, nearest,
};
use uuid::Uuid;

use crate::fault::Fault;
use crate::inspect::oldest_ready;
use crate::queues::declare_number;
use crate::room::{JobRow, bury, count_ready_gone, insert_scheduled, place_job, take_job, write_jobs};
use crate::transaction::Transaction;

/// A job on its way in: the row, and what only the store's clock can fill in.
pub(crate) struct Incoming {
    queue: QueueName,
    start: Start,
    ttl: Option<Duration>,
    idempotency: Idempotency,
    row: JobRow,
}

impl Incoming {
    /// Checks the limits and encodes, on the caller's thread.
    pub(crate) fn new(job: NewJob, options: &EnqueueOptions) -> Result<Self> {
        job.check(options.max_payload)?;
        let mut extras = celeriac_core::Extras::default();
        extras.policy = job.policy;
        extras.headers = job.headers;
        Ok(Self {
            queue: job.queue,
            start: job.start,
            ttl: job.ttl,
            idempotency: job.idempotency,
            row: JobRow {
                id: *job.id.as_bytes(),
                task: job.task.into(),
                payload: job.payload.into_bytes(),
                attempt: 0,
                deliveries: 0,
                priority: job.priority.get(),
                enqueued_at: 0,
                due_at: 0,
                expires_at: None,
                extras: extras.to_bytes(),
                damaged: false,
            },
        })
    }
}

/// Stores all of the jobs or none: everything that can be refused is refused before the first is written.
pub(crate) fn enqueue(
    transaction: &mut Transaction<'_>,
    jobs: &mut [Incoming],
    options: &EnqueueOptions,
) -> Result<Vec<Enqueued>, Fault> {
    let queues = resolve(transaction, jobs, options)?;
    refuse_overflow(transaction, jobs, &queues)?;
    let now = transaction.now;
    let mut answers = Vec::with_capacity(jobs.len());
    let mut placed: Vec<(i64, &JobRow)> = Vec::with_capacity(jobs.len());
    for (job, queue) in jobs.iter_mut().zip(&queues) {
        let id = JobId::from_uuid(Uuid::from_bytes(job.row.id));
        if job.idempotency == Idempotency::ById && !remember(transaction, &job.row.id)? {
            answers.push(Enqueued::Existed(id));
            continue;
        }
        let state = transaction.queue_mut(*queue)?;
        state.counts.enqueued += 1;
        let ttl = job.ttl.or(state.settings.ttl);
        let due = match job.start {
            Start::After(delay) => now.saturating_add(delay),
            Start::At(at) => at.max(now),
            _ => now,
        };
        job.row.enqueued_at = now.as_micros();
        job.row.due_at = due.as_micros();
        job.row.expires_at = ttl.map(|ttl| due.saturating_add(ttl).as_micros());
        if due > now {
            insert_scheduled(transaction, *queue, &job.row)?;
        } else {
            placed.push((place_job(transaction, *queue, job.row.priority)?, &job.row));
        }
        answers.push(Enqueued::New(id));
    }
    write_jobs(transaction, &placed)?;
    let mut touched = queues;
    touched.sort_unstable();
    touched.dedup();
    for queue in touched {
        make_room(transaction, queue)?;
    }
    Ok(answers)
}

/// The number of each job's queue.
fn resolve(
    transaction: &mut Transaction<'_>,
    jobs: &[Incoming],
    options: &EnqueueOptions,
) -> Result<Vec<i32>, Fault> {
    let mut queues: Vec<i32> = Vec::with_capacity(jobs.len());
    let mut missing: Vec<&QueueName> = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        // Calls of one batch mostly go to one queue.
        if index > 0 && jobs[index - 1].queue == job.queue && missing.is_empty() {
            queues.push(queues[index - 1]);
            continue;
        }
        match transaction.number(&job.queue)? {
            Some(queue) => queues.push(queue),
            None if options.declare_missing => missing.push(&job.queue),
            None => return Err(no_such_queue(transaction, &job.queue)?.into()),
        }
    }
    if missing.is_empty() {
        return Ok(queues);
    }
    jobs.iter()
        .map(|job| match transaction.number(&job.queue)? {
            Some(queue) => Ok(queue),
            None => declare_number(transaction, &job.queue, &QueueSettings::default()),
        })
        .collect()
}

/// The refusal of a queue that was never declared, with the nearest name that was.
pub(crate) fn no_such_queue(transaction: &Transaction<'_>, queue: &QueueName) -> Result<Error, Fault> {
    let mut statement = transaction.connection.prepare_cached("select name from queues order by name")?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let nearest = nearest(queue.as_str(), names.iter().map(String::as_str)).map(ToOwned::to_owned);
    Ok(Error::NoSuchQueue { queue: queue.clone(), nearest })
}

/// Refuses a batch that would take a queue over its limit, unless the queue drops its oldest.
fn refuse_overflow(
    transaction: &mut Transaction<'_>,
    jobs: &[Incoming],
    queues: &[i32],
) -> Result<(), Fault> {
    let mut counted: Vec<(i32, i64)> = Vec::new();
    let mut remembered = HashSet::new();
    for (job, queue) in jobs.iter().zip(queues) {
        let settings = &transaction.queue(*queue)?.settings;
        if settings.max_length.is_none() || settings.overflow != Overflow::Refuse {
            continue;
        }
        if matches!(job.start, Start::After(delay) if !delay.is_zero())
            || matches!(job.start, Start::At(at) if at > transaction.now)
        {
            continue;
        }
        // What is there already needs no room.
        if job.idempotency == Idempotency::ById
            && (!remembered.insert(&job.row.id) || is_known(transaction, &job.row.id)?)
        {
            continue;
        }
        match counted.iter_mut().find(|(counted, _)| counted == queue) {
            Some((_, jobs)) => *jobs += 1,
            None => counted.push((*queue, 1)),
        }
    }
    for (queue, new) in counted {
        let state = transaction.queue(queue)?;
        let Some(limit) = state.settings.max_length else { continue };
        let length = u64::try_from(state.counts.ready).unwrap_or(0);
        let after = length.saturating_add(u64::try_from(new).unwrap_or(0));
        if after > limit {
            let queue = transaction.name(queue)?;
            return Err(Error::QueueFull { queue, length, limit }.into());
        }
    }
    Ok(())
}

/// Buries the oldest ready jobs of a queue that is over its limit.
fn make_room(transaction: &mut Transaction<'_>, queue: i32) -> Result<(), Fault> {
    let state = transaction.queue(queue)?;
    let Some(limit) = state.settings.max_length else { return Ok(()) };
    if state.settings.overflow != Overflow::DropOldest {
        return Ok(());
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    while transaction.queue(queue)?.counts.ready > limit {
        let connection = transaction.connection;
        let Some((oldest, _)) = oldest_ready(connection, queue, transaction.queue(queue)?)? else {
            return Ok(());
        };
        if let Some(row) = take_job(transaction, oldest)? {
            count_ready_gone(transaction, oldest)?;
            bury(transaction, queue, &row, DeadReason::MaxLength)?;
        }
    }
    Ok(())
}

/// Notes an id; `false` if it was noted before.
fn remember(transaction: &Transaction<'_>, id: &[u8; 16]) -> Result<bool, Fault> {
    let added = transaction
        .connection
        .prepare_cached("insert into remembered (id, at) values (?1, ?2) on conflict (id) do nothing")?
        .execute((id, transaction.now.as_micros()))?;
    if added == 0 {
        return Ok(false);
    }
    // An earlier enqueue without the wish to be remembered counts too.
    Ok(!is_present(transaction, id)?)
}

/// Whether an enqueue of this id would store nothing.
fn is_known(transaction: &Transaction<'_>, id: &[u8; 16]) -> Result<bool, Fault> {
    let remembered: bool = transaction
        .connection
        .prepare_cached("select exists (select 1 from remembered where id = ?1)")?
        .query_row([id], |row| row.get(0))?;
    Ok(remembered || is_present(transaction, id)?)
}

/// Whether a job of this id is in any room.
fn is_present(transaction: &Transaction<'_>, id: &[u8; 16]) -> Result<bool, Fault> {
    Ok(transaction
        .connection
        .prepare_cached(
            "select exists (select 1 from jobs where id = ?1) or exists (select 1 from scheduled where id = ?1) \
             or exists (select 1 from parked where id = ?1) or exists (select 1 from dead where id = ?1)",
        )?
        .query_row([id], |row| row.get(0))?)
}
