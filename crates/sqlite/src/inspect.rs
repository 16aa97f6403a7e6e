//! Reading: one job, pages of jobs, figures. Nothing here takes the write lock.

use std::time::Duration;

use celeriac_core::{
    DeadReason, Details, Error, Filter, JobId, Page, PageOptions, QueueName, QueueStats, Room, Stats,
    TaskName, Timestamp, WorkerId, WorkerStats,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::fault::Fault;
use crate::room::JobRow;
use crate::state::{QueueState, Range, SUSPECTS, parts, ranges};

/// A row of any room.
pub(crate) struct Found {
    pub(crate) key: i64,
    pub(crate) queue: i32,
    pub(crate) since: i64,
    /// The reason of a dead job, the task that a parked one waits for.
    pub(crate) note: Option<String>,
    pub(crate) row: JobRow,
}

/// Every statement lists the same columns: key, queue, since, note, and the job's.
const fn page_sql(room: Room) -> &'static str {
    match room {
        Room::Jobs => {
            "select key, key >> 48, due_at, null, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from jobs where key > ?1 and (?2 is null or key between (?2 << 48) and \
             ((?2 + 1) << 48) - 1) and (?3 is null or task = ?3) and ?4 is null and (?5 is null or due_at < ?5) \
             order by key"
        }
        Room::Scheduled => {
            "select key, queue, since, null, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, \
             expires_at, extras from scheduled where key > ?1 and (?2 is null or queue = ?2) \
             and (?3 is null or task = ?3) and ?4 is null and (?5 is null or since < ?5) order by key"
        }
        Room::Parked => {
            "select key, queue, since, waits_for, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from parked where key > ?1 and (?2 is null or queue = ?2) \
             and (?3 is null or task = ?3) and ?4 is null and (?5 is null or since < ?5) order by key"
        }
        _ => {
            "select key, queue, since, reason, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from dead where key > ?1 and (?2 is null or queue = ?2) \
             and (?3 is null or task = ?3) and (?4 is null or reason = ?4) and (?5 is null or since < ?5) \
             order by key"
        }
    }
}

const fn id_sql(room: Room) -> &'static str {
    match room {
        Room::Jobs => {
            "select key, key >> 48, due_at, null, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from jobs where id = ?1 order by key"
        }
        Room::Scheduled => {
            "select key, queue, since, null, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, \
             expires_at, extras from scheduled where id = ?1 order by key"
        }
        Room::Parked => {
            "select key, queue, since, waits_for, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from parked where id = ?1 order by key"
        }
        _ => {
            "select key, queue, since, reason, id, task, payload, attempt, deliveries, priority, enqueued_at, \
             due_at, expires_at, extras from dead where id = ?1 order by key"
        }
    }
}

impl Found {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            queue: row.get(1)?,
            since: row.get(2)?,
            note: row.get(3)?,
            row: JobRow::read(row, 4)?,
        })
    }

    /// As others see it. `holder` is the label of the worker that holds it.
    pub(crate) fn into_details(
        self,
        room: Room,
        queue: QueueName,
        holder: Option<String>,
    ) -> Result<Details, Fault> {
        let mut details = Details::new(self.row.into_job(queue)?, room, Timestamp::from_micros(self.since));
        details.held_by = holder;
        match room {
            Room::Dead => {
                details.reason = self.note.as_deref().map(str::parse::<DeadReason>).transpose()?;
            }
            Room::Parked => details.waits_for = self.note,
            _ => {}
        }
        Ok(details)
    }
}

/// The row of a job in one room.
pub(crate) fn find_in(connection: &Connection, room: Room, id: JobId) -> Result<Option<Found>, Fault> {
    Ok(connection.prepare_cached(id_sql(room))?.query_row([id.as_bytes()], Found::read).optional()?)
}

/// One job, in whichever room it is.
pub(crate) fn find(connection: &Connection, id: JobId) -> Result<Option<Details>, Fault> {
    for room in Room::ALL {
        if let Some(found) = find_in(connection, room, id)? {
            let queue = queue_name(connection, found.queue)?;
            let holder = if room == Room::Jobs { Holders::load(connection)?.of(found.key) } else { None };
            return Ok(Some(found.into_details(room, queue, holder)?));
        }
    }
    Ok(None)
}

/// A page of a room.
pub(crate) fn list(
    connection: &Connection,
    filter: &Filter,
    page: &PageOptions,
    now: Timestamp,
) -> Result<Page, Fault> {
    let limit = page.checked_limit()?;
    let holders = if filter.room == Room::Jobs { Holders::load(connection)? } else { Holders::default() };
    let (found, next) = matching(connection, filter, page.after.as_deref(), limit, now, |_| Ok(true))?;
    let mut jobs = Vec::with_capacity(found.len());
    for job in found {
        let queue = queue_name(connection, job.queue)?;
        let holder = holders.of(job.key);
        jobs.push(job.into_details(filter.room, queue, holder)?);
    }
    Ok(Page::new(jobs, next))
}

/// The rows that match a filter and are accepted, up to `limit`, and where the next page starts.
pub(crate) fn matching(
    connection: &Connection,
    filter: &Filter,
    after: Option<&str>,
    limit: usize,
    now: Timestamp,
    mut accept: impl FnMut(&Found) -> Result<bool, Fault>,
) -> Result<(Vec<Found>, Option<String>), Fault> {
    let after: i64 = match after {
        None => -1,
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid("page", text, "it is not what an earlier page gave as next"))?,
    };
    let queue: Option<i32> = match &filter.queue {
        None => None,
        Some(name) => {
            let number = connection
                .prepare_cached("select queue from queues where name = ?1")?
                .query_row([name.as_str()], |row| row.get(0))
                .optional()?;
            if number.is_none() {
                return Ok((Vec::new(), None));
            }
            number
        }
    };
    let before = filter
        .older_than
        .map(|age| now.as_micros().saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)));
    let task = filter.task.as_ref().map(TaskName::as_str);
    let reason = filter.reason.map(DeadReason::as_str);
    let fits = |found: &Found| {
        found.key > after
            && queue.is_none_or(|queue| queue == found.queue)
            && task.is_none_or(|task| task == found.row.task)
            && reason.is_none_or(|reason| found.note.as_deref() == Some(reason))
            && before.is_none_or(|before| found.since < before)
            && filter.error.as_deref().is_none_or(|text| last_error(&found.row).contains(text))
    };
    let mut statement;
    let mut rows = if let Some(id) = filter.id {
        statement = connection.prepare_cached(id_sql(filter.room))?;
        statement.query([id.as_bytes()])?
    } else {
        statement = connection.prepare_cached(page_sql(filter.room))?;
        statement.query(params![after, queue, task, reason, before])?
    };
    let mut found: Vec<Found> = Vec::new();
    while let Some(row) = rows.next()? {
        let job = Found::read(row)?;
        if !fits(&job) || !accept(&job)? {
            continue;
        }
        if found.len() == limit {
            let next = found.last().map(|last| last.key.to_string());
            return Ok((found, next));
        }
        found.push(job);
    }
    Ok((found, None))
}

fn last_error(row: &JobRow) -> String {
    let extras = celeriac_core::Extras::from_bytes(&row.extras).unwrap_or_default();
    extras.history.last().map(|attempt| attempt.error.clone()).unwrap_or_default()
}

pub(crate) fn queue_name(connection: &Connection, queue: i32) -> Result<QueueName, Fault> {
    let name: String = connection
        .prepare_cached("select name from queues where queue = ?1")?
        .query_row([queue], |row| row.get(0))?;
    Ok(QueueName::new(name).map_err(Error::from)?)
}

/// Who holds what: a few ranges for each worker.
#[derive(Default)]
pub(crate) struct Holders(Vec<(Range, String)>);

impl Holders {
    pub(crate) fn load(connection: &Connection) -> Result<Self, Fault> {
        let claims: Vec<(Vec<u8>, Vec<u8>, Option<String>)> = connection
            .prepare_cached(
                "select c.keys, c.worker, w.label from claims c left join workers w on w.worker = c.worker",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut held = Vec::new();
        for (keys, worker, label) in claims {
            let id = <[u8; 16]>::try_from(worker).unwrap_or_default();
            let label =
                label.unwrap_or_else(|| format!("{} (gone)", WorkerId::from_uuid(Uuid::from_bytes(id))));
            held.extend(ranges(&keys).into_iter().map(|range| (range, label.clone())));
        }
        held.sort_unstable_by_key(|(range, _)| range.low);
        Ok(Self(held))
    }

    pub(crate) fn of(&self, key: i64) -> Option<String> {
        let place = self.0.partition_point(|(range, _)| range.high < key);
        let (range, label) = self.0.get(place)?;
        (range.low <= key).then(|| label.clone())
    }

    /// The ranges, ordered.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range> {
        self.0.iter().map(|(range, _)| *range)
    }
}

/// The figures of the store: a row a queue and a row a worker, whatever the number of jobs.
pub(crate) fn stats(connection: &Connection, now: Timestamp) -> Result<Stats, Fault> {
    let mut stats = Stats::default();
    let queues: Vec<i32> = connection
        .prepare_cached("select queue from queues order by name")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for queue in queues {
        let state = QueueState::load(connection, queue)?;
        let mut shown = QueueStats::new(queue_name(connection, queue)?, state.settings.clone(), state.paused);
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        shown.ready = count(state.counts.ready);
        shown.held = count(state.counts.held);
        shown.scheduled = count(state.counts.scheduled);
        shown.parked = count(state.counts.parked);
        shown.dead = count(state.counts.dead);
        shown.enqueued = count(state.counts.enqueued);
        shown.done = count(state.counts.done);
        shown.retried = count(state.counts.retried);
        shown.buried = count(state.counts.buried);
        shown.redelivered = count(state.counts.redelivered);
        shown.cancelled = count(state.counts.cancelled);
        shown.dropped = count(state.counts.dropped);
        shown.oldest_due = oldest_ready(connection, queue, &state)?.map(|(_, due)| now.since(due));
        stats.queues.push(shown);
    }
    stats.workers = workers(connection, now)?;
    let parked: Vec<(String, i64)> = connection
        .prepare_cached("select waits_for, jobs from parked_counts order by waits_for")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (task, jobs) in parked {
        stats.parked.push((TaskName::new(task).map_err(Error::from)?, u64::try_from(jobs).unwrap_or(0)));
    }
    Ok(stats)
}

/// The ready job of a queue that has been due for the longest time, and since when: the head of each lane and
/// of each hole is looked at.
pub(crate) fn oldest_ready(
    connection: &Connection,
    queue: i32,
    state: &QueueState,
) -> Result<Option<(i64, Timestamp)>, Fault> {
    if state.counts.ready == 0 {
        return Ok(None);
    }
    let fresh = (0..=SUSPECTS).filter_map(|lane| state.fresh(queue, lane));
    let mut statement = connection
        .prepare_cached("select key, due_at from jobs where key >= ?1 and key <= ?2 order by key limit 1")?;
    let mut oldest: Option<(i64, Timestamp)> = None;
    let mut last_hole_lane = None;
    for range in fresh
        .map(|range| (None, range))
        .chain(state.holes.iter().map(|hole| (Some(parts(hole.low).1), *hole)))
    {
        let (hole_lane, range) = range;
        // Holes are ordered: the first of a lane that is not empty has its oldest job.
        if hole_lane.is_some() && hole_lane == last_hole_lane {
            continue;
        }
        let head: Option<(i64, i64)> =
            statement.query_row([range.low, range.high], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((key, due)) = head else { continue };
        last_hole_lane = hole_lane.or(last_hole_lane);
        if oldest.is_none_or(|(_, than)| due < than.as_micros()) {
            oldest = Some((key, Timestamp::from_micros(due)));
        }
    }
    Ok(oldest)
}

fn workers(connection: &Connection, now: Timestamp) -> Result<Vec<WorkerStats>, Fault> {
    let mut statement = connection.prepare_cached(
        "select worker, label, queues, tasks, concurrency, started_at, lease_until from workers order by label, worker",
    )?;
    let mut rows = statement.query([])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let id = WorkerId::from_uuid(Uuid::from_bytes(row.get(0)?));
        let started = Timestamp::from_micros(row.get(5)?);
        let lease_left: Duration = Timestamp::from_micros(row.get(6)?).since(now);
        let mut worker = WorkerStats::new(id, row.get(1)?, started, lease_left);
        let damaged = |error: serde_json::Error| Error::corrupt(format!("worker {id}"), error.to_string());
        worker.queues = serde_json::from_str(&row.get::<_, String>(2)?).map_err(damaged)?;
        worker.tasks = serde_json::from_str(&row.get::<_, String>(3)?).map_err(damaged)?;
        worker.concurrency = row.get(4)?;
        workers.push(worker);
    }
    Ok(workers)
}
