use std::fmt;
use std::time::Duration;

use celeriac_core::{Enqueued, Error, QueueName, Result, TaskName};
use metrics::{Counter, Histogram};

use crate::catalogue::{ENQUEUE_ERRORS, ENQUEUE_JOBS, ENQUEUE_SECONDS, ENQUEUED};
use crate::pairs::Pairs;

/// What a client measures of its enqueue calls.
pub struct ClientMeters {
    seconds: Histogram,
    jobs: Histogram,
    enqueued: Pairs<Counter>,
}

impl ClientMeters {
    /// Handles in the recorder that is installed now.
    pub fn new() -> Self {
        Self {
            seconds: ENQUEUE_SECONDS.histogram(&[]),
            jobs: ENQUEUE_JOBS.histogram(&[]),
            enqueued: Pairs::new(|queue, task| ENQUEUED.counter(&[queue, task])),
        }
    }

    /// Notes one call that took `took` and stored one job.
    pub fn one(&self, queue: &QueueName, task: &TaskName, answer: &Result<Vec<Enqueued>>, took: Duration) {
        if self.call(1, answer, took) && answer.as_ref().is_ok_and(|answers| is_new(answers.first())) {
            self.enqueued.of(queue, task).increment(1);
        }
    }

    /// Notes one call for these jobs, in the order of the answers.
    pub fn many(&self, jobs: &[(QueueName, TaskName)], answer: &Result<Vec<Enqueued>>, took: Duration) {
        if !self.call(jobs.len(), answer, took) {
            return;
        }
        let Ok(answers) = answer else { return };
        let new = |place: usize| is_new(answers.get(place));
        let mut place = 0;
        // Neighbours are mostly of one kind: one look-up for a run of them.
        while place < jobs.len() {
            let run = jobs[place..].iter().take_while(|job| **job == jobs[place]).count();
            let count = (place..place + run).filter(|place| new(*place)).count();
            let (queue, task) = &jobs[place];
            self.enqueued.of(queue, task).increment(u64::try_from(count).unwrap_or(u64::MAX));
            place += run;
        }
    }

    /// Gives whether it succeeded.
    fn call(&self, jobs: usize, answer: &Result<Vec<Enqueued>>, took: Duration) -> bool {
        self.seconds.record(took.as_secs_f64());
        self.jobs.record(jobs as f64);
        if let Err(error) = answer {
            self.failed(error);
        }
        answer.is_ok()
    }

    fn failed(&self, error: &Error) {
        ENQUEUE_ERRORS.counter(&[error.code().as_str()]).increment(1);
    }
}

/// A job without an answer was stored: one answer for each is the broker's contract.
fn is_new(answer: Option<&Enqueued>) -> bool {
    !matches!(answer, Some(Enqueued::Existed(_)))
}

impl Default for ClientMeters {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ClientMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientMeters")
    }
}
