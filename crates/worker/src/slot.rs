use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use celeriac_core::JobId;
use tokio_util::sync::CancellationToken;

use crate::delivery::deliver;
use crate::session::Session;

/// One unit of concurrency: a place where one job runs at a time. Others look in to stop it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// When its job started, by [`Session::clock`]; 0 while there is none.
    started: AtomicU64,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    job: JobId,
    token: CancellationToken,
    stop: Option<Stop>,
}

/// Why a running handler is told to stop. Later ones outrank earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// The grace of an orderly stop is over.
    GraceOver,
    /// The worker stops at once.
    Now,
    /// Its time is up.
    TimedOut,
    /// A person or program cancelled the job.
    Cancelled,
    /// The job belongs to another worker.
    LeaseLost,
}

impl Stop {
    /// How long a handler may take to stop by itself before it is dropped.
    pub(crate) const fn patience(self) -> Duration {
        match self {
            // Long enough to close a connection or to write a last word.
            Self::TimedOut | Self::Cancelled | Self::GraceOver => Duration::from_secs(1),
            // Somebody waits for the process, or another worker is about to run the same job.
            Self::Now | Self::LeaseLost => Duration::from_millis(100),
        }
    }

    /// For an atomic; 0 is none.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::GraceOver => 1,
            Self::Now => 2,
            Self::TimedOut => 3,
            Self::Cancelled => 4,
            Self::LeaseLost => 5,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::GraceOver),
            2 => Some(Self::Now),
            3 => Some(Self::TimedOut),
            4 => Some(Self::Cancelled),
            5 => Some(Self::LeaseLost),
            _ => None,
        }
    }
}

impl Slot {
    /// A job begins. Gives the token that stops it.
    pub(crate) fn begin(&self, session: &Session, job: JobId) -> CancellationToken {
        let token = CancellationToken::new();
        *self.lock() = Some(Current { job, token: token.clone(), stop: None });
        self.started.store(session.clock(), Ordering::Relaxed);
        // After the job can be seen, so that a stop of all finds either the job or is found here.
        if let Some(stop) = session.halted() {
            self.stop(stop);
        }
        token
    }

    /// The job is over.
    pub(crate) fn end(&self) {
        self.started.store(0, Ordering::Relaxed);
        *self.lock() = None;
    }

    /// Tells the running handler to stop.
    pub(crate) fn stop(&self, why: Stop) {
        self.stop_if(|_| true, why);
    }

    /// Tells the handler to stop if its job is one of these.
    pub(crate) fn stop_job(&self, ids: &HashSet<JobId>, why: Stop) {
        self.stop_if(|job| ids.contains(&job), why);
    }

    /// Why the running handler was told to stop, if it was.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.lock().as_ref().and_then(|current| current.stop)
    }

    /// How long the job has been running at `now`, by [`Session::clock`].
    pub(crate) fn ran_for(&self, now: u64) -> Duration {
        match self.started.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            started => Duration::from_micros(now.saturating_sub(started)),
        }
    }

    fn stop_if(&self, meant: impl FnOnce(JobId) -> bool, why: Stop) {
        let token = {
            let mut current = self.lock();
            let Some(current) = current.as_mut().filter(|current| meant(current.job)) else { return };
            current.stop = current.stop.max(Some(why));
            current.token.clone()
        };
        // Outside the lock: it wakes the handler, whose waker may be anything.
        token.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        // Nothing in here panics halfway through a change.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs jobs one after the other until the buffer is closed and empty.
///
/// Handlers run in this task and not in tasks of their own: spawning costs more than a short job does.
pub(crate) async fn run_slot(session: Arc<Session>, index: usize) {
    let idle = || session.room.notify_one();
    while let Some(held) = poll_fn(|context| session.buffer.poll_take(index, context, idle)).await {
        if let Some(finished) = deliver(&session, index, held).await {
            session.outbox.push(finished);
        }
        // A row of handlers that never wait would keep this thread from claimer and settlers.
        tokio::task::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_and_keep_the_rank() {
        let all = [Stop::GraceOver, Stop::Now, Stop::TimedOut, Stop::Cancelled, Stop::LeaseLost];
        for pair in all.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].code() < pair[1].code());
        }
        for stop in all {
            assert_eq!(Stop::from_code(stop.code()), Some(stop));
        }
        assert_eq!(Stop::from_code(0), None);
    }
}
