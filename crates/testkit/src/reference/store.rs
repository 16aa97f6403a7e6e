//! The state of a reference store, and the moves that keep it whole.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use celeriac_core::{
    Attempt, AttemptKind, ClaimId, DeadReason, Error, Failure, Finished, Job, JobId, Paused, QueueName,
    QueueSettings, QueueStats, Receipt, Redelivery, Result, Room, Sample, TaskInfo, TaskName, Timestamp,
    WorkerId, WorkerInfo, nearest, redeliver,
};

/// The lane of jobs that come back from a dead worker: before all priorities.
pub(crate) const SUSPECTS: i16 = 10;
/// The lane of parked jobs while a worker that knows their task holds them.
pub(crate) const ADOPTED: i16 = 11;

/// A job's key among the ready ones: queue, lane (highest first), place.
pub(crate) type ReadyKey = (QueueName, Reverse<i16>, i64);

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) queues: BTreeMap<QueueName, Queue>,
    /// Every job that exists, with the one place where it is.
    pub(crate) jobs: BTreeMap<JobId, Stored>,
    /// An index of the jobs whose place is `Ready`, in the order in which they are handed out.
    pub(crate) ready: BTreeMap<ReadyKey, JobId>,
    pub(crate) claims: BTreeMap<ClaimId, Claim>,
    pub(crate) workers: BTreeMap<WorkerId, Registered>,
    pub(crate) tasks: BTreeMap<TaskName, TaskInfo>,
    /// Ids that were enqueued with the wish to be remembered.
    pub(crate) remembered: BTreeSet<JobId>,
    /// Jobs of queues with a history that are done; the newest entry of a job counts.
    pub(crate) finished: BTreeMap<JobId, Finished>,
    /// Grows whenever a job is parked, so that a waiting worker looks whether it knows the task.
    pub(crate) parkings: u64,
    /// The newest sample.
    pub(crate) sample: Sample,
    /// The moment that jobs which are moved now belong to, see [`Stored::moment`].
    moment: i64,
    last_number: i64,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) number: i32,
    pub(crate) settings: QueueSettings,
    pub(crate) paused: Paused,
    pub(crate) totals: Totals,
}

/// What ever happened in a queue.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) enqueued: u64,
    pub(crate) done: u64,
    pub(crate) retried: u64,
    pub(crate) buried: u64,
    pub(crate) redelivered: u64,
    pub(crate) cancelled: u64,
    pub(crate) dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) job: Job,
    pub(crate) since: Timestamp,
    /// Orders the jobs of a room by when they came into it. For jobs that are ready or held it is `seq`.
    pub(crate) order: i64,
    /// Jobs that one call moved together, say back from a dead worker, have no order among them that a caller could rely
    /// on, and share a moment. Jobs of one enqueue do have an order, and a moment each.
    pub(crate) moment: i64,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) enum Place {
    Dead(DeadReason),
    Held { lane: i16, claim: ClaimId, acknowledged: bool, cancel: bool },
    Parked { waits_for: TaskName },
    Ready { lane: i16 },
    Scheduled,
}

impl Place {
    pub(crate) const fn room(&self) -> Room {
        match self {
            Self::Dead(_) => Room::Dead,
            Self::Held { .. } | Self::Ready { .. } => Room::Jobs,
            Self::Parked { .. } => Room::Parked,
            Self::Scheduled => Room::Scheduled,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) worker: WorkerId,
    pub(crate) jobs: BTreeSet<JobId>,
}

#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) info: WorkerInfo,
    pub(crate) started_at: Timestamp,
    pub(crate) lease_until: Timestamp,
    /// Declared dead; its jobs are being taken back, perhaps over several rounds.
    pub(crate) dead: bool,
}

/// Where jobs of a lost worker went.
#[derive(Debug, Default)]
pub(crate) struct Rescued {
    pub(crate) redelivered: u64,
    pub(crate) buried: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        let mut store = Self::default();
        store.create_queue(QueueName::default_queue());
        store
    }

    pub(crate) fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// Begins a new moment: whatever is moved from here on comes after what was moved before.
    pub(crate) fn begin_moment(&mut self) {
        self.moment = self.next_number();
    }

    pub(crate) fn create_queue(&mut self, name: QueueName) -> &mut Queue {
        let number = i32::try_from(self.queues.len() + 1).unwrap_or(i32::MAX);
        self.queues.entry(name).or_insert_with(|| Queue {
            number,
            settings: QueueSettings::default(),
            paused: Paused::No,
            totals: Totals::default(),
        })
    }

    pub(crate) fn require_queue(&self, name: &QueueName) -> Result<&Queue> {
        self.queues.get(name).ok_or_else(|| Error::NoSuchQueue {
            queue: name.clone(),
            nearest: nearest(name.as_str(), self.queues.keys().map(QueueName::as_str)).map(str::to_owned),
        })
    }

    /// The settings of the queue of a stored job.
    pub(crate) fn settings(&self, queue: &QueueName) -> QueueSettings {
        self.queues.get(queue).map(|queue| queue.settings.clone()).unwrap_or_default()
    }

    pub(crate) fn totals(&mut self, queue: &QueueName) -> &mut Totals {
        &mut self.create_queue(queue.clone()).totals
    }

    pub(crate) fn ready_length(&self, queue: &QueueName) -> u64 {
        let ready = self.ready.keys().filter(|(name, _, _)| name == queue).count();
        u64::try_from(ready).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_paused(&self, queue: &QueueName) -> bool {
        self.queues.get(queue).is_none_or(|queue| queue.paused == Paused::Yes)
    }

    /// Takes a job out of wherever it is.
    pub(crate) fn take(&mut self, id: JobId) -> Option<Stored> {
        let stored = self.jobs.remove(&id)?;
        match &stored.place {
            Place::Ready { lane } => {
                self.ready.remove(&(stored.job.queue.clone(), Reverse(*lane), stored.order));
            }
            Place::Held { claim, .. } => {
                if let Some(open) = self.claims.get_mut(claim) {
                    open.jobs.remove(&id);
                    if open.jobs.is_empty() {
                        self.claims.remove(claim);
                    }
                }
            }
            Place::Dead(_) | Place::Parked { .. } | Place::Scheduled => {}
        }
        Some(stored)
    }

    /// Puts a job behind the others of its lane.
    pub(crate) fn make_ready(&mut self, job: Job, lane: i16, now: Timestamp) {
        let seq = self.next_number();
        self.give_back(job, lane, seq, self.moment, now);
    }

    /// Puts a job back into the place in its lane that it had before.
    pub(crate) fn give_back(&mut self, job: Job, lane: i16, seq: i64, moment: i64, now: Timestamp) {
        let id = job.id;
        self.ready.insert((job.queue.clone(), Reverse(lane), seq), id);
        self.jobs.insert(id, Stored { job, since: now, order: seq, moment, place: Place::Ready { lane } });
    }

    pub(crate) fn schedule(&mut self, mut job: Job, due: Timestamp, now: Timestamp) {
        job.due_at = due;
        self.put(job, Place::Scheduled, now);
    }

    pub(crate) fn park(&mut self, job: Job, now: Timestamp) {
        let waits_for = job.task.clone();
        self.parkings += 1;
        self.put(job, Place::Parked { waits_for }, now);
    }

    pub(crate) fn bury(&mut self, job: Job, reason: DeadReason, now: Timestamp) {
        self.totals(&job.queue).buried += 1;
        self.put(job, Place::Dead(reason), now);
    }

    fn put(&mut self, job: Job, place: Place, now: Timestamp) {
        let order = self.next_number();
        self.jobs.insert(job.id, Stored { job, since: now, order, moment: self.moment, place });
    }

    /// What the queue says about a job whose time to live has passed.
    pub(crate) fn expire(&mut self, id: JobId, now: Timestamp) {
        let Some(stored) = self.take(id) else { return };
        match self.settings(&stored.job.queue).on_expire {
            celeriac_core::OnExpire::Drop => self.totals(&stored.job.queue).dropped += 1,
            _ => self.bury(stored.job, DeadReason::Expired, now),
        }
    }

    /// Takes back one held job of a lost worker. `label` is the worker's.
    pub(crate) fn rescue(&mut self, id: JobId, label: &str, now: Timestamp, rescued: &mut Rescued) {
        let Some(Stored { mut job, place, .. }) = self.take(id) else { return };
        let Place::Held { lane, acknowledged, cancel, .. } = place else { return };
        if cancel {
            // Somebody asked for its end and nobody runs it any more.
            self.totals(&job.queue).cancelled += 1;
            return;
        }
        let verdict = redeliver(job.deliveries, acknowledged, &self.settings(&job.queue));
        job.deliveries = job.deliveries.saturating_add(1);
        let failure = Failure::new(AttemptKind::WorkerLost, "the worker died or was cut off");
        job.extras.record(Attempt::new(now, job.deliveries, label, failure));
        match verdict {
            Redelivery::Again => {
                rescued.redelivered += 1;
                self.totals(&job.queue).redelivered += 1;
                self.make_ready(job, SUSPECTS, now);
            }
            Redelivery::Bury(reason) => {
                rescued.buried += 1;
                self.bury(job, reason, now);
            }
            // A way of redelivery that this version does not know: the job keeps its lane.
            _ => self.make_ready(job, lane, now),
        }
    }

    /// The ids that a worker holds, in the order of their places.
    pub(crate) fn held_by(&self, worker: WorkerId) -> Vec<JobId> {
        let claims = self.claims.values().filter(|claim| claim.worker == worker);
        let mut held: Vec<JobId> = claims.flat_map(|claim| claim.jobs.iter().copied()).collect();
        held.sort_by_key(|id| self.jobs.get(id).map(|stored| stored.order));
        held
    }

    /// The held job that a receipt stands for, if the worker still holds it.
    pub(crate) fn held(&self, worker: WorkerId, receipt: &Receipt) -> Option<JobId> {
        let claim = self.claims.get(&receipt.claim).filter(|claim| claim.worker == worker)?;
        claim.jobs.iter().copied().find(|id| self.receipt(*id) == Some(*receipt))
    }

    /// The receipt of a held job.
    pub(crate) fn receipt(&self, id: JobId) -> Option<Receipt> {
        let stored = self.jobs.get(&id)?;
        let Place::Held { lane, claim, .. } = stored.place else { return None };
        let queue = self.queues.get(&stored.job.queue)?.number;
        Some(Receipt { claim, queue, lane, seq: stored.order })
    }

    /// The figures of one queue, counted.
    pub(crate) fn queue_stats(&self, name: &QueueName, queue: &Queue, now: Timestamp) -> QueueStats {
        let mut stats = QueueStats::new(name.clone(), queue.settings.clone(), queue.paused);
        for stored in self.jobs.values().filter(|stored| stored.job.queue == *name) {
            match &stored.place {
                Place::Dead(_) => stats.dead += 1,
                Place::Held { .. } => stats.held += 1,
                Place::Parked { .. } => stats.parked += 1,
                Place::Scheduled => stats.scheduled += 1,
                Place::Ready { .. } => {
                    stats.ready += 1;
                    let age = now.since(stored.job.due_at);
                    stats.oldest_due = Some(stats.oldest_due.map_or(age, |oldest| oldest.max(age)));
                }
            }
        }
        stats.enqueued = queue.totals.enqueued;
        stats.done = queue.totals.done;
        stats.retried = queue.totals.retried;
        stats.buried = queue.totals.buried;
        stats.redelivered = queue.totals.redelivered;
        stats.cancelled = queue.totals.cancelled;
        stats.dropped = queue.totals.dropped;
        stats
    }
}
