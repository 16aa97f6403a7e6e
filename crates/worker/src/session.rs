use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use celeriac_core::{
    Broker, Claimed, JobId, QueueName, Settlement, Suspects, TaskInfo, TaskName, Verdict, WorkerId,
};
use celeriac_metrics::{JobMeter, Level, WorkerMeters};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::buffer::{Buffer, Held};
use crate::outbox::{Finished, Outbox};
use crate::prefetch::{BUDGET, Load, Prefetch, Sizing};
use crate::pulse::{Phase, Pulse};
use crate::registry::Registry;
use crate::report::Totals;
use crate::slot::{Slot, Stop};
use crate::state::States;
use crate::subscription::Subscription;
use crate::trouble::Trouble;
use crate::worker::ExitWhenEmpty;

/// What a worker was built with. It does not change while it runs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) registry: Registry,
    pub(crate) states: States,
    pub(crate) subscription: Subscription,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Prefetch,
    pub(crate) grace: Duration,
    pub(crate) lease: Duration,
    pub(crate) exit_when_empty: ExitWhenEmpty,
    pub(crate) label: String,
    pub(crate) pulse: Pulse,
    pub(crate) tasks: Arc<[TaskName]>,
    pub(crate) infos: Vec<TaskInfo>,
}

impl Plan {
    pub(crate) fn queues(&self) -> Vec<QueueName> {
        self.subscription.names().cloned().collect()
    }
}

/// Everything under one worker id, from its registration to its end or the loss of its lease.
///
/// A worker that lost its lease makes a new session with a new id. Nothing of the old one is carried over, so no
/// late verdict or late job of the old id can be taken for one of the new.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: WorkerId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) buffer: Buffer,
    pub(crate) outbox: Outbox,
    pub(crate) totals: Arc<Totals>,
    pub(crate) meters: Arc<WorkerMeters>,
    /// Fires once the lease is known to be lost.
    pub(crate) lost: CancellationToken,
    /// There may be room for another claim.
    pub(crate) room: Notify,
    /// Something that a claim depends on has changed while the claimer waits for the store.
    pub(crate) attention: Notify,
    acknowledging: Mutex<Trouble>,
    beginning: Mutex<Trouble>,
    settling: Mutex<Trouble>,
    slots: Box<[Slot]>,
    started: Instant,
    sizing: Mutex<Sizing>,
    /// Claimed and not yet settled.
    in_hand: AtomicUsize,
    /// Of these, suspects of a crash: at most one.
    suspects: AtomicUsize,
    /// Handlers that start now are stopped as well; see [`Stop::code`].
    halt: AtomicU8,
    losing: AtomicBool,
}

impl Session {
    pub(crate) fn new(id: WorkerId, plan: Arc<Plan>, totals: Arc<Totals>, meters: Arc<WorkerMeters>) -> Self {
        let concurrency = plan.concurrency;
        Self {
            id,
            buffer: Buffer::new(concurrency),
            outbox: Outbox::default(),
            totals,
            meters,
            lost: CancellationToken::new(),
            room: Notify::new(),
            attention: Notify::new(),
            acknowledging: Mutex::new(Trouble::new("acknowledge jobs before their only run")),
            beginning: Mutex::new(Trouble::new("begin the transactions of jobs")),
            settling: Mutex::new(Trouble::new("settle finished jobs")),
            slots: (0..concurrency).map(|_| Slot::default()).collect(),
            started: Instant::now(),
            sizing: Mutex::new(Sizing::new(plan.prefetch, concurrency)),
            in_hand: AtomicUsize::new(0),
            suspects: AtomicUsize::new(0),
            halt: AtomicU8::new(0),
            losing: AtomicBool::new(false),
            plan,
        }
    }

    /// The size of the next claim; 0 for none now.
    pub(crate) fn next_claim(&self) -> usize {
        let fill = self.buffer.fill();
        // One payload may be larger than the bound, so an empty buffer always takes a job.
        if fill.jobs > 0 && fill.bytes >= BUFFER_BYTES {
            return 0;
        }
        let now = self.clock();
        let stuck = self.slots.iter().filter(|slot| slot.ran_for(now) >= BUDGET).count();
        let load = Load { in_hand: self.in_hand(), buffered: fill.jobs, busy: fill.busy, stuck };
        self.sizing().claim(load)
    }

    /// The most payload bytes of the next claim.
    pub(crate) fn next_claim_bytes(&self) -> usize {
        BUFFER_BYTES.saturating_sub(self.buffer.fill().bytes).max(1)
    }

    pub(crate) fn suspects(&self) -> Suspects {
        if self.suspects.load(Ordering::Acquire) == 0 { Suspects::Take } else { Suspects::Leave }
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Takes claimed jobs in hand. What comes when the buffer is closed is given back at once.
    pub(crate) fn take_in(&self, jobs: Vec<Claimed>) {
        self.in_hand.fetch_add(jobs.len(), Ordering::AcqRel);
        self.suspects.fetch_add(jobs.iter().filter(|job| job.is_suspect()).count(), Ordering::AcqRel);
        if let Err(late) = self.buffer.push(jobs, Instant::now()) {
            for claimed in late {
                self.give_back(&claimed, Verdict::Release);
            }
        }
    }

    /// What is measured of jobs like this.
    pub(crate) fn meter(&self, claimed: &Claimed) -> Arc<JobMeter> {
        self.meters.jobs.of(&claimed.job.queue, &claimed.job.task)
    }

    /// Shows what the worker has now.
    pub(crate) fn show_level(&self) {
        let fill = self.buffer.fill();
        let vitals = self.plan.pulse.vitals();
        let mut level = Level::default();
        level.busy = fill.busy;
        level.free = self.plan.concurrency.saturating_sub(fill.busy);
        level.buffered = fill.jobs;
        level.in_hand = self.in_hand();
        level.ready = usize::from(vitals.phase == Phase::Ready);
        self.meters.level(level);
        self.meters.ages(vitals.since_renewal.unwrap_or_default(), vitals.since_claim);
    }

    /// Sends the verdict of a job that no handler has seen.
    pub(crate) fn give_back(&self, claimed: &Claimed, verdict: Verdict) {
        self.outbox.push(Finished::new(claimed, verdict, self.meter(claimed)));
    }

    /// Releases all that is in the buffer and lets the slots end once they are free.
    pub(crate) fn close_buffer(&self) {
        for Held { claimed, .. } in self.buffer.close() {
            self.give_back(&claimed, Verdict::Release);
        }
    }

    /// Releases the jobs that waited too long for a handler.
    pub(crate) fn release_stale(&self) {
        let stale = self.buffer.take_stale(Instant::now());
        if stale.is_empty() {
            return;
        }
        tracing::info!(
            jobs = stale.len(),
            "all handlers are busy with long jobs; giving back what waits behind them"
        );
        for Held { claimed, .. } in stale {
            self.give_back(&claimed, Verdict::Release);
        }
    }

    /// Takes the run times of finished jobs into the size of later claims.
    pub(crate) fn observe(&self, batch: &[Finished]) {
        let mut sizing = self.sizing();
        for run in batch.iter().filter_map(|finished| finished.run) {
            sizing.observe(run);
        }
        drop(sizing);
        self.plan.pulse.ran(batch.iter().filter_map(|finished| finished.run));
    }

    /// These jobs are no longer in hand.
    pub(crate) fn let_go(&self, jobs: usize, suspects: usize) {
        let left = self.in_hand.fetch_sub(jobs, Ordering::AcqRel) - jobs;
        self.room.notify_one();
        if suspects > 0 {
            self.suspects.fetch_sub(suspects, Ordering::AcqRel);
            self.attention.notify_one();
        }
        if left == 0 && self.plan.exit_when_empty == ExitWhenEmpty::Yes {
            self.attention.notify_one();
        }
    }

    /// Fires the tokens of the running handlers of these jobs, and sends those in the buffer back as cancelled.
    pub(crate) fn cancel(&self, ids: &HashSet<JobId>) {
        for slot in &self.slots {
            slot.stop_job(ids, Stop::Cancelled);
        }
        for Held { claimed, .. } in self.buffer.take_named(ids) {
            self.give_back(&claimed, Verdict::Cancel);
        }
    }

    /// Fires the tokens of all running handlers, and of those that start later.
    pub(crate) fn stop_all(&self, why: Stop) {
        self.halt.fetch_max(why.code(), Ordering::AcqRel);
        for slot in &self.slots {
            slot.stop(why);
        }
    }

    /// Why no handler may run any more, if so.
    pub(crate) fn halted(&self) -> Option<Stop> {
        Stop::from_code(self.halt.load(Ordering::Acquire))
    }

    /// The lease is lost: nothing that is in hand belongs to this worker any more. Only the first call counts.
    ///
    /// It may come from the lease's own thread, so it does by itself all that must not wait for a runtime that
    /// a handler blocks.
    pub(crate) fn lose(&self, why: &str) {
        if self.losing.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(
            worker = %self.id,
            in_hand = self.in_hand(),
            "the lease is lost ({why}): stopping its handlers, dropping their verdicts and registering anew"
        );
        self.totals.lock().leases_lost += 1;
        self.meters.lease_lost();
        self.plan.pulse.lost();
        self.outbox.discard();
        self.buffer.close();
        self.stop_all(Stop::LeaseLost);
        self.lost.cancel();
    }

    /// Waits for the end of [`Session::lose`], if it has begun: it runs on another thread, and closing the buffer ends
    /// parts of the session before everybody is told why.
    pub(crate) async fn settle_loss(&self) {
        if self.losing.load(Ordering::Acquire) {
            self.lost.cancelled().await;
        }
    }

    pub(crate) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Time since the session began, in microseconds from 1.
    pub(crate) fn clock(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// The state of acknowledgements, which all slots share: an outage is told once.
    pub(crate) fn acknowledging(&self) -> MutexGuard<'_, Trouble> {
        self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of beginning transactions, which all slots share.
    pub(crate) fn beginning(&self) -> MutexGuard<'_, Trouble> {
        self.beginning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of settling, which all settlers share.
    pub(crate) fn settling(&self) -> MutexGuard<'_, Trouble> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sizing(&self) -> MutexGuard<'_, Sizing> {
        // Arithmetic on plain numbers; a panic in it leaves them valid.
        self.sizing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch as the store takes it.
pub(crate) fn settlements(batch: &[Finished]) -> Vec<Settlement> {
    batch
        .iter()
        .map(|finished| Settlement { receipt: finished.receipt, verdict: finished.verdict.clone() })
        .collect()
}

/// The most payload bytes in the buffer, whatever the prefetch: a worker's memory must not depend on what others
/// enqueue.
const BUFFER_BYTES: usize = 8 * 1024 * 1024;
