use std::time::Duration;

use celeriac_core::{QueueFigures, QueueName, Sample, parse_duration};
use celeriac_worker::Vitals;
use serde::Serialize;

/// What an autoscaler asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// `None`: those of this worker.
    pub(crate) queues: Option<Vec<QueueName>>,
    /// In what time the backlog is to be worked off.
    pub(crate) target: Duration,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Default for Question {
    fn default() -> Self {
        // One worker by default: this endpoint is in a worker, so somebody must be there to say that more are wanted.
        Self { queues: None, target: Duration::from_secs(60), least: 1, most: 1_000 }
    }
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    pub(crate) queues: Vec<QueueName>,
    /// Jobs that could run now if there were handlers.
    pub(crate) backlog: u64,
    /// Jobs in the hands of workers.
    pub(crate) held: u64,
    pub(crate) oldest_due_seconds: f64,
    pub(crate) arrivals_per_second: f64,
    pub(crate) departures_per_second: f64,
    /// At the present rates; `null` when the backlog does not shrink.
    pub(crate) time_to_drain_seconds: Option<f64>,
    pub(crate) workers: u64,
    pub(crate) slots: u64,
    /// What one worker is taken to manage; `null` while nothing was measured.
    pub(crate) jobs_per_worker_per_second: Option<f64>,
    pub(crate) wanted_workers: u64,
    pub(crate) sample_age_seconds: f64,
}

impl Question {
    /// From the part of a URL after the `?`.
    pub(crate) fn read(query: &str) -> Result<Self, String> {
        let mut question = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} has no value"))?;
            let number = || {
                value
                    .parse()
                    .ok()
                    .filter(|number| *number <= MOST_WORKERS)
                    .ok_or_else(|| format!("{key}={value:?} is no number from 0 to {MOST_WORKERS}"))
            };
            match key {
                "queues" => {
                    let names: Result<Vec<QueueName>, _> =
                        value.split([',']).take(MOST_QUEUES).map(QueueName::new).collect();
                    question.queues = Some(names.map_err(|error| error.to_string())?);
                }
                "target" => {
                    let target = parse_duration(value).map_err(|error| error.to_string())?;
                    if target < Duration::from_secs(1) {
                        return Err(format!("target={value:?} is less than 1s"));
                    }
                    question.target = target;
                }
                "least" => question.least = number()?,
                "most" => question.most = number()?,
                _ => return Err(format!("{key:?} is unknown; known are queues, target, least and most")),
            }
        }
        if question.least > question.most {
            return Err(format!("least={} is more than most={}", question.least, question.most));
        }
        Ok(question)
    }

    pub(crate) fn answer(&self, sample: &Sample, age: Duration, vitals: &Vitals) -> Answer {
        let queues = self.queues.clone().unwrap_or_else(|| vitals.queues.clone());
        let figures = sample.total(&queues);
        let arrivals = figures.arrivals_per_second.unwrap_or(0.0);
        let departures = figures.departures_per_second.unwrap_or(0.0);
        let capacity = capacity(&figures, vitals);
        Answer {
            backlog: figures.ready,
            held: figures.held,
            oldest_due_seconds: figures.oldest_due.unwrap_or_default().as_secs_f64(),
            arrivals_per_second: arrivals,
            departures_per_second: departures,
            time_to_drain_seconds: drain(figures.ready, arrivals, departures),
            workers: figures.workers,
            slots: figures.slots,
            jobs_per_worker_per_second: capacity,
            wanted_workers: self.wanted(&figures, arrivals, capacity),
            sample_age_seconds: age.as_secs_f64(),
            queues,
        }
    }

    /// As many as keep up with what comes and work off the backlog within the target.
    fn wanted(&self, figures: &QueueFigures, arrivals: f64, capacity: Option<f64>) -> u64 {
        let busy = figures.ready > 0 || figures.held > 0;
        let wanted = match capacity.filter(|capacity| *capacity > 0.0) {
            Some(capacity) => {
                let load = arrivals + figures.ready as f64 / self.target.as_secs_f64();
                // A rounding error must not ask for one more.
                let workers = (load / capacity - 1e-9).ceil().max(0.0);
                if workers >= MOST_WORKERS as f64 { MOST_WORKERS } else { workers as u64 }
            }
            // Nothing is known: what is there stays.
            None => figures.workers,
        };
        wanted.max(u64::from(busy)).clamp(self.least, self.most)
    }
}

/// Jobs a second that one worker manages: by the run time and the handlers of this one, which is what a further worker
/// would have, or else by what all of them did.
fn capacity(figures: &QueueFigures, vitals: &Vitals) -> Option<f64> {
    if let Some(run) = vitals.run_time.filter(|run| !run.is_zero()) {
        return Some(vitals.concurrency as f64 / run.as_secs_f64());
    }
    let departures = figures.departures_per_second.filter(|rate| *rate > 0.0)?;
    (figures.workers > 0).then(|| departures / figures.workers as f64)
}

fn drain(backlog: u64, arrivals: f64, departures: f64) -> Option<f64> {
    if backlog == 0 {
        return Some(0.0);
    }
    let net = departures - arrivals;
    (net > 0.0).then(|| backlog as f64 / net)
}

/// Beyond this a number is a mistake.
const MOST_WORKERS: u64 = 1_000_000;

/// As many as a sample names.
const MOST_QUEUES: usize = Sample::MAX_QUEUES;

#[cfg(test)]
mod tests {
    use celeriac_worker::Pulse;

    use super::*;

    fn figures(ready: u64, arrivals: f64, departures: f64, workers: u64) -> QueueFigures {
        let mut figures = QueueFigures::default();
        figures.ready = ready;
        figures.arrivals_per_second = Some(arrivals);
        figures.departures_per_second = Some(departures);
        figures.workers = workers;
        figures
    }

    #[test]
    fn workers_keep_up_and_work_off_the_backlog() {
        let question = Question::default();
        // 10 a second come, 600 wait and are to be gone in a minute: 20 a second, and a worker does 5.
        assert_eq!(question.wanted(&figures(600, 10.0, 5.0, 1), 10.0, Some(5.0)), 4);
        assert_eq!(question.wanted(&figures(0, 0.0, 0.0, 3), 0.0, Some(5.0)), 1, "never none by itself");
        assert_eq!(question.wanted(&figures(9, 0.0, 0.0, 3), 0.0, None), 3, "nothing is measured: no change");
        let bounded = Question { most: 2, ..Question::default() };
        assert_eq!(bounded.wanted(&figures(1_000_000, 10.0, 5.0, 1), 10.0, Some(5.0)), 2);
        let none = Question { least: 0, ..Question::default() };
        assert_eq!(none.wanted(&figures(0, 0.0, 0.0, 3), 0.0, Some(5.0)), 0);
        assert_eq!(none.wanted(&figures(1, 0.0, 0.0, 0), 0.0, None), 1, "somebody must run it");
    }

    #[test]
    fn a_backlog_that_grows_is_never_drained() {
        assert_eq!(drain(0, 5.0, 0.0), Some(0.0));
        assert_eq!(drain(100, 5.0, 5.0), None);
        assert_eq!(drain(100, 5.0, 15.0), Some(10.0));
    }

    #[test]
    fn capacity_is_that_of_this_worker_or_of_all() {
        let mut vitals = Pulse::new().vitals();
        assert_eq!(capacity(&figures(0, 0.0, 0.0, 0), &vitals), None);
        assert_eq!(capacity(&figures(0, 0.0, 10.0, 4), &vitals), Some(2.5));
        vitals.run_time = Some(Duration::from_millis(500));
        vitals.concurrency = 8;
        assert_eq!(capacity(&figures(0, 0.0, 10.0, 4), &vitals), Some(16.0));
    }

    #[test]
    fn questions_are_read_and_bad_ones_refused() {
        let question = Question::read("queues=a,b&target=2m&least=0&most=9").unwrap();
        assert_eq!(question.queues.unwrap().len(), 2);
        assert_eq!((question.target, question.least, question.most), (Duration::from_secs(120), 0, 9));
        assert_eq!(Question::read("").unwrap(), Question::default());
        for (query, part) in [
            ("target=5", "a number with its unit"),
            ("target=0s", "less than 1s"),
            ("most=many", "no number"),
            ("least=5&most=2", "more than most"),
            ("queues=two%20words", "has '%'"),
            ("drain=1", "known are queues, target, least and most"),
            ("most", "has no value"),
        ] {
            let error = Question::read(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
