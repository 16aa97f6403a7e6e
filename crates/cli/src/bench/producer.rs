use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac::Client;
use celeriac::core::Call;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::job;
use crate::failure::Failure;

/// Callers that store jobs at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Producers {
    pub(crate) client: Client,
    pub(crate) callers: usize,
    pub(crate) batch: usize,
    /// The string in each job.
    pub(crate) text: Arc<str>,
    pub(crate) timing: Timing,
}

/// Whether jobs carry the moment of their call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    Off,
    On,
    /// They do not, and are not due for a day.
    Tomorrow,
}

/// When callers stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) jobs: u64,
    pub(crate) time: Option<Duration>,
}

/// How far callers may be ahead of the workers.
#[derive(Debug)]
pub(crate) struct Window {
    /// Jobs stored so far, together with those in calls under way.
    pub(crate) stored: AtomicU64,
    /// Jobs finished so far, as last seen.
    pub(crate) done: AtomicU64,
    pub(crate) most: u64,
}

/// What callers did.
#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    /// How long calls took, in microseconds.
    pub(crate) calls: Histogram<u64>,
}

impl Producers {
    /// Stores jobs until `until`, and returns when every call has returned.
    pub(crate) async fn run(&self, until: Until, window: Option<Arc<Window>>) -> Result<Produced, Failure> {
        let taken = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            let (producers, taken, window) = (self.clone(), Arc::clone(&taken), window.clone());
            callers.spawn(async move { producers.call(&taken, until, start, window.as_deref()).await });
        }
        let mut produced = Produced { jobs: 0, seconds: 0.0, calls: job::waits()? };
        while let Some(caller) = callers.join_next().await {
            let (jobs, calls) =
                caller.map_err(|error| Failure::failed("bench", format!("a caller failed: {error}")))??;
            produced.jobs += jobs;
            let _ = produced.calls.add(calls);
        }
        produced.seconds = start.elapsed().as_secs_f64();
        Ok(produced)
    }

    async fn call(
        &self,
        taken: &AtomicU64,
        until: Until,
        start: Instant,
        window: Option<&Window>,
    ) -> Result<(u64, Histogram<u64>), Failure> {
        let mut calls = job::waits()?;
        let mut stored = 0;
        loop {
            if until.time.is_some_and(|time| start.elapsed() >= time) {
                return Ok((stored, calls));
            }
            let first = taken.fetch_add(self.batch as u64, Ordering::Relaxed);
            let count = until.jobs.saturating_sub(first).min(self.batch as u64);
            if count == 0 {
                return Ok((stored, calls));
            }
            if let Some(window) = window {
                window.enter(count, until, start).await;
            }
            let one = Instant::now();
            if count == 1 {
                self.client.enqueue(self.job(first)).await?;
            } else {
                self.client.enqueue_all((first..first + count).map(|number| self.job(number))).await?;
            }
            calls.saturating_record(u64::try_from(one.elapsed().as_micros()).unwrap_or(u64::MAX).max(1));
            stored += count;
        }
    }

    fn job(&self, number: u64) -> Call {
        match self.timing {
            Timing::Off => job::plain_call(number, &self.text),
            Timing::On => job::timed_call(number, &self.text),
            Timing::Tomorrow => job::plain_call(number, &self.text).delay(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

impl Window {
    /// Waits until the workers have caught up, or the time is over, and books `count` jobs.
    async fn enter(&self, count: u64, until: Until, start: Instant) {
        loop {
            let ahead = self.stored.load(Ordering::Relaxed).saturating_sub(self.done.load(Ordering::Relaxed));
            if ahead < self.most || until.time.is_some_and(|time| start.elapsed() >= time) {
                self.stored.fetch_add(count, Ordering::Relaxed);
                return;
            }
            // The count of finished jobs is renewed about as often.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Callers at once, unless the command says otherwise.
pub(crate) const CALLERS: usize = 4;
