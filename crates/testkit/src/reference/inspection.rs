//! What operators ask of a reference store.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use celeriac_core::{
    Attempt, AttemptKind, BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, Declared, Details,
    Error, Failure, Filter, Finished, JobId, Page, PageOptions, QueueChange, QueueName, Result, Room, Sample,
    SampleOptions, Sampled, Stats, StorageFigures, TaskInfo, TaskName, Timestamp, Violation, WorkerStats,
};

use super::store::{Place, Store, Stored};

impl Store {
    pub(crate) fn declare(&mut self, name: QueueName, change: &QueueChange) -> Result<Declared> {
        let known = self.queues.get(&name);
        let settings = change.apply(known.map(|queue| queue.settings.clone()).unwrap_or_default())?;
        let declared = if known.is_some() { Declared::Existed } else { Declared::Created };
        let queue = self.create_queue(name);
        queue.settings = settings;
        if let Some(paused) = change.paused {
            queue.paused = paused;
        }
        Ok(declared)
    }

    pub(crate) fn finished(&self, id: JobId, now: Timestamp) -> Option<Finished> {
        let finished = self.finished.get(&id)?;
        let kept = self.queues.get(&finished.queue)?.settings.history?;
        (finished.at.saturating_add(kept) > now).then(|| finished.clone())
    }

    pub(crate) fn find(&self, id: JobId) -> Option<Details> {
        self.jobs.get(&id).map(|stored| self.details(stored))
    }

    pub(crate) fn list(&self, filter: &Filter, page: &PageOptions, now: Timestamp) -> Result<Page> {
        let limit = page.checked_limit()?;
        let (found, next) = self.matching(filter, page.after.as_deref(), limit, now)?;
        let jobs = found.into_iter().map(|stored| self.details(stored)).collect();
        Ok(Page::new(jobs, next))
    }

    pub(crate) fn cancel(&mut self, id: JobId) -> Cancelled {
        let Some(stored) = self.jobs.get_mut(&id) else { return Cancelled::NotFound };
        if let Place::Held { cancel, .. } = &mut stored.place {
            *cancel = true;
            return Cancelled::Requested;
        }
        let room = stored.place.room();
        let queue = stored.job.queue.clone();
        self.take(id);
        self.totals(&queue).cancelled += 1;
        Cancelled::Removed(room)
    }

    pub(crate) fn bulk(
        &mut self,
        filter: &Filter,
        act: &BulkAct,
        options: &BulkOptions,
        now: Timestamp,
    ) -> Result<Page> {
        let mut size = PageOptions::default();
        size.limit = options.limit;
        let limit = size.checked_limit()?;
        if let BulkAct::Replay { queue } = act {
            if filter.room != Room::Dead {
                return Err(Error::invalid(
                    "room",
                    filter.room.as_str(),
                    "only jobs in the room dead can be replayed",
                ));
            }
            if let Some(queue) = queue {
                self.require_queue(queue)?;
            }
        }
        if !matches!(act, BulkAct::Nothing | BulkAct::Purge | BulkAct::Replay { .. }) {
            return Err(Error::invalid("act", format!("{act:?}"), "the reference store does not know it"));
        }
        let (found, next) = self.matching_idle(filter, options.after.as_deref(), limit, now)?;
        let jobs: Vec<Details> = found.into_iter().map(|stored| self.details(stored)).collect();
        for details in &jobs {
            match act {
                BulkAct::Purge => self.purge(details.job.id),
                BulkAct::Replay { queue } => self.replay(details.job.id, queue.as_ref(), now),
                _ => {}
            }
        }
        Ok(Page::new(jobs, next))
    }

    fn purge(&mut self, id: JobId) {
        if let Some(stored) = self.take(id) {
            self.totals(&stored.job.queue).dropped += 1;
        }
    }

    fn replay(&mut self, id: JobId, queue: Option<&QueueName>, now: Timestamp) {
        let Some(Stored { mut job, .. }) = self.take(id) else { return };
        let number = job.attempt.max(1);
        let failure = Failure::new(AttemptKind::Replayed, "sent back from the bin");
        job.extras.record(Attempt::new(now, number, "", failure));
        job.attempt = 0;
        job.deliveries = 0;
        job.due_at = now;
        // A person wants it to run, so a time to live that has passed must not bury it again.
        job.expires_at = None;
        if let Some(queue) = queue {
            job.queue = queue.clone();
        }
        let lane = i16::from(job.priority.get());
        self.make_ready(job, lane, now);
    }

    pub(crate) fn stats(&self, now: Timestamp) -> Stats {
        let mut stats = Stats::default();
        stats.queues = self.queues.iter().map(|(name, queue)| self.queue_stats(name, queue, now)).collect();
        for (id, worker) in &self.workers {
            let lease_left = worker.lease_until.since(now);
            let mut shown = WorkerStats::new(*id, worker.info.label.clone(), worker.started_at, lease_left);
            shown.queues.clone_from(&worker.info.queues);
            shown.tasks = worker.info.tasks.iter().map(|task| task.name.clone()).collect();
            shown.concurrency = worker.info.concurrency;
            stats.workers.push(shown);
        }
        stats.workers.sort_by(|a, b| a.label.cmp(&b.label));
        let mut parked: BTreeMap<TaskName, u64> = BTreeMap::new();
        for stored in self.jobs.values() {
            if let Place::Parked { waits_for } = &stored.place {
                *parked.entry(waits_for.clone()).or_default() += 1;
            }
        }
        stats.parked = parked.into_iter().collect();
        stats
    }

    pub(crate) fn sample(&mut self, options: &SampleOptions, now: Timestamp) -> Sampled {
        let fresh = self.sample.taken_at.is_some_and(|taken| now.since(taken) < options.max_age);
        if !fresh {
            self.sample = Sample::take(&self.stats(now), StorageFigures::default(), &self.sample, now);
        }
        Sampled::new(self.sample.clone(), now)
    }

    pub(crate) fn known_tasks(&self) -> Vec<TaskInfo> {
        self.tasks.values().cloned().collect()
    }

    /// Every index against the jobs themselves.
    pub(crate) fn check(&self, _options: &CheckOptions) -> CheckReport {
        let mut report = CheckReport::default();
        report.jobs = u64::try_from(self.jobs.len()).unwrap_or(u64::MAX);
        let mut broken = |invariant: &str, detail: String| {
            report.violations.push(Violation::new(invariant, detail));
        };
        for (id, stored) in &self.jobs {
            if stored.job.id != *id {
                broken("a job is stored under its id", format!("{id} holds {}", stored.job.id));
            }
            if !self.queues.contains_key(&stored.job.queue) {
                broken("a job's queue exists", format!("{id} is in {}", stored.job.queue));
            }
            match &stored.place {
                Place::Ready { lane } => {
                    let key = (stored.job.queue.clone(), Reverse(*lane), stored.order);
                    if self.ready.get(&key) != Some(id) {
                        broken("a ready job can be claimed", format!("{id} at {key:?}"));
                    }
                }
                Place::Held { claim, .. } => {
                    if !self.claims.get(claim).is_some_and(|claim| claim.jobs.contains(id)) {
                        broken("a held job is in its claim", format!("{id} in {claim:?}"));
                    }
                }
                Place::Dead(_) | Place::Parked { .. } | Place::Scheduled => {}
            }
        }
        for (key, id) in &self.ready {
            if !matches!(self.jobs.get(id).map(|stored| &stored.place), Some(Place::Ready { .. })) {
                broken("only ready jobs can be claimed", format!("{id} at {key:?}"));
            }
        }
        for (number, claim) in &self.claims {
            if !self.workers.contains_key(&claim.worker) {
                broken("a claim's worker is registered", format!("{number:?} of {}", claim.worker));
            }
            for id in &claim.jobs {
                if !matches!(
                    self.jobs.get(id).map(|stored| &stored.place),
                    Some(Place::Held { claim, .. }) if claim == number
                ) {
                    broken("a job is in one claim", format!("{id} in {number:?}"));
                }
            }
        }
        let (mut stored, mut left) = (0, report.jobs);
        for queue in self.queues.values() {
            stored += queue.totals.enqueued;
            left += queue.totals.done + queue.totals.cancelled + queue.totals.dropped;
        }
        if stored != left {
            let detail = format!("{stored} enqueued, {left} there, done, cancelled or dropped");
            report.violations.push(Violation::new("counters agree with the jobs", detail));
        }
        report.notes.push("in memory: nothing survives the process".to_owned());
        report
    }

    fn details(&self, stored: &Stored) -> Details {
        let mut details = Details::new(stored.job.clone(), stored.place.room(), stored.since);
        match &stored.place {
            Place::Dead(reason) => details.reason = Some(*reason),
            Place::Held { claim, .. } => {
                let worker = self.claims.get(claim).and_then(|claim| self.workers.get(&claim.worker));
                details.held_by = worker.map(|worker| worker.info.label.clone());
            }
            Place::Parked { waits_for } => details.waits_for = Some(waits_for.as_str().to_owned()),
            Place::Ready { .. } | Place::Scheduled => {}
        }
        details
    }

    fn matching(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<&Stored>, Option<String>)> {
        let after = cursor(after)?;
        let found = self.jobs.values().filter(|stored| stored.order > after && matches(filter, stored, now));
        Ok(page_of(found.collect(), limit))
    }

    fn matching_idle(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<&Stored>, Option<String>)> {
        let after = cursor(after)?;
        let found = self.jobs.values().filter(|stored| {
            stored.order > after
                && !matches!(stored.place, Place::Held { .. })
                && matches(filter, stored, now)
        });
        Ok(page_of(found.collect(), limit))
    }
}

fn cursor(after: Option<&str>) -> Result<i64> {
    match after {
        None => Ok(i64::MIN),
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid("page", text, "it is not what an earlier page gave as next")),
    }
}

fn page_of(mut found: Vec<&Stored>, limit: usize) -> (Vec<&Stored>, Option<String>) {
    found.sort_by_key(|stored| stored.order);
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| last.order.to_string());
    (found, next)
}

fn matches(filter: &Filter, stored: &Stored, now: Timestamp) -> bool {
    let job = &stored.job;
    let reason = if let Place::Dead(reason) = &stored.place { Some(*reason) } else { None };
    let last_error = job.extras.history.last().map_or("", |attempt| attempt.error.as_str());
    filter.room == stored.place.room()
        && filter.id.is_none_or(|id| id == job.id)
        && filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
        && filter.task.as_ref().is_none_or(|task| *task == job.task)
        && filter.reason.is_none_or(|wanted| Some(wanted) == reason)
        && filter.error.as_deref().is_none_or(|text| last_error.contains(text))
        && filter.older_than.is_none_or(|age| now.since(stored.since) > age)
}
