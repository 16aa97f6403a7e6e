use std::time::{Duration, SystemTime, UNIX_EPOCH};

use celeriac_core::{Extras, Job, JobId, Payload, Priority, QueueName, Result, TaskName, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

/// A job from columns in the order `id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at,
/// extras`, the first of them at `at`.
pub(crate) fn job(row: &Row, at: usize, queue: QueueName) -> Result<Job> {
    let id = JobId::from_uuid(row.get::<_, Uuid>(at));
    let priority = u8::try_from(row.get::<_, i16>(at + 5)).unwrap_or(0);
    Ok(Job::from_columns(
        id,
        queue,
        TaskName::new(row.get::<_, &str>(at + 1))?,
        Priority::new(priority)?,
        Payload::from_stored(row.get(at + 2)),
        count(row.get(at + 3)),
        count(row.get(at + 4)),
        instant(row.get(at + 6)),
        instant(row.get(at + 7)),
        row.get::<_, Option<SystemTime>>(at + 8).map(instant),
        extras(id, row.get(at + 9)),
    ))
}

/// Extras that are damaged are left out: a job must not be stuck for them, and a listing must not end at it.
pub(crate) fn extras(id: JobId, bytes: Option<&[u8]>) -> Extras {
    Extras::from_bytes(bytes.unwrap_or_default()).unwrap_or_else(|error| {
        tracing::warn!(job = %id, error = %error.full(), "the extras of a job are damaged and are left out");
        Extras::default()
    })
}

pub(crate) fn instant(time: SystemTime) -> Timestamp {
    Timestamp::from_system_time(time)
}

/// An instant as the server takes it; past its range (the year 294,276) it would be refused.
pub(crate) fn system_time(instant: Timestamp) -> SystemTime {
    const LAST: i64 = 9_000_000_000_000_000_000;
    UNIX_EPOCH + Duration::from_micros(u64::try_from(instant.as_micros().clamp(0, LAST)).unwrap_or(0))
}

pub(crate) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

pub(crate) fn total(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(crate) fn limit(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
