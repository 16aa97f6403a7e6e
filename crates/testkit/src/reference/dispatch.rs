//! What producers and workers ask of a reference store.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use celeriac_core::{
    Attempt, AttemptKind, ClaimId, ClaimOptions, Claimed, DeadReason, EnqueueOptions, Enqueued, Error,
    Extras, Failure, Finished, Holding, Idempotency, Job, JobId, MaintainOptions, Maintenance, NewJob,
    Overflow, QueueName, Receipt, Renewal, Result, Room, Settled, Settlement, Start, Suspects, Timestamp,
    Verdict, WaitOptions, WorkerId, WorkerInfo,
};

use super::store::{ADOPTED, Claim, Place, Registered, Rescued, SUSPECTS, Store, Stored};

impl Store {
    pub(crate) fn enqueue(
        &mut self,
        jobs: Vec<NewJob>,
        options: &EnqueueOptions,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>> {
        let answers = self.check_enqueue(&jobs, options, now)?;
        let mut touched = BTreeSet::new();
        for (job, answer) in jobs.into_iter().zip(&answers) {
            self.create_queue(job.queue.clone());
            if matches!(answer, Enqueued::Existed(_)) {
                continue;
            }
            touched.insert(job.queue.clone());
            self.begin_moment();
            self.insert(job, now);
        }
        for queue in touched {
            self.drop_oldest(&queue, now);
        }
        Ok(answers)
    }

    /// Everything that can be wrong, before anything is changed.
    fn check_enqueue(
        &self,
        jobs: &[NewJob],
        options: &EnqueueOptions,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>> {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut in_batch = BTreeSet::new();
        let mut added: BTreeMap<&QueueName, u64> = BTreeMap::new();
        for job in jobs {
            job.check(options.max_payload)?;
            if !options.declare_missing {
                self.require_queue(&job.queue)?;
            }
            let present = self.jobs.contains_key(&job.id) || in_batch.contains(&job.id);
            if job.idempotency == Idempotency::ById && (present || self.remembered.contains(&job.id)) {
                answers.push(Enqueued::Existed(job.id));
                continue;
            }
            if present {
                return Err(Error::invalid(
                    "job id",
                    job.id.to_string(),
                    "a job of this id is stored already",
                ));
            }
            in_batch.insert(job.id);
            if due_at(job.start, now) <= now {
                *added.entry(&job.queue).or_default() += 1;
            }
            answers.push(Enqueued::New(job.id));
        }
        for (queue, more) in added {
            let settings = self.settings(queue);
            let length = self.ready_length(queue);
            if let (Some(limit), Overflow::Refuse) = (settings.max_length, settings.overflow)
                && length + more > limit
            {
                return Err(Error::QueueFull { queue: queue.clone(), length, limit });
            }
        }
        Ok(answers)
    }

    fn insert(&mut self, new: NewJob, now: Timestamp) {
        let due = due_at(new.start, now);
        let ttl = new.ttl.or_else(|| self.settings(&new.queue).ttl);
        let mut extras = Extras::default();
        extras.policy = new.policy;
        extras.headers = new.headers;
        if new.idempotency == Idempotency::ById {
            self.remembered.insert(new.id);
        }
        self.totals(&new.queue).enqueued += 1;
        let job = Job::from_columns(
            new.id,
            new.queue,
            new.task,
            new.priority,
            new.payload,
            0,
            0,
            now,
            due,
            ttl.map(|ttl| due.saturating_add(ttl)),
            extras,
        );
        if due <= now {
            let lane = priority_lane(&job);
            self.make_ready(job, lane, now);
        } else {
            self.schedule(job, due, now);
        }
    }

    fn drop_oldest(&mut self, queue: &QueueName, now: Timestamp) {
        let settings = self.settings(queue);
        let (Some(limit), Overflow::DropOldest) = (settings.max_length, settings.overflow) else { return };
        while self.ready_length(queue) > limit {
            let ready = self.ready.iter().filter(|((name, _, _), _)| name == queue);
            let oldest = ready.min_by_key(|((_, _, seq), id)| (self.jobs[id].job.enqueued_at, *seq));
            let Some((_, id)) = oldest else { return };
            if let Some(stored) = self.take(*id) {
                self.bury(stored.job, DeadReason::MaxLength, now);
            }
        }
    }

    /// Hands out jobs. Among jobs that have no order, those come first that stand first in `like`.
    pub(crate) fn claim(
        &mut self,
        options: &ClaimOptions,
        like: &[JobId],
        now: Timestamp,
    ) -> Result<Vec<Claimed>> {
        if self.workers.get(&options.worker).is_none_or(|worker| worker.dead) {
            return Err(Error::LeaseLost { worker: options.worker });
        }
        for share in &options.queues {
            self.require_queue(&share.name)?;
        }
        self.promote_due(usize::MAX, now, &mut Maintenance::default());
        let mut taking = Taking::new(options, like, now);
        for share in &options.queues {
            self.adopt_parked(&share.name, options, &mut taking, now);
        }
        if options.suspects == Suspects::Take {
            for share in &options.queues {
                if self.take_from(&share.name, Lanes::Suspects, 1, &mut taking, now) > 0 {
                    break;
                }
            }
        }
        for share in &options.queues {
            self.take_from(&share.name, Lanes::Priorities, share.share, &mut taking, now);
        }
        for share in &options.queues {
            self.take_from(&share.name, Lanes::Priorities, usize::MAX, &mut taking, now);
        }
        Ok(taking.claimed)
    }

    /// Parked jobs go straight into the claim, in a lane of their own.
    fn adopt_parked(
        &mut self,
        queue: &QueueName,
        options: &ClaimOptions,
        taking: &mut Taking<'_>,
        now: Timestamp,
    ) {
        let waits = |stored: &&Stored| match &stored.place {
            Place::Parked { waits_for } => stored.job.queue == *queue && options.tasks.contains(waits_for),
            _ => false,
        };
        let mut parked: Vec<(i64, usize, i64, JobId)> =
            self.jobs.values().filter(waits).map(|stored| taking.rank(stored)).collect();
        parked.sort_unstable();
        for (_, _, _, id) in parked {
            if self.is_paused(queue) || taking.is_full() {
                return;
            }
            if self.jobs[&id].job.expires_at.is_some_and(|at| at <= now) {
                self.expire(id, now);
                continue;
            }
            if !taking.fits(&self.jobs[&id].job) {
                return;
            }
            if let Some(stored) = self.take(id) {
                self.make_ready(stored.job, ADOPTED, now);
                let claim = taking.common_claim(self);
                self.hand_out(id, claim, taking);
            }
        }
    }

    /// Takes up to `most` jobs of one queue; gives their number.
    fn take_from(
        &mut self,
        queue: &QueueName,
        lanes: Lanes,
        most: usize,
        taking: &mut Taking<'_>,
        now: Timestamp,
    ) -> usize {
        let mut taken = 0;
        while taken < most && !taking.is_full() && !self.is_paused(queue) {
            let Some(id) = self.first_ready(queue, lanes, taking.like) else { break };
            if self.jobs[&id].job.expires_at.is_some_and(|at| at <= now) {
                self.expire(id, now);
                continue;
            }
            if !taking.fits(&self.jobs[&id].job) {
                break;
            }
            let claim = match lanes {
                Lanes::Priorities => taking.common_claim(self),
                Lanes::Suspects => ClaimId::new(self.next_number()),
            };
            self.hand_out(id, claim, taking);
            taken += 1;
        }
        taken
    }

    fn first_ready(&self, queue: &QueueName, lanes: Lanes, like: &[JobId]) -> Option<JobId> {
        let top = match lanes {
            Lanes::Suspects => SUSPECTS,
            Lanes::Priorities => SUSPECTS - 1,
        };
        let from_top = || self.ready.range((queue.clone(), Reverse(top), i64::MIN)..);
        let ((name, Reverse(lane), _), first) = from_top().next()?;
        if name != queue || (lanes == Lanes::Suspects && *lane != SUSPECTS) {
            return None;
        }
        let moment = self.jobs[first].moment;
        // Whoever came at the same moment has the same right; they stand side by side.
        from_top()
            .take_while(|((other, Reverse(other_lane), _), id)| {
                other == queue && other_lane == lane && self.jobs[id].moment == moment
            })
            .min_by_key(|(_, id)| like.iter().position(|liked| liked == *id).unwrap_or(usize::MAX))
            .map(|(_, id)| *id)
    }

    fn hand_out(&mut self, id: JobId, claim: ClaimId, taking: &mut Taking<'_>) {
        let Some(stored) = self.jobs.get_mut(&id) else { return };
        let Place::Ready { lane } = stored.place else { return };
        self.ready.remove(&(stored.job.queue.clone(), Reverse(lane), stored.order));
        stored.place = Place::Held { lane, claim, acknowledged: false, cancel: false };
        let job = stored.job.clone();
        let open = self.claims.entry(claim);
        open.or_insert_with(|| Claim { worker: taking.worker, jobs: BTreeSet::new() }).jobs.insert(id);
        if let Some(receipt) = self.receipt(id) {
            taking.bytes_left = taking.bytes_left.saturating_sub(job.payload.len());
            taking.claimed.push(Claimed::new(job, receipt, taking.now));
        }
    }

    pub(crate) fn acknowledge(&mut self, worker: WorkerId, receipts: &[Receipt]) -> Vec<Holding> {
        let mut answers = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let stored = self.held(worker, receipt).and_then(|id| self.jobs.get_mut(&id));
            answers.push(match stored.map(|stored| &mut stored.place) {
                Some(Place::Held { acknowledged, .. }) => {
                    *acknowledged = true;
                    Holding::Held
                }
                _ => Holding::Lost,
            });
        }
        answers
    }

    pub(crate) fn settle(
        &mut self,
        worker: WorkerId,
        verdicts: Vec<Settlement>,
        now: Timestamp,
    ) -> Vec<Settled> {
        let label = self.workers.get(&worker).map(|worker| worker.info.label.clone()).unwrap_or_default();
        let settle_one = |verdict: Settlement| match self.held(worker, &verdict.receipt) {
            Some(id) => {
                self.carry_out(id, verdict.verdict, &label, now);
                Settled::Applied
            }
            None => Settled::Stale,
        };
        verdicts.into_iter().map(settle_one).collect()
    }

    fn carry_out(&mut self, id: JobId, verdict: Verdict, label: &str, now: Timestamp) {
        let Some(stored) = self.take(id) else { return };
        let Place::Held { lane, acknowledged, cancel, .. } = stored.place else { return };
        let (seq, moment, mut job) = (stored.order, stored.moment, stored.job);
        let ends = matches!(verdict, Verdict::Done | Verdict::Reject { .. });
        if cancel && !ends {
            // Whoever asked for the cancellation was told that it is on its way: the job must not run again.
            self.totals(&job.queue).cancelled += 1;
            return;
        }
        match verdict {
            Verdict::Done => {
                self.totals(&job.queue).done += 1;
                if self.settings(&job.queue).history.is_some() {
                    let finished = Finished::new(job.id, job.queue.clone(), label.to_owned(), now);
                    self.finished.insert(job.id, finished);
                }
            }
            Verdict::Park => self.park(job, now),
            Verdict::Reject { reason, failure } => {
                if let Some(failure) = failure {
                    if handler_ran(failure.kind) {
                        job.attempt = job.attempt.saturating_add(1);
                    }
                    record(&mut job, failure, label, now);
                }
                self.bury(job, reason, now);
            }
            Verdict::Release if acknowledged => self.bury(job, DeadReason::Interrupted, now),
            Verdict::Release if lane == ADOPTED => {
                let lane = priority_lane(&job);
                self.make_ready(job, lane, now);
            }
            Verdict::Release => self.give_back(job, lane, seq, moment, now),
            Verdict::Retry { after, failure } => {
                self.totals(&job.queue).retried += 1;
                job.attempt = job.attempt.saturating_add(1);
                job.expires_at = None;
                record(&mut job, failure, label, now);
                self.schedule(job, now.saturating_add(after), now);
            }
            Verdict::Snooze { after } => {
                job.expires_at = None;
                self.schedule(job, now.saturating_add(after), now);
            }
            // A verdict that this version does not know removes nothing silently: it counts as a cancellation.
            Verdict::Cancel | _ => self.totals(&job.queue).cancelled += 1,
        }
    }

    /// Whether a claim could find something now.
    pub(crate) fn may_claim(&self, options: &WaitOptions) -> bool {
        options.queues.iter().any(|queue| {
            !self.is_paused(queue)
                && (self.first_ready(queue, Lanes::Priorities, &[]).is_some()
                    || (options.suspects == Suspects::Take
                        && self.first_ready(queue, Lanes::Suspects, &[]).is_some()))
        })
    }

    pub(crate) fn register(&mut self, info: WorkerInfo, now: Timestamp) {
        for task in &info.tasks {
            self.tasks.insert(task.name.clone(), task.clone());
        }
        let lease_until = now.saturating_add(info.lease);
        let started_at = self.workers.get(&info.id).map_or(now, |worker| worker.started_at);
        self.workers.insert(info.id, Registered { info, started_at, lease_until, dead: false });
    }

    pub(crate) fn renew(&mut self, worker: WorkerId, lease: std::time::Duration, now: Timestamp) -> Renewal {
        match self.workers.get_mut(&worker).filter(|worker| !worker.dead) {
            Some(worker) => {
                worker.lease_until = now.saturating_add(lease);
                Renewal::Held
            }
            None => Renewal::Lost,
        }
    }

    pub(crate) fn retire(&mut self, worker: WorkerId, now: Timestamp) {
        let Some(registered) = self.workers.remove(&worker) else { return };
        for id in self.held_by(worker) {
            self.rescue(id, &registered.info.label, now, &mut Rescued::default());
        }
    }

    pub(crate) fn cancellations(&self, worker: WorkerId) -> Vec<JobId> {
        let held = self.held_by(worker).into_iter();
        held.filter(|id| matches!(self.jobs[id].place, Place::Held { cancel: true, .. })).collect()
    }

    pub(crate) fn maintain(&mut self, options: &MaintainOptions, now: Timestamp) -> Maintenance {
        let mut done = Maintenance::default();
        self.promote_due(options.limit, now, &mut done);
        self.rescue_dead(options.limit, now, &mut done);
        self.expire_waiting(options.limit, now, &mut done);
        self.prune_dead(options.limit, now, &mut done);
        done.next_due = self
            .jobs
            .values()
            .filter(|stored| matches!(stored.place, Place::Scheduled))
            .map(|stored| stored.job.due_at.since(now))
            .min();
        done
    }

    fn promote_due(&mut self, limit: usize, now: Timestamp, done: &mut Maintenance) {
        let mut due: Vec<(Timestamp, i64, JobId)> = self
            .jobs
            .values()
            .filter(|stored| matches!(stored.place, Place::Scheduled) && stored.job.due_at <= now)
            .map(|stored| (stored.job.due_at, stored.order, stored.job.id))
            .collect();
        due.sort_unstable();
        done.more |= due.len() > limit;
        let mut last_due = None;
        for (at, _, id) in due.into_iter().take(limit) {
            if last_due.replace(at) != Some(at) {
                self.begin_moment();
            }
            if let Some(stored) = self.take(id) {
                let lane = priority_lane(&stored.job);
                self.make_ready(stored.job, lane, now);
                done.promoted += 1;
            }
        }
    }

    fn rescue_dead(&mut self, limit: usize, now: Timestamp, done: &mut Maintenance) {
        for worker in self.workers.values_mut().filter(|worker| worker.lease_until <= now && !worker.dead) {
            worker.dead = true;
            done.dead_workers += 1;
        }
        let dead: Vec<(WorkerId, String)> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.dead)
            .map(|(id, worker)| (*id, worker.info.label.clone()))
            .collect();
        let mut left = limit;
        for (worker, label) in dead {
            let held = self.held_by(worker);
            let mut rescued = Rescued::default();
            for id in held.iter().take(left) {
                self.rescue(*id, &label, now, &mut rescued);
            }
            done.redelivered += rescued.redelivered;
            done.buried += rescued.buried;
            if held.len() > left {
                done.more = true;
                return;
            }
            left -= held.len();
            self.workers.remove(&worker);
        }
    }

    fn expire_waiting(&mut self, limit: usize, now: Timestamp, done: &mut Maintenance) {
        let expired: Vec<JobId> = self
            .jobs
            .values()
            .filter(|stored| matches!(stored.place, Place::Ready { .. } | Place::Parked { .. }))
            .filter(|stored| stored.job.expires_at.is_some_and(|at| at <= now))
            .map(|stored| stored.job.id)
            .collect();
        done.more |= expired.len() > limit;
        for id in expired.into_iter().take(limit) {
            self.expire(id, now);
            done.expired += 1;
        }
    }

    fn prune_dead(&mut self, limit: usize, now: Timestamp, done: &mut Maintenance) {
        let old: Vec<JobId> = self
            .jobs
            .values()
            .filter(|stored| stored.place.room() == Room::Dead)
            .filter(|stored| {
                let kept = self.settings(&stored.job.queue).dead_retention;
                kept.is_some_and(|kept| stored.since.saturating_add(kept) <= now)
            })
            .map(|stored| stored.job.id)
            .collect();
        done.more |= old.len() > limit;
        for id in old.into_iter().take(limit) {
            if let Some(stored) = self.take(id) {
                self.totals(&stored.job.queue).dropped += 1;
                done.pruned += 1;
            }
        }
    }
}

/// Which lanes of a queue are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lanes {
    Priorities,
    Suspects,
}

/// What one claim may still take, and what it has.
struct Taking<'a> {
    worker: WorkerId,
    now: Timestamp,
    like: &'a [JobId],
    limit: usize,
    bytes_left: usize,
    /// A job came that does not fit: no other may pass it.
    stopped: bool,
    common: Option<ClaimId>,
    claimed: Vec<Claimed>,
}

impl<'a> Taking<'a> {
    const fn new(options: &ClaimOptions, like: &'a [JobId], now: Timestamp) -> Self {
        Self {
            worker: options.worker,
            now,
            like,
            limit: options.limit,
            bytes_left: options.max_bytes,
            stopped: false,
            common: None,
            claimed: Vec::new(),
        }
    }

    const fn is_full(&self) -> bool {
        self.stopped || self.claimed.len() >= self.limit
    }

    fn fits(&mut self, job: &Job) -> bool {
        self.stopped |= !self.claimed.is_empty() && job.payload.len() > self.bytes_left;
        !self.is_full()
    }

    /// By what parked jobs are ordered.
    fn rank(&self, stored: &Stored) -> (i64, usize, i64, JobId) {
        let liked = self.like.iter().position(|id| *id == stored.job.id).unwrap_or(usize::MAX);
        (stored.moment, liked, stored.order, stored.job.id)
    }

    /// The claim of all jobs but suspects.
    fn common_claim(&mut self, store: &mut Store) -> ClaimId {
        *self.common.get_or_insert_with(|| ClaimId::new(store.next_number()))
    }
}

fn due_at(start: Start, now: Timestamp) -> Timestamp {
    match start {
        Start::After(delay) => now.saturating_add(delay),
        Start::At(at) => at.max(now),
        _ => now,
    }
}

/// The lane of a job that becomes ready in the ordinary way. A verdict has cleared it of suspicion.
fn priority_lane(job: &Job) -> i16 {
    i16::from(job.priority.get())
}

/// Whether a failure of this kind comes from a run of the handler.
const fn handler_ran(kind: AttemptKind) -> bool {
    matches!(
        kind,
        AttemptKind::Failed | AttemptKind::Panicked | AttemptKind::Rejected | AttemptKind::TimedOut
    )
}

fn record(job: &mut Job, failure: Failure, label: &str, now: Timestamp) {
    let number = job.attempt.max(1);
    job.extras.record(Attempt::new(now, number, label, failure));
}
