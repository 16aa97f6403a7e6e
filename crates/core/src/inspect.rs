//! What operators ask of a store, and what it answers.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::{JobId, WorkerId};
use crate::job::{Job, Room};
use crate::name::{QueueName, TaskName};
use crate::queue::{Paused, QueueSettings};
use crate::time::Timestamp;
use crate::verdict::DeadReason;

/// Which jobs of a room are meant. Every part that is given must match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// The room.
    pub room: Room,
    /// Only this job.
    pub id: Option<JobId>,
    /// Only this queue.
    pub queue: Option<QueueName>,
    /// Only this task.
    pub task: Option<TaskName>,
    /// Only this reason (of the bin).
    pub reason: Option<DeadReason>,
    /// Only jobs whose last error contains this text.
    pub error: Option<String>,
    /// Only jobs that have been in the room for longer than this.
    pub older_than: Option<Duration>,
}

impl Filter {
    /// Everything in a room.
    pub const fn room(room: Room) -> Self {
        Self { room, id: None, queue: None, task: None, reason: None, error: None, older_than: None }
    }
}

/// Which page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageOptions {
    /// At most this many; 1 to 1,000, default 50.
    pub limit: usize,
    /// [`Page::next`] of the page before; `None` for the first.
    pub after: Option<String>,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self { limit: 50, after: None }
    }
}

impl PageOptions {
    /// The bounds of [`PageOptions::limit`].
    pub const MAX_LIMIT: usize = 1_000;

    /// The limit, if it is within its bounds.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub fn checked_limit(&self) -> Result<usize> {
        if (1..=Self::MAX_LIMIT).contains(&self.limit) {
            return Ok(self.limit);
        }
        Err(Error::invalid(
            "page size",
            self.limit.to_string(),
            format!("allowed are 1 to {}", Self::MAX_LIMIT),
        ))
    }
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Details>,
    /// Where the next page starts; `None` if this was the last.
    pub next: Option<String>,
}

impl Page {
    /// For engines.
    pub const fn new(jobs: Vec<Details>, next: Option<String>) -> Self {
        Self { jobs, next }
    }
}

/// A job and where it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Details {
    /// The job.
    pub job: Job,
    /// Its room.
    pub room: Room,
    /// Since when it is in this room (for a job that comes back from a worker: since it came back).
    pub since: Timestamp,
    /// Who holds it, as `host:pid`.
    pub held_by: Option<String>,
    /// What it waits for, in `parked`: the task that no live worker knew.
    pub waits_for: Option<String>,
    /// Why it is in the bin.
    pub reason: Option<DeadReason>,
}

impl Details {
    /// For engines.
    pub const fn new(job: Job, room: Room, since: Timestamp) -> Self {
        Self { job, room, since, held_by: None, waits_for: None, reason: None }
    }

    /// The text of its last failure.
    pub fn last_error(&self) -> Option<&str> {
        self.job.extras.history.last().map(|attempt| attempt.error.as_str())
    }
}

/// What a cancellation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// There is no such job: it is finished or never was.
    NotFound,
    /// It waited in this room and was removed.
    Removed(Room),
    /// A worker holds it; its cancellation token fires within a second or so.
    Requested,
}

/// What to do with all jobs that match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkAct {
    /// Only report what matches.
    Nothing,
    /// Remove for good.
    Purge,
    /// Send back from the bin: attempts and deliveries start again from zero, the history stays.
    Replay {
        /// Into this queue instead of its own.
        queue: Option<QueueName>,
    },
}

/// How to act in bulk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkOptions {
    /// At most this many jobs in one step; 1 to 1,000, default 500.
    pub limit: usize,
    /// [`Page::next`] of the step before; `None` for the first.
    pub after: Option<String>,
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self { limit: 500, after: None }
    }
}

/// The figures of a store.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Every queue, by name.
    pub queues: Vec<QueueStats>,
    /// Every registered worker, by label.
    pub workers: Vec<WorkerStats>,
    /// Tasks that parked jobs wait for, with their numbers.
    pub parked: Vec<(TaskName, u64)>,
}

/// The figures of one queue.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The queue.
    pub name: QueueName,
    /// Its settings.
    pub settings: QueueSettings,
    /// Whether it is paused.
    pub paused: Paused,
    /// Jobs that could be claimed now.
    pub ready: u64,
    /// Jobs that workers hold.
    pub held: u64,
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that wait for another job or a worker.
    pub parked: u64,
    /// Jobs in the bin.
    pub dead: u64,
    /// How long the oldest ready job has been due.
    pub oldest_due: Option<Duration>,
    /// Jobs ever stored.
    pub enqueued: u64,
    /// Verdicts `done` ever.
    pub done: u64,
    /// Verdicts `retry` ever.
    pub retried: u64,
    /// Jobs ever moved to the bin.
    pub buried: u64,
    /// Jobs ever redelivered after the loss of a worker.
    pub redelivered: u64,
    /// Jobs ever cancelled.
    pub cancelled: u64,
    /// Jobs ever dropped or purged: by an expiry setting, by retention, by a person.
    pub dropped: u64,
}

impl QueueStats {
    /// An empty queue.
    pub const fn new(name: QueueName, settings: QueueSettings, paused: Paused) -> Self {
        Self {
            name,
            settings,
            paused,
            ready: 0,
            held: 0,
            scheduled: 0,
            parked: 0,
            dead: 0,
            oldest_due: None,
            enqueued: 0,
            done: 0,
            retried: 0,
            buried: 0,
            redelivered: 0,
            cancelled: 0,
            dropped: 0,
        }
    }
}

/// A job that is done and gone, as far as its queue remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The job.
    pub id: JobId,
    /// The queue that it was done in.
    pub queue: QueueName,
    /// The label of the worker that did it.
    pub worker: String,
    /// When its verdict was stored.
    pub at: Timestamp,
}

impl Finished {
    /// For engines.
    pub const fn new(id: JobId, queue: QueueName, worker: String, at: Timestamp) -> Self {
        Self { id, queue, worker, at }
    }
}

/// One registered worker.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Its identity.
    pub id: WorkerId,
    /// `host:pid`.
    pub label: String,
    /// The queues that it serves.
    pub queues: Vec<QueueName>,
    /// The tasks that it knows.
    pub tasks: Vec<TaskName>,
    /// How many handlers it runs at once.
    pub concurrency: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// How long its lease still holds; zero when it lapsed and waits for the rescue.
    pub lease_left: Duration,
}

impl WorkerStats {
    /// For engines.
    pub const fn new(id: WorkerId, label: String, started_at: Timestamp, lease_left: Duration) -> Self {
        Self { id, label, queues: Vec::new(), tasks: Vec::new(), concurrency: 0, started_at, lease_left }
    }
}

/// How to check a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Mend what can be mended: jobs that nothing leads to are given back to their queue, counters are set
    /// right.
    pub repair: bool,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// How many jobs were looked at.
    pub jobs: u64,
    /// What is broken. Empty is healthy.
    pub violations: Vec<Violation>,
    /// What an operator should know and what breaks nothing: where the store lives, how durable it is.
    pub notes: Vec<String>,
}

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which invariant, in words.
    pub invariant: String,
    /// Where, and the values.
    pub detail: String,
    /// Whether it was mended.
    pub repaired: bool,
}

impl Violation {
    /// For engines.
    pub fn new(invariant: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { invariant: invariant.into(), detail: detail.into(), repaired: false }
    }
}
