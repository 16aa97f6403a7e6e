use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use celeriac_core::{Claimed, Receipt, Verdict};
use celeriac_metrics::JobMeter;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Verdicts on their way to the store.
///
/// Nobody waits for a batch to fill while a worker is idle: whatever has gathered goes as soon as a settler
/// is free, so batches grow by themselves with the load.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// A settler has something to look at.
    filled: Notify,
    /// A batch is full; ends a linger.
    full: Notify,
}

/// A job that left the hands of its handler.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) receipt: Receipt,
    pub(crate) verdict: Verdict,
    /// Whether it was taken as a suspect of a crash.
    pub(crate) suspect: bool,
    /// How long its handler ran, if it ran.
    pub(crate) run: Option<Duration>,
    /// Where it is counted once the store has applied the verdict.
    pub(crate) meter: Arc<JobMeter>,
    /// How old the job was when it was claimed.
    age: Duration,
    /// When its handler was done with it.
    at: Instant,
}

impl Finished {
    /// A job whose handler has not run.
    pub(crate) fn new(claimed: &Claimed, verdict: Verdict, meter: Arc<JobMeter>) -> Self {
        Self {
            receipt: claimed.receipt,
            verdict,
            suspect: claimed.is_suspect(),
            run: None,
            meter,
            age: claimed.claimed_at.since(claimed.job.enqueued_at),
            at: Instant::now(),
        }
    }

    /// A job whose handler ran for this time, and that came into this worker's hands at `claimed`.
    pub(crate) fn after(mut self, run: Duration, claimed: Instant) -> Self {
        self.run = Some(run);
        self.age += self.at.saturating_duration_since(claimed);
        self
    }

    /// The store has applied the verdict.
    pub(crate) fn count(&self) {
        self.meter.settled(&self.verdict, self.age + self.at.elapsed());
    }
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<Finished>,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Verdicts are still coming.
    #[default]
    Open,
    /// What is there is still written.
    Closed,
    /// The lease is lost: nothing that is or comes here may be written.
    Discarded,
}

impl Outbox {
    pub(crate) fn push(&self, finished: Finished) {
        let count = {
            let mut state = self.lock();
            if state.end == End::Discarded {
                return;
            }
            state.pending.push(finished);
            state.pending.len()
        };
        if count == 1 {
            self.filled.notify_one();
        } else if count == GOOD_BATCH {
            self.full.notify_one();
        }
    }

    /// The next batch; `None` when all are written and no more will come.
    ///
    /// `more` says whether further verdicts are a moment away. Then a small batch waits a little: each call
    /// costs a transaction.
    pub(crate) async fn next_batch(&self, more: impl Fn() -> bool) -> Option<Vec<Finished>> {
        loop {
            let (count, end) = {
                let state = self.lock();
                (state.pending.len(), state.end)
            };
            if count == 0 {
                if end != End::Open {
                    // Pass the news on to the next settler.
                    self.filled.notify_one();
                    return None;
                }
                self.filled.notified().await;
                continue;
            }
            if count < GOOD_BATCH && end == End::Open && more() {
                // Either way the batch goes: full, or late.
                let _ = timeout(LINGER, self.full.notified()).await;
            }
            let batch = self.take();
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    /// No more verdicts will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.end == End::Open {
            state.end = End::Closed;
        }
        drop(state);
        self.filled.notify_one();
        self.full.notify_one();
    }

    /// Throws away what is there and what will come.
    pub(crate) fn discard(&self) {
        let mut state = self.lock();
        state.end = End::Discarded;
        state.pending = Vec::new();
        drop(state);
        self.filled.notify_one();
        self.full.notify_one();
    }

    fn take(&self) -> Vec<Finished> {
        let (batch, left) = {
            let mut state = self.lock();
            if state.pending.len() <= LARGEST_BATCH {
                (std::mem::take(&mut state.pending), false)
            } else {
                let rest = state.pending.split_off(LARGEST_BATCH);
                (std::mem::replace(&mut state.pending, rest), true)
            }
        };
        if left {
            self.filled.notify_one();
        }
        batch
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch of this size is worth its transaction, and goes without further wait.
const GOOD_BATCH: usize = 128;

/// A larger batch would hold the store's lock for long. As many as a claim brings at most.
const LARGEST_BATCH: usize = 1_000;

/// The longest wait for a batch to become a good one.
const LINGER: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use celeriac_core::{ClaimId, QueueName, TaskName};
    use celeriac_metrics::JobMeters;

    use super::*;

    fn finished(seq: i64) -> Finished {
        let receipt = Receipt { claim: ClaimId::new(1), queue: 1, lane: 0, seq };
        let meter = JobMeters::new().of(&QueueName::default_queue(), &TaskName::new("t").unwrap());
        let (age, at) = (Duration::ZERO, Instant::now());
        Finished { receipt, verdict: Verdict::Done, suspect: false, run: None, meter, age, at }
    }

    #[tokio::test]
    async fn what_has_gathered_goes_in_bounded_batches() {
        let outbox = Outbox::default();
        for seq in 0..1_500 {
            outbox.push(finished(seq));
        }
        outbox.close();
        let sizes = [outbox.next_batch(|| true).await, outbox.next_batch(|| true).await];
        assert_eq!(sizes.map(|batch| batch.unwrap().len()), [1_000, 500]);
        assert!(outbox.next_batch(|| true).await.is_none());
        assert!(outbox.next_batch(|| true).await.is_none(), "each settler is told of the end");
    }

    #[tokio::test]
    async fn nothing_is_written_after_the_lease_is_lost() {
        let outbox = Outbox::default();
        outbox.push(finished(1));
        outbox.discard();
        outbox.push(finished(2));
        outbox.close();
        assert!(outbox.next_batch(|| false).await.is_none());
    }
}
