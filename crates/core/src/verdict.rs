use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::job::{AttemptKind, Job};
use crate::queue::QueueSettings;
use crate::task::{Delivery, TaskSpec};

/// What a run of a handler came to, before any policy is asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The job was cancelled and the handler stopped for it.
    Cancelled,
    /// The handler failed, panicked or ran out of time. `after` is the handler's own wish for the delay.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// The delay that the handler asked for, such as a `Retry-After`; it replaces the policy's delay,
        /// not the limit of attempts.
        after: Option<Duration>,
    },
    /// The handler says that no further attempt can help.
    Rejected(Failure),
    /// The worker stops and has not finished the job.
    Released,
    /// The handler wants to be called again later; this is no failure.
    Snoozed(Duration),
    /// The handler returned `Ok`.
    Succeeded,
    /// The arguments do not fit the task.
    Undecodable(Failure),
    /// This worker has no such task.
    UnknownTask,
}

/// What is written back for a delivery. Engines do as it says and decide nothing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Removed: a person or program cancelled it.
    Cancel,
    /// Finished: removed.
    Done,
    /// Set aside under its task's name until a worker comes that knows it. Counts nothing.
    Park,
    /// To the dead-letter bin. `failure`, if any, is added to its history, and counts as an attempt if the
    /// handler ran.
    Reject {
        /// Why.
        reason: DeadReason,
        /// The last failure.
        failure: Option<Failure>,
    },
    /// Given back untouched: keeps its place, counts nothing.
    Release,
    /// To `scheduled`, one attempt more, `failure` added to its history.
    Retry {
        /// Due this long after the verdict, by the store's clock.
        after: Duration,
        /// What went wrong.
        failure: Failure,
    },
    /// To `scheduled`, nothing counted.
    Snooze {
        /// Due this long after the verdict, by the store's clock.
        after: Duration,
    },
}

/// What went wrong in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// In which way.
    pub kind: AttemptKind,
    /// The text for a person.
    pub error: String,
}

impl Failure {
    /// Longer texts are cut here, with a mark: a bin full of megabyte errors helps nobody.
    pub const MAX_TEXT: usize = 4096;

    /// A failure of the given kind.
    pub fn new(kind: AttemptKind, error: impl Into<String>) -> Self {
        let mut error = error.into();
        if error.len() > Self::MAX_TEXT {
            let mut end = Self::MAX_TEXT - '…'.len_utf8();
            while !error.is_char_boundary(end) {
                end -= 1;
            }
            error.truncate(end);
            error.push('…');
        }
        Self { kind, error }
    }

    /// The handler returned an error.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::new(AttemptKind::Failed, error)
    }
}

/// Why a job is in the dead-letter bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadReason {
    /// Its worker died once too often while holding it.
    DeliveryLimit,
    /// Its time to live passed before it started.
    Expired,
    /// It may run at most once, and its worker died after it had been acknowledged.
    Interrupted,
    /// The queue was over its length limit and this was the oldest.
    MaxLength,
    /// The handler rejected it.
    Rejected,
    /// Every allowed attempt failed.
    RetriesExhausted,
    /// The arguments could not be decoded; the bytes are kept.
    Undecodable,
}

impl DeadReason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::DeliveryLimit,
        Self::Expired,
        Self::Interrupted,
        Self::MaxLength,
        Self::Rejected,
        Self::RetriesExhausted,
        Self::Undecodable,
    ];

    /// The word that programs and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeliveryLimit => "delivery_limit",
            Self::Expired => "expired",
            Self::Interrupted => "interrupted",
            Self::MaxLength => "max_length",
            Self::Rejected => "rejected",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Undecodable => "undecodable",
        }
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DeadReason {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|reason| reason.as_str()).collect();
            Error::invalid("reason", text, format!("known are {}", known.join(", ")))
        })
    }
}

/// Decides what a run's outcome means for the job: the only place where attempts are weighed.
///
/// `random` in `[0, 1)` decides the jitter of a retry's delay.
///
/// ```
/// use celeriac_core::{Failure, Outcome, TaskSpec, Verdict, judge};
/// # use celeriac_core::*;
/// # let job = Job::from_columns(JobId::from_key("t", "k"), QueueName::default(), TaskName::new("t").unwrap(),
/// #     Priority::LOWEST, Payload::from_json("{}").unwrap(), 0, 0, Timestamp::from_micros(0),
/// #     Timestamp::from_micros(0), None, Extras::default());
/// let task = TaskSpec::new("t".parse().unwrap());
/// let outcome = Outcome::Failed { failure: Failure::failed("no route"), after: None };
/// assert!(matches!(judge(&job, &task, outcome, 0.5), Verdict::Retry { .. }));
/// ```
pub fn judge(job: &Job, task: &TaskSpec, outcome: Outcome, random: f64) -> Verdict {
    match outcome {
        Outcome::Succeeded => Verdict::Done,
        Outcome::Cancelled => Verdict::Cancel,
        Outcome::Released if task.delivery == Delivery::AtMostOnce => {
            // It was acknowledged before it ran; giving it back would be a second delivery.
            Verdict::Reject { reason: DeadReason::Interrupted, failure: None }
        }
        Outcome::Released => Verdict::Release,
        Outcome::UnknownTask => Verdict::Park,
        Outcome::Snoozed(after) => Verdict::Snooze { after },
        Outcome::Rejected(failure) => {
            Verdict::Reject { reason: DeadReason::Rejected, failure: Some(failure) }
        }
        Outcome::Undecodable(failure) => {
            Verdict::Reject { reason: DeadReason::Undecodable, failure: Some(failure) }
        }
        Outcome::Failed { failure, after } => {
            let failures = job.attempt.saturating_add(1);
            let policy = job.extras.policy.retry.as_ref();
            if failures >= max_attempts(job, task) || task.delivery == Delivery::AtMostOnce {
                return Verdict::Reject { reason: DeadReason::RetriesExhausted, failure: Some(failure) };
            }
            let after = after.unwrap_or_else(|| policy.unwrap_or(&task.retry).delay(failures, random));
            Verdict::Retry { after, failure }
        }
    }
}

/// How many times the handler may fail: the job's own number, else that of its own policy, else the task's.
pub fn max_attempts(job: &Job, task: &TaskSpec) -> u32 {
    match (job.extras.policy.max_attempts, &job.extras.policy.retry) {
        (Some(attempts), _) => attempts,
        (None, Some(policy)) => policy.default_attempts(),
        (None, None) => task.max_attempts,
    }
}

/// What becomes of a job whose worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redelivery {
    /// Handed out again, alone, with one delivery more.
    Again,
    /// To the dead-letter bin.
    Bury(DeadReason),
}

/// Decides about a job whose worker died or was cut off. `deliveries` is the count before this loss.
pub const fn redeliver(deliveries: u32, acknowledged: bool, settings: &QueueSettings) -> Redelivery {
    if acknowledged {
        return Redelivery::Bury(DeadReason::Interrupted);
    }
    if deliveries.saturating_add(1) >= settings.delivery_limit {
        return Redelivery::Bury(DeadReason::DeliveryLimit);
    }
    Redelivery::Again
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Extras, JobId, Payload, Priority, QueueName, RetryPolicy, TaskName, Timestamp};

    fn job(attempt: u32) -> Job {
        Job::from_columns(
            JobId::from_key("t", "k"),
            QueueName::default(),
            TaskName::new("t").unwrap(),
            Priority::LOWEST,
            Payload::from_json("{}").unwrap(),
            attempt,
            0,
            Timestamp::from_micros(0),
            Timestamp::from_micros(0),
            None,
            Extras::default(),
        )
    }

    fn failed() -> Outcome {
        Outcome::Failed { failure: Failure::failed("x"), after: None }
    }

    #[test]
    fn the_last_allowed_failure_goes_to_the_bin() {
        let mut task = TaskSpec::new(TaskName::new("t").unwrap());
        task.max_attempts = 2;
        assert!(matches!(judge(&job(0), &task, failed(), 0.5), Verdict::Retry { .. }));
        assert!(matches!(
            judge(&job(1), &task, failed(), 0.5),
            Verdict::Reject { reason: DeadReason::RetriesExhausted, .. }
        ));
    }

    #[test]
    fn a_job_may_override_its_task() {
        let task = TaskSpec::new(TaskName::new("t").unwrap());
        let mut once = job(0);
        once.extras.policy.max_attempts = Some(1);
        assert!(matches!(judge(&once, &task, failed(), 0.5), Verdict::Reject { .. }));
        let mut tiers = job(1);
        tiers.extras.policy.retry = Some("1s, 2s".parse::<RetryPolicy>().unwrap());
        let Verdict::Retry { after, .. } = judge(&tiers, &task, failed(), 0.5) else { panic!("no retry") };
        assert_eq!(after, Duration::from_secs(2));
    }

    #[test]
    fn the_handlers_own_delay_counts_as_an_attempt() {
        let task = TaskSpec::new(TaskName::new("t").unwrap());
        let wish = Outcome::Failed { failure: Failure::failed("429"), after: Some(Duration::from_secs(7)) };
        assert_eq!(
            judge(&job(0), &task, wish.clone(), 0.9),
            Verdict::Retry { after: Duration::from_secs(7), failure: Failure::failed("429") }
        );
        assert!(matches!(judge(&job(4), &task, wish, 0.9), Verdict::Reject { .. }));
    }

    #[test]
    fn at_most_once_never_runs_twice() {
        let mut task = TaskSpec::new(TaskName::new("t").unwrap());
        task.delivery = Delivery::AtMostOnce;
        assert!(matches!(judge(&job(0), &task, failed(), 0.5), Verdict::Reject { .. }));
        assert!(matches!(
            judge(&job(0), &task, Outcome::Released, 0.5),
            Verdict::Reject { reason: DeadReason::Interrupted, .. }
        ));
        let settings = QueueSettings::default();
        assert_eq!(redeliver(0, true, &settings), Redelivery::Bury(DeadReason::Interrupted));
    }

    #[test]
    fn lost_deliveries_are_bounded() {
        let settings = QueueSettings { delivery_limit: 3, ..QueueSettings::default() };
        assert_eq!(redeliver(0, false, &settings), Redelivery::Again);
        assert_eq!(redeliver(1, false, &settings), Redelivery::Again);
        assert_eq!(redeliver(2, false, &settings), Redelivery::Bury(DeadReason::DeliveryLimit));
    }

    proptest! {
        #[test]
        fn every_failure_ends_within_the_limit(limit in 1u32..60, random in 0.0f64..1.0) {
            let mut task = TaskSpec::new(TaskName::new("t").unwrap());
            task.max_attempts = limit;
            let mut runs = 0;
            while let Verdict::Retry { .. } = judge(&job(runs), &task, failed(), random) {
                runs += 1;
                prop_assert!(runs < limit);
            }
            prop_assert_eq!(runs + 1, limit);
        }

        #[test]
        fn long_errors_are_cut_at_a_character(text in "\\PC{0,6000}") {
            let failure = Failure::failed(text.clone());
            prop_assert!(failure.error.len() <= Failure::MAX_TEXT);
            if text.len() <= Failure::MAX_TEXT { prop_assert_eq!(failure.error, text); }
        }
    }
}
