use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use celeriac_core::{AttemptKind, DeadReason, QueueName, TaskName, Verdict};
use metrics::{Counter, Histogram};

use crate::catalogue::{DEAD, FINISHED, RETRIES, RUN_SECONDS, STARTED, TOTAL_SECONDS, WAIT_SECONDS};
use crate::pairs::Pairs;

/// A [`JobMeter`] for each task and queue.
#[derive(Debug)]
pub struct JobMeters(Pairs<JobMeter>);

impl JobMeters {
    /// Handles are made in the recorder that is installed when a task and queue are met first.
    pub fn new() -> Self {
        Self(Pairs::new(JobMeter::new))
    }

    /// The handles of one task in one queue. Keep it with the job: what follows costs no look-up.
    pub fn of(&self, queue: &QueueName, task: &TaskName) -> Arc<JobMeter> {
        self.0.of(queue, task)
    }
}

impl Default for JobMeters {
    fn default() -> Self {
        Self::new()
    }
}

/// What is measured of the jobs of one task in one queue.
pub struct JobMeter {
    queue: Box<str>,
    task: Box<str>,
    started: Counter,
    wait: Histogram,
    run: Histogram,
    total: Histogram,
    // Made when they are needed: most tasks never see most outcomes.
    outcomes: [OnceLock<Counter>; OUTCOMES.len()],
    retries: [OnceLock<Counter>; RETRY_KINDS.len()],
    dead: [OnceLock<Counter>; DeadReason::ALL.len()],
}

impl JobMeter {
    fn new(queue: &str, task: &str) -> Self {
        let both = [queue, task];
        Self {
            started: STARTED.counter(&both),
            wait: WAIT_SECONDS.histogram(&both),
            run: RUN_SECONDS.histogram(&both),
            total: TOTAL_SECONDS.histogram(&both),
            outcomes: [const { OnceLock::new() }; OUTCOMES.len()],
            retries: [const { OnceLock::new() }; RETRY_KINDS.len()],
            dead: [const { OnceLock::new() }; DeadReason::ALL.len()],
            queue: queue.into(),
            task: task.into(),
        }
    }

    /// A handler starts, so long after the job was due.
    pub fn started(&self, waited: Duration) {
        self.started.increment(1);
        self.wait.record(waited.as_secs_f64());
    }

    /// A handler ended after this time.
    pub fn ran(&self, run: Duration) {
        self.run.record(run.as_secs_f64());
    }

    /// The store applied a verdict, so long after the job was enqueued.
    pub fn settled(&self, verdict: &Verdict, total: Duration) {
        let outcome = outcome(verdict);
        self.count(&self.outcomes, OUTCOMES, outcome, |values| FINISHED.counter(values));
        match verdict {
            Verdict::Done => self.total.record(total.as_secs_f64()),
            Verdict::Retry { failure, .. } => {
                self.count(&self.retries, RETRY_KINDS, failure.kind.as_str(), |values| {
                    RETRIES.counter(values)
                });
            }
            Verdict::Reject { reason, .. } => {
                let reasons = DeadReason::ALL.map(DeadReason::as_str);
                self.count(&self.dead, &reasons, reason.as_str(), |values| DEAD.counter(values));
            }
            _ => {}
        }
    }

    fn count(
        &self,
        kept: &[OnceLock<Counter>],
        words: &[&str],
        word: &str,
        make: impl FnOnce(&[&str]) -> Counter,
    ) {
        let make = || make(&[&self.queue, &self.task, word]);
        match words.iter().position(|known| *known == word) {
            Some(place) => kept[place].get_or_init(make).increment(1),
            // A word that came later than this list.
            None => make().increment(1),
        }
    }
}

impl fmt::Debug for JobMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobMeter({}, {})", self.queue, self.task)
    }
}

const fn outcome(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Done => "done",
        Verdict::Retry { .. } => "retried",
        Verdict::Snooze { .. } => "snoozed",
        Verdict::Reject { .. } => "dead",
        Verdict::Cancel => "cancelled",
        Verdict::Park => "parked",
        // The one that is left; a new verdict must be given a word here.
        _ => "released",
    }
}

const OUTCOMES: &[&str] = &["done", "retried", "snoozed", "dead", "cancelled", "parked", "released"];

/// What can go wrong in a run that is repeated.
const RETRY_KINDS: &[&str] =
    &[AttemptKind::Failed.as_str(), AttemptKind::Panicked.as_str(), AttemptKind::TimedOut.as_str()];
