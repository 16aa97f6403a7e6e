use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::name::{QueueName, TaskName};
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::time::Timestamp;
use crate::verdict::Failure;

/// Free text that travels with a job, such as a trace parent or a tenant. Not for secrets: operators see it.
pub type Headers = BTreeMap<String, String>;

/// A job that is about to be stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewJob {
    /// Its id for ever.
    pub id: JobId,
    /// Whether a repeated enqueue of this id is looked for.
    pub idempotency: Idempotency,
    /// Where it goes.
    pub queue: QueueName,
    /// What it runs.
    pub task: TaskName,
    /// Its lane.
    pub priority: Priority,
    /// Its arguments.
    pub payload: Payload,
    /// When it may start.
    pub start: Start,
    /// How long after it is due it may wait for its first start. `None`: the queue's setting.
    pub ttl: Option<Duration>,
    /// What it overrides of its task's policy.
    pub policy: JobPolicy,
    /// Text that travels with it.
    pub headers: Headers,
}

impl NewJob {
    /// Most headers in one job, and most bytes in all of them: they are metadata, the payload carries data.
    pub const MAX_HEADERS: usize = 32;
    /// See [`NewJob::MAX_HEADERS`].
    pub const MAX_HEADER_BYTES: usize = 8 * 1024;

    /// A job with every default: due now, priority 0, nothing overridden.
    pub fn new(id: JobId, queue: QueueName, task: TaskName, payload: Payload) -> Self {
        Self {
            id,
            idempotency: Idempotency::None,
            queue,
            task,
            priority: Priority::default(),
            payload,
            start: Start::Now,
            ttl: None,
            policy: JobPolicy::default(),
            headers: Headers::new(),
        }
    }

    /// Checks the limits that hold in every engine. Engines call it before they store anything.
    ///
    /// # Errors
    /// [`Error::PayloadTooLarge`], or [`Error::Invalid`] for headers over their limits and for
    /// `max_attempts` of 0.
    pub fn check(&self, max_payload: usize) -> Result<()> {
        if self.payload.len() > max_payload {
            return Err(Error::PayloadTooLarge {
                task: self.task.clone(),
                size: self.payload.len(),
                limit: max_payload,
            });
        }
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.headers.len() > Self::MAX_HEADERS || bytes > Self::MAX_HEADER_BYTES {
            return Err(Error::invalid(
                "headers",
                format!("{} headers, {bytes} bytes", self.headers.len()),
                format!(
                    "at most {} headers and {} bytes are allowed",
                    Self::MAX_HEADERS,
                    Self::MAX_HEADER_BYTES
                ),
            ));
        }
        if self.policy.max_attempts == Some(0) {
            return Err(Error::invalid("max attempts", "0", "it must be at least 1"));
        }
        Ok(())
    }
}

/// Whether an enqueue looks for an earlier one of the same id. Looking costs an index entry, so only those
/// who ask pay for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idempotency {
    /// The id is remembered (7 days at least, also after the job is done), and a second enqueue of it stores
    /// nothing.
    ById,
    /// No look-up.
    #[default]
    None,
}

/// When a job may start, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// This long after it is stored.
    After(Duration),
    /// At this instant; one in the past means now.
    At(Timestamp),
    /// At once.
    #[default]
    Now,
}

/// What one job overrides of its task's policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct JobPolicy {
    /// How many times the handler may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Delays between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The longest run of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl JobPolicy {
    /// Whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A stored job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The queue it belongs to.
    pub queue: QueueName,
    /// What it runs.
    pub task: TaskName,
    /// Its lane.
    pub priority: Priority,
    /// Its arguments.
    pub payload: Payload,
    /// Attempts that ended in a failure so far.
    pub attempt: u32,
    /// Hand-overs that came back without a verdict so far.
    pub deliveries: u32,
    /// When it was first stored.
    pub enqueued_at: Timestamp,
    /// When it became due, last.
    pub due_at: Timestamp,
    /// When it expires if it was not started before.
    pub expires_at: Option<Timestamp>,
    /// Overrides, headers and history.
    pub extras: Extras,
}

impl Job {
    /// A job as an engine reads it from its columns.
    #[expect(clippy::too_many_arguments, reason = "one argument a column; an engine is the only caller")]
    pub const fn from_columns(
        id: JobId,
        queue: QueueName,
        task: TaskName,
        priority: Priority,
        payload: Payload,
        attempt: u32,
        deliveries: u32,
        enqueued_at: Timestamp,
        due_at: Timestamp,
        expires_at: Option<Timestamp>,
        extras: Extras,
    ) -> Self {
        Self {
            id,
            queue,
            task,
            priority,
            payload,
            attempt,
            deliveries,
            enqueued_at,
            due_at,
            expires_at,
            extras,
        }
    }
}

/// The parts of a job that most jobs do not have. Stored as one blob, empty for a job without any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Extras {
    /// What the job overrides.
    #[serde(skip_serializing_if = "JobPolicy::is_empty")]
    pub policy: JobPolicy,
    /// Text that travels with it.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// Its failures, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Attempt>,
}

impl Extras {
    /// The history keeps this many entries: the first, and the newest of the rest. A job that is snoozed or
    /// replayed for ever must not grow for ever.
    pub const MAX_HISTORY: usize = 100;

    /// As bytes for a store; empty when there is nothing to keep.
    pub fn to_bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        // Maps of strings and numbers always encode; a failure would be a bug in the encoder.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// From a store's bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when they are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        rmp_serde::from_slice(bytes).map_err(|error| Error::corrupt("a job's extras", error.to_string()))
    }

    /// Adds a failure to the history.
    pub fn record(&mut self, attempt: Attempt) {
        if self.history.len() >= Self::MAX_HISTORY {
            self.history.remove(1);
        }
        self.history.push(attempt);
    }
}

/// One entry of a job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// When it ended, by the store's clock.
    pub at: Timestamp,
    /// Which attempt or delivery it was, from 1.
    pub number: u32,
    /// The worker's label (`host:pid`), if one was involved.
    pub worker: String,
    /// How it ended.
    pub kind: AttemptKind,
    /// The error's text, shortened to [`Failure::MAX_TEXT`] bytes.
    pub error: String,
}

impl Attempt {
    /// An entry for `failure` of a run that ended at `at`.
    pub fn new(at: Timestamp, number: u32, worker: impl Into<String>, failure: Failure) -> Self {
        Self { at, number, worker: worker.into(), kind: failure.kind, error: failure.error }
    }
}

/// How an attempt ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptKind {
    /// The handler returned an error.
    Failed,
    /// The handler panicked.
    Panicked,
    /// The handler asked for the bin.
    Rejected,
    /// A person or program sent the job back from the bin.
    Replayed,
    /// The time limit passed.
    TimedOut,
    /// The arguments could not be decoded.
    Undecodable,
    /// The worker died or was cut off.
    WorkerLost,
}

impl AttemptKind {
    /// The word that programs and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Rejected => "rejected",
            Self::Replayed => "replayed",
            Self::TimedOut => "timed_out",
            Self::Undecodable => "undecodable",
            Self::WorkerLost => "worker_lost",
        }
    }
}

impl fmt::Display for AttemptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a job waits. A job is in exactly one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Room {
    /// Ready to run, or held by a worker.
    Jobs,
    /// Waits for a time.
    Scheduled,
    /// Waits for another job, or for a worker that knows its task.
    Parked,
    /// Waits for a person: the dead-letter bin.
    Dead,
}

impl Room {
    /// All rooms.
    pub const ALL: [Self; 4] = [Self::Jobs, Self::Scheduled, Self::Parked, Self::Dead];

    /// The word that programs and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Scheduled => "scheduled",
            Self::Parked => "parked",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Room {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|room| room.as_str() == text)
            .ok_or_else(|| Error::invalid("room", text, "known are jobs, scheduled, parked, dead"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_are_empty_for_a_plain_job_and_survive_the_round() {
        assert!(Extras::default().to_bytes().is_empty());
        let mut extras = Extras::default();
        extras.headers.insert("traceparent".into(), "00-ab".into());
        extras.policy.retry = Some("1s, 2s".parse().unwrap());
        extras.record(Attempt::new(Timestamp::from_micros(7), 1, "host:1", Failure::failed("boom")));
        assert_eq!(Extras::from_bytes(&extras.to_bytes()).unwrap(), extras);
        assert!(Extras::from_bytes(&[0xc1, 9]).is_err());
    }

    #[test]
    fn history_keeps_the_first_and_the_newest() {
        let mut extras = Extras::default();
        for number in 1..=250 {
            extras.record(Attempt::new(Timestamp::from_micros(0), number, "w", Failure::failed("x")));
        }
        assert_eq!(extras.history.len(), Extras::MAX_HISTORY);
        assert_eq!(extras.history[0].number, 1);
        assert_eq!(extras.history.last().unwrap().number, 250);
    }
}
