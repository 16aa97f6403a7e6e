use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use celeriac_core::{ErrorCode, QueueName};

/// How a worker is, for those who look at it from outside: health checks and autoscalers. A clone looks at the same
/// worker.
///
/// Make one, give it to [`WorkerBuilder::pulse`](crate::WorkerBuilder::pulse), and ask it from any thread, also while
/// a handler blocks the worker's runtime. One that was given to no worker stays [`Phase::Starting`].
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    made: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the claim loop succeeded last.
    beat: Option<Instant>,
    /// When the lease was renewed last.
    renewed: Option<Instant>,
    queues: Vec<QueueName>,
    concurrency: usize,
    /// Moving average in seconds.
    run_time: Option<f64>,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It is about to register: it has not reached the store yet, or not again after it lost its lease.
    Starting,
    /// It takes jobs.
    Ready,
    /// Its last call to the store failed with this code. It tries again by itself.
    Troubled(ErrorCode),
    /// It takes no more jobs and ends.
    Draining,
}

/// A worker at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Vitals {
    /// What it is doing.
    pub phase: Phase,
    /// Time since its claim loop succeeded: a claim was answered, or there was no handler to claim for. Before the
    /// first time, the time since the pulse was made.
    pub since_claim: Duration,
    /// Time since its lease was renewed; `None` before the first time.
    pub since_renewal: Option<Duration>,
    /// The queues that it serves; empty before it started.
    pub queues: Vec<QueueName>,
    /// How many handlers it runs at once; 0 before it started.
    pub concurrency: usize,
    /// The average run time of its latest jobs; `None` before the first.
    pub run_time: Option<Duration>,
}

impl Pulse {
    /// Of a worker that is still to be made.
    pub fn new() -> Self {
        let state = State {
            phase: Phase::Starting,
            beat: None,
            renewed: None,
            queues: Vec::new(),
            concurrency: 0,
            run_time: None,
        };
        Self(Arc::new(Shared { made: Instant::now(), state: Mutex::new(state) }))
    }

    /// The worker as it is now.
    pub fn vitals(&self) -> Vitals {
        let state = self.lock();
        Vitals {
            phase: state.phase,
            since_claim: state.beat.unwrap_or(self.0.made).elapsed(),
            since_renewal: state.renewed.map(|renewed| renewed.elapsed()),
            queues: state.queues.clone(),
            concurrency: state.concurrency,
            run_time: state.run_time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }

    pub(crate) fn describe(&self, queues: Vec<QueueName>, concurrency: usize) {
        let mut state = self.lock();
        state.queues = queues;
        state.concurrency = concurrency;
    }

    pub(crate) fn registered(&self) {
        self.lock().renewed = Some(Instant::now());
    }

    pub(crate) fn renewed(&self) {
        self.lock().renewed = Some(Instant::now());
    }

    /// The claim loop went round.
    pub(crate) fn beat(&self) {
        let mut state = self.lock();
        state.beat = Some(Instant::now());
        if state.phase != Phase::Draining {
            state.phase = Phase::Ready;
        }
    }

    pub(crate) fn troubled(&self, code: ErrorCode) {
        self.enter(Phase::Troubled(code));
    }

    pub(crate) fn lost(&self) {
        self.enter(Phase::Starting);
    }

    pub(crate) fn draining(&self) {
        self.enter(Phase::Draining);
    }

    /// Handlers ended after these times.
    pub(crate) fn ran(&self, runs: impl Iterator<Item = Duration>) {
        let mut state = self.lock();
        for run in runs.map(|run| run.as_secs_f64()) {
            state.run_time = Some(state.run_time.map_or(run, |average| average + (run - average) * WEIGHT));
        }
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        // Nothing follows on a drain.
        if state.phase != Phase::Draining {
            state.phase = phase;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values stay valid whatever panics.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

/// How much one job counts in the average run time.
const WEIGHT: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_the_last_phase() {
        let pulse = Pulse::new();
        assert_eq!(pulse.vitals().phase, Phase::Starting);
        pulse.beat();
        assert_eq!(pulse.vitals().phase, Phase::Ready);
        pulse.lost();
        assert_eq!(pulse.vitals().phase, Phase::Starting);
        pulse.draining();
        pulse.beat();
        pulse.lost();
        assert_eq!(pulse.vitals().phase, Phase::Draining);
    }
}
