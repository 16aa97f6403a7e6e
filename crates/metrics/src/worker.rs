use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use celeriac_core::{Error, Maintenance};
use metrics::{Counter, Gauge, Histogram};

use crate::catalogue::{
    BUFFER_JOBS, CLAIM_AGE_SECONDS, CLAIM_JOBS, CLAIM_SECONDS, EXPIRED, IN_HAND_JOBS, LEASE_AGE_SECONDS,
    LEASES_LOST, MAINTAIN_SECONDS, PROMOTED, PRUNED, READY, RESCUED_JOBS, RESCUED_WORKERS, SETTLE_JOBS,
    SETTLE_SECONDS, SLOTS_BUSY, SLOTS_FREE, STALE_VERDICTS, STORE_ERRORS,
};
use crate::job::JobMeters;

/// What a worker measures of itself.
pub struct WorkerMeters {
    /// Of its jobs.
    pub jobs: JobMeters,
    claim_seconds: Histogram,
    claim_jobs: Histogram,
    settle_seconds: Histogram,
    settle_jobs: Histogram,
    maintain_seconds: Histogram,
    // These exist from the start, at zero: an alert on an increase would miss the first of a series that begins with it.
    promoted: Counter,
    rescued_workers: Counter,
    redelivered: Counter,
    buried: Counter,
    expired: Counter,
    pruned: Counter,
    stale: Counter,
    leases_lost: Counter,
    level: Mutex<Level>,
    busy: Gauge,
    free: Gauge,
    buffer: Gauge,
    in_hand: Gauge,
    ready: Gauge,
    lease_age: Gauge,
    claim_age: Gauge,
}

/// What a worker has at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// Handlers at work.
    pub busy: usize,
    /// Handlers without a job.
    pub free: usize,
    /// Jobs that wait for a handler.
    pub buffered: usize,
    /// Claimed and not yet settled.
    pub in_hand: usize,
    /// 1 if it takes jobs, else 0.
    pub ready: usize,
}

impl WorkerMeters {
    /// Handles in the recorder that is installed now.
    pub fn new() -> Self {
        Self {
            jobs: JobMeters::new(),
            claim_seconds: CLAIM_SECONDS.histogram(&[]),
            claim_jobs: CLAIM_JOBS.histogram(&[]),
            settle_seconds: SETTLE_SECONDS.histogram(&[]),
            settle_jobs: SETTLE_JOBS.histogram(&[]),
            maintain_seconds: MAINTAIN_SECONDS.histogram(&[]),
            promoted: PROMOTED.counter(&[]),
            rescued_workers: RESCUED_WORKERS.counter(&[]),
            redelivered: RESCUED_JOBS.counter(&["redelivered"]),
            buried: RESCUED_JOBS.counter(&["dead"]),
            expired: EXPIRED.counter(&[]),
            pruned: PRUNED.counter(&[]),
            stale: STALE_VERDICTS.counter(&[]),
            leases_lost: LEASES_LOST.counter(&[]),
            level: Mutex::default(),
            busy: SLOTS_BUSY.gauge(&[]),
            free: SLOTS_FREE.gauge(&[]),
            buffer: BUFFER_JOBS.gauge(&[]),
            in_hand: IN_HAND_JOBS.gauge(&[]),
            ready: READY.gauge(&[]),
            lease_age: LEASE_AGE_SECONDS.gauge(&[]),
            claim_age: CLAIM_AGE_SECONDS.gauge(&[]),
        }
    }

    /// A claim call brought so many jobs.
    pub fn claimed(&self, jobs: usize, took: Duration) {
        self.claim_seconds.record(took.as_secs_f64());
        if jobs > 0 {
            self.claim_jobs.record(jobs as f64);
        }
    }

    /// A settle call wrote so many verdicts, of which `stale` changed nothing.
    pub fn settled(&self, verdicts: usize, stale: u64, took: Duration) {
        self.settle_seconds.record(took.as_secs_f64());
        self.settle_jobs.record(verdicts as f64);
        if stale > 0 {
            self.stale.increment(stale);
        }
    }

    /// A call to the store failed. `operation` is one of the words in the catalogue.
    pub fn store_failed(&self, operation: &'static str, error: &Error) {
        STORE_ERRORS.counter(&[operation, error.code().as_str()]).increment(1);
    }

    /// The lease was lost.
    pub fn lease_lost(&self) {
        self.leases_lost.increment(1);
    }

    /// A round of maintenance did this.
    pub fn maintained(&self, round: &Maintenance, took: Duration) {
        self.maintain_seconds.record(took.as_secs_f64());
        self.promoted.increment(round.promoted);
        self.rescued_workers.increment(round.dead_workers);
        self.redelivered.increment(round.redelivered);
        self.buried.increment(round.buried);
        self.expired.increment(round.expired);
        self.pruned.increment(round.pruned);
    }

    /// What the worker has now. Several workers of one process add up.
    pub fn level(&self, now: Level) {
        // Plain numbers stay valid whatever panics.
        let mut shown = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |gauge: &Gauge, from: usize, to: usize| {
            if from != to {
                gauge.increment(to as f64 - from as f64);
            }
        };
        change(&self.busy, shown.busy, now.busy);
        change(&self.free, shown.free, now.free);
        change(&self.buffer, shown.buffered, now.buffered);
        change(&self.in_hand, shown.in_hand, now.in_hand);
        change(&self.ready, shown.ready, now.ready);
        *shown = now;
    }

    /// How long ago the lease was renewed, and the claim loop succeeded.
    pub fn ages(&self, lease: Duration, claim: Duration) {
        self.lease_age.set(lease.as_secs_f64());
        self.claim_age.set(claim.as_secs_f64());
    }
}

impl Default for WorkerMeters {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WorkerMeters {
    fn drop(&mut self) {
        self.level(Level::default());
    }
}

impl fmt::Debug for WorkerMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerMeters")
    }
}
