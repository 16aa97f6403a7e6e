//! The rows of the four rooms, and the moves between them. Each move is a delete and an insert in the caller's
//! transaction, with the counters of the queue.

use celeriac_core::{
    Attempt, AttemptKind, DeadReason, Extras, Failure, Job, JobId, OnExpire, Payload, Priority, QueueName,
    TaskName, Timestamp,
};
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, Statement, ToSql, params};
use uuid::Uuid;

use crate::fault::Fault;
use crate::state::{SUSPECTS, parts};
use crate::transaction::Transaction;

/// A job's columns, the same in every room.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub(crate) id: [u8; 16],
    pub(crate) task: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) attempt: u32,
    pub(crate) deliveries: u32,
    pub(crate) priority: u8,
    pub(crate) enqueued_at: i64,
    pub(crate) due_at: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) extras: Vec<u8>,
    /// Some columns held what no program of ours writes, and were replaced by what comes nearest.
    pub(crate) damaged: bool,
}

impl JobRow {
    /// Reads the columns from `first` on, in the order in which every statement lists them.
    ///
    /// A row that was damaged in the file is salvaged: one that could not be read would stop every claim, listing
    /// and cancellation that comes by.
    pub(crate) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        match Self::read_sound(row, first) {
            Ok(job) if job.is_sound() => Ok(job),
            _ => Self::salvage(row, first),
        }
    }

    fn is_sound(&self) -> bool {
        self.priority <= Priority::HIGHEST.get()
            && TaskName::new(&self.task).is_ok()
            && (self.extras.is_empty() || Extras::from_bytes(&self.extras).is_ok())
    }

    fn salvage(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let bytes = |column: usize| -> rusqlite::Result<Vec<u8>> {
            Ok(match row.get_ref(first + column)? {
                ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
                _ => Vec::new(),
            })
        };
        let number = |column: usize| -> rusqlite::Result<i64> {
            Ok(row.get_ref(first + column)?.as_i64().unwrap_or(0))
        };
        let small = |column: usize| number(column).map(|number| u32::try_from(number).unwrap_or(0));
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(bytes(0)?) {
            *to = from;
        }
        let task = String::from_utf8(bytes(1)?).ok().filter(|task| TaskName::new(task).is_ok());
        let extras = bytes(9)?;
        Ok(Self {
            id,
            task: task.unwrap_or_else(|| "damaged".to_owned()),
            payload: bytes(2)?,
            attempt: small(3)?,
            deliveries: small(4)?,
            priority: u8::try_from(number(5)?).unwrap_or(0).min(Priority::HIGHEST.get()),
            enqueued_at: number(6)?,
            due_at: number(7)?,
            expires_at: None,
            extras: if Extras::from_bytes(&extras).is_ok() { extras } else { Vec::new() },
            damaged: true,
        })
    }

    fn read_sound(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(first)?,
            task: row.get(first + 1)?,
            payload: row.get(first + 2)?,
            attempt: row.get(first + 3)?,
            deliveries: row.get(first + 4)?,
            priority: row.get(first + 5)?,
            enqueued_at: row.get(first + 6)?,
            due_at: row.get(first + 7)?,
            expires_at: row.get(first + 8)?,
            extras: row.get(first + 9)?,
            damaged: false,
        })
    }

    /// The job as others see it.
    pub(crate) fn into_job(self, queue: QueueName) -> Result<Job, celeriac_core::Error> {
        Ok(Job::from_columns(
            JobId::from_uuid(Uuid::from_bytes(self.id)),
            queue,
            TaskName::new(self.task)?,
            Priority::new(self.priority)?,
            Payload::from_stored(self.payload),
            self.attempt,
            self.deliveries,
            Timestamp::from_micros(self.enqueued_at),
            Timestamp::from_micros(self.due_at),
            self.expires_at.map(Timestamp::from_micros),
            Extras::from_bytes(&self.extras)?,
        ))
    }

    /// Adds an entry to the history. Extras that are damaged are replaced: a job must not be stuck for them.
    pub(crate) fn record(&mut self, attempt: Attempt) {
        let mut extras = Extras::from_bytes(&self.extras).unwrap_or_default();
        extras.record(attempt);
        self.extras = extras.to_bytes();
    }

    /// Counts a failure and writes it into the history.
    pub(crate) fn fail(&mut self, now: Timestamp, worker: &str, failure: Failure) {
        if failure.kind != AttemptKind::Undecodable {
            self.attempt = self.attempt.saturating_add(1);
        }
        self.record(Attempt::new(now, self.attempt.max(1), worker, failure));
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now.as_micros())
    }
}

/// Puts a job into `jobs`, behind the others of its lane.
pub(crate) fn insert_job(
    transaction: &mut Transaction<'_>,
    queue: i32,
    lane: u8,
    row: &JobRow,
) -> Result<i64, Fault> {
    let key = place_job(transaction, queue, lane)?;
    write_jobs(transaction, &[(key, row)])?;
    Ok(key)
}

/// Takes the next place in a lane for a job that the caller then writes with [`write_jobs`].
pub(crate) fn place_job(transaction: &mut Transaction<'_>, queue: i32, lane: u8) -> Result<i64, Fault> {
    let state = transaction.queue_mut(queue)?;
    state.counts.ready += 1;
    if lane == SUSPECTS {
        state.counts.suspects += 1;
    }
    let key = state.next_key(queue, lane);
    transaction.woke = true;
    Ok(key)
}

macro_rules! insert_jobs_sql {
    ($($more:expr),*) => {
        concat!(
            "insert or fail into jobs (key, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, ",
            "expires_at, ",
            "extras) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            $($more),*
        )
    };
}

/// Seven more rows.
macro_rules! seven_sql {
    () => {
        concat!(
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
    };
}

const INSERT_ONE: &str = insert_jobs_sql!();
/// Several rows a statement: starting and ending one costs as much as writing a row. Many, since a statement of several
/// rows with given keys can be undone by itself, and for that copies each page once before it changes it.
const INSERT_EIGHT: &str = insert_jobs_sql!(seven_sql!());
const INSERT_FIFTY: &str = insert_jobs_sql!(
    seven_sql!(),
    seven_sql!(),
    seven_sql!(),
    seven_sql!(),
    seven_sql!(),
    seven_sql!(),
    seven_sql!()
);

/// Writes the rows of jobs that have their places.
pub(crate) fn write_jobs(transaction: &Transaction<'_>, jobs: &[(i64, &JobRow)]) -> Result<(), Fault> {
    let (fifties, rest) = jobs.as_chunks::<50>();
    write_chunks(transaction, INSERT_FIFTY, fifties)?;
    let (eights, rest) = rest.as_chunks::<8>();
    write_chunks(transaction, INSERT_EIGHT, eights)?;
    write_chunks(transaction, INSERT_ONE, rest.as_chunks::<1>().0)
}

fn write_chunks<const ROWS: usize>(
    transaction: &Transaction<'_>,
    insert: &'static str,
    chunks: &[[(i64, &JobRow); ROWS]],
) -> Result<(), Fault> {
    if chunks.is_empty() {
        return Ok(());
    }
    let mut statement = transaction.connection.prepare_cached(insert)?;
    for chunk in chunks {
        bind_jobs(&mut statement, chunk)?;
        statement.raw_execute()?;
    }
    Ok(())
}

fn bind_jobs(statement: &mut Statement<'_>, jobs: &[(i64, &JobRow)]) -> Result<(), Fault> {
    let mut at = 0;
    let mut bind = |value: &dyn ToSql| {
        at += 1;
        statement.raw_bind_parameter(at, value)
    };
    for (key, row) in jobs {
        bind(key)?;
        bind(&row.id)?;
        bind(&row.task)?;
        bind(&row.payload)?;
        bind(&row.attempt)?;
        bind(&row.deliveries)?;
        bind(&row.priority)?;
        bind(&row.enqueued_at)?;
        bind(&row.due_at)?;
        bind(&row.expires_at)?;
        bind(&row.extras)?;
    }
    Ok(())
}

/// Puts a job into `scheduled`.
pub(crate) fn insert_scheduled(
    transaction: &mut Transaction<'_>,
    queue: i32,
    row: &JobRow,
) -> Result<(), Fault> {
    transaction.queue_mut(queue)?.counts.scheduled += 1;
    transaction
        .connection
        .prepare_cached(
            "insert into scheduled (id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, \
             expires_at, extras, queue, since) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            row.id,
            row.task,
            row.payload,
            row.attempt,
            row.deliveries,
            row.priority,
            row.enqueued_at,
            row.due_at,
            row.expires_at,
            row.extras,
            queue,
            transaction.now.as_micros(),
        ])?;
    // A waiter may have to wake earlier for it than it planned to.
    transaction.woke = true;
    Ok(())
}

/// Puts a job into `parked`, to wait for a worker that knows its task.
pub(crate) fn insert_parked(
    transaction: &mut Transaction<'_>,
    queue: i32,
    row: &JobRow,
) -> Result<(), Fault> {
    transaction.queue_mut(queue)?.counts.parked += 1;
    transaction
        .connection
        .prepare_cached(
            "insert into parked (id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, \
             expires_at, extras, queue, since, waits_for) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            row.id,
            row.task,
            row.payload,
            row.attempt,
            row.deliveries,
            row.priority,
            row.enqueued_at,
            row.due_at,
            row.expires_at,
            row.extras,
            queue,
            transaction.now.as_micros(),
            row.task,
        ])?;
    Ok(())
}

/// Puts a job into the dead-letter bin.
pub(crate) fn bury(
    transaction: &mut Transaction<'_>,
    queue: i32,
    row: &JobRow,
    reason: DeadReason,
) -> Result<(), Fault> {
    let counts = &mut transaction.queue_mut(queue)?.counts;
    counts.dead += 1;
    counts.buried += 1;
    transaction
        .connection
        .prepare_cached(
            "insert into dead (id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, \
             expires_at, extras, queue, since, reason) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            row.id,
            row.task,
            row.payload,
            row.attempt,
            row.deliveries,
            row.priority,
            row.enqueued_at,
            row.due_at,
            row.expires_at,
            row.extras,
            queue,
            transaction.now.as_micros(),
            reason.as_str(),
        ])?;
    Ok(())
}

/// Moves a job that cannot be read to the bin, with what is left of it: in its queue every claim would fail on it.
pub(crate) fn bury_damaged(
    transaction: &mut Transaction<'_>,
    queue: i32,
    mut row: JobRow,
) -> Result<(), Fault> {
    let damage = "its record in the store is damaged; this is what was left of it";
    row.fail(transaction.now, "", Failure::new(AttemptKind::Undecodable, damage));
    bury(transaction, queue, &row, DeadReason::Undecodable)
}

/// What the queue's setting says about a job that was not started in time.
pub(crate) fn expire(transaction: &mut Transaction<'_>, queue: i32, row: &JobRow) -> Result<(), Fault> {
    if transaction.queue(queue)?.settings.on_expire == OnExpire::Drop {
        transaction.queue_mut(queue)?.counts.dropped += 1;
        return Ok(());
    }
    bury(transaction, queue, row, DeadReason::Expired)
}

/// Takes a row out of `jobs`. Counters are the caller's: only it knows whether the job was ready or held.
pub(crate) fn take_job(transaction: &Transaction<'_>, key: i64) -> Result<Option<JobRow>, Fault> {
    let row = transaction
        .connection
        .prepare_cached(
            "select id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras \
             from jobs where key = ?1",
        )?
        .query_row([key], |row| JobRow::read(row, 0))
        .optional()?;
    if row.is_some() {
        delete_job(transaction, key)?;
    }
    Ok(row)
}

pub(crate) fn delete_job(transaction: &Transaction<'_>, key: i64) -> Result<(), Fault> {
    transaction.connection.prepare_cached("delete from jobs where key = ?1")?.execute([key])?;
    Ok(())
}

/// Removes a row of `parked`.
pub(crate) fn delete_parked(transaction: &mut Transaction<'_>, queue: i32, key: i64) -> Result<(), Fault> {
    transaction.connection.prepare_cached("delete from parked where key = ?1")?.execute([key])?;
    transaction.queue_mut(queue)?.counts.parked -= 1;
    Ok(())
}

/// Removes a row of `scheduled`.
pub(crate) fn delete_scheduled(transaction: &mut Transaction<'_>, queue: i32, key: i64) -> Result<(), Fault> {
    transaction.connection.prepare_cached("delete from scheduled where key = ?1")?.execute([key])?;
    transaction.queue_mut(queue)?.counts.scheduled -= 1;
    Ok(())
}

/// Removes a row of `dead`.
pub(crate) fn delete_dead(transaction: &mut Transaction<'_>, queue: i32, key: i64) -> Result<(), Fault> {
    transaction.connection.prepare_cached("delete from dead where key = ?1")?.execute([key])?;
    transaction.queue_mut(queue)?.counts.dead -= 1;
    Ok(())
}

/// Counts a ready job as gone from `jobs`.
pub(crate) fn count_ready_gone(transaction: &mut Transaction<'_>, key: i64) -> Result<(), Fault> {
    let (queue, lane, _) = parts(key);
    let counts = &mut transaction.queue_mut(queue)?.counts;
    counts.ready -= 1;
    if lane == SUSPECTS {
        counts.suspects -= 1;
    }
    Ok(())
}
