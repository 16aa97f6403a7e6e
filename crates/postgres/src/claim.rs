use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use celeriac_core::{ClaimId, ClaimOptions, Claimed, Error, Receipt, Result, Suspects, Timestamp, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::fault::Fault;
use crate::row::{job, limit};
use crate::statement::Statement;

/// Rows without a claim are messages: see `claim` in `sql/0004_claim.sql`.
const PARKED_JOBS_WAIT: i64 = 1;
const DUE_JOBS_WAIT: i64 = 3;

/// Due jobs that are moved on the way to a claim, at most: a claim must stay short.
const PROMOTE_WITH_CLAIM: i32 = 500;

/// A claim looks again this often at most: after expired jobs, or after a queue that another held just then.
const LOOKS: usize = 20;

/// Spent claims that one call closes at most.
const MOST_SPENT: usize = 100;

/// What this process remembers of its claims.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Jobs of each claim without a verdict. At zero the claim can be closed.
    open: HashMap<ClaimId, Open>,
    /// Claims whose last job was settled by a call that could not know it: two calls settled the rest at once. The next
    /// call closes them, or their rows would stay until the worker ends.
    spent: HashMap<ClaimId, Open>,
    /// Workers with a claim whose answer was lost, and when: the store may hold jobs for them that nobody runs.
    unsure: HashMap<WorkerId, Instant>,
}

#[derive(Debug)]
struct Open {
    worker: WorkerId,
    queue: i32,
    left: usize,
}

impl Claims {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, worker: WorkerId, claimed: &[Claimed]) {
        let mut state = self.state();
        for job in claimed {
            let Receipt { claim, queue, .. } = job.receipt;
            state.open.entry(claim).or_insert(Open { worker, queue, left: 0 }).left += 1;
        }
    }

    /// The claims of a worker to close with a call that settles these receipts, by queue and number. Nothing is changed
    /// yet.
    pub(crate) fn ending(
        &self,
        worker: WorkerId,
        receipts: impl Iterator<Item = Receipt>,
    ) -> (Vec<i32>, Vec<i64>) {
        let mut counts: HashMap<ClaimId, usize> = HashMap::new();
        for receipt in receipts {
            *counts.entry(receipt.claim).or_default() += 1;
        }
        let state = self.state();
        let ended = counts.into_iter().filter_map(|(claim, count)| {
            let open = state.open.get(&claim)?;
            (open.left <= count).then_some((open.queue, claim.get()))
        });
        let spent = state.spent.iter().filter(|(_, open)| open.worker == worker);
        ended.chain(spent.map(|(claim, open)| (open.queue, claim.get())).take(MOST_SPENT)).unzip()
    }

    /// Counts receipts off after their verdicts were answered. `closed`: what the same call closed.
    pub(crate) fn settled(&self, receipts: impl Iterator<Item = Receipt>, closed: &[i64]) {
        let mut state = self.state();
        for claim in closed {
            state.spent.remove(&ClaimId::new(*claim));
        }
        for receipt in receipts {
            if let Some(open) = state.open.get_mut(&receipt.claim) {
                open.left = open.left.saturating_sub(1);
                if open.left == 0
                    && let Some(open) = state.open.remove(&receipt.claim)
                    && !closed.contains(&receipt.claim.get())
                {
                    state.spent.insert(receipt.claim, open);
                }
            }
        }
    }

    /// Forgets a worker.
    pub(crate) fn forget(&self, worker: WorkerId) {
        let mut state = self.state();
        state.open.retain(|_, open| open.worker != worker);
        state.spent.retain(|_, open| open.worker != worker);
        state.unsure.remove(&worker);
    }

    fn known(&self, worker: WorkerId) -> Vec<i64> {
        let state = self.state();
        state.open.iter().filter(|(_, open)| open.worker == worker).map(|(claim, _)| claim.get()).collect()
    }
}

impl PostgresBroker {
    pub(crate) async fn claim_jobs(&self, options: &ClaimOptions) -> Result<Vec<Claimed>> {
        if self.claims.state().unsure.contains_key(&options.worker) {
            self.reconcile(options.worker).await?;
        }
        // Reconciling must not take the jobs of a claim whose answer is on its way.
        let _claiming = self.claiming.read().await;
        let answer = self.collect(options).await;
        if let Err(error) = &answer
            && error.is_transient()
        {
            self.claims.state().unsure.insert(options.worker, Instant::now());
        }
        answer
    }

    async fn collect(&self, options: &ClaimOptions) -> Result<Vec<Claimed>> {
        let mut queues = Vec::with_capacity(options.queues.len());
        let mut shares = Vec::with_capacity(options.queues.len());
        for share in &options.queues {
            if let Some(number) = self.store.queue_number(&share.name).await? {
                queues.push(number);
                shares.push(limit(share.share));
            }
        }
        let now = self.about_now().await?;
        let worker = Uuid::from_bytes(*options.worker.as_bytes());
        let tasks: Vec<&str> = options.tasks.iter().map(|task| task.as_str()).collect();
        let generation = self.signals.generation();
        let mut claimed: Vec<Claimed> = Vec::new();
        let mut suspects = options.suspects;
        let mut adopt = !tasks.is_empty();
        let mut emptied = false;
        let mut with_due = true;
        for look in 0..LOOKS {
            let left = options.limit.saturating_sub(claimed.len());
            let bytes: usize = claimed.iter().map(|job| job.job.payload.len()).sum();
            let bytes = options.max_bytes.saturating_sub(bytes);
            if look > 0 && (left == 0 || (bytes == 0 && !claimed.is_empty())) {
                break;
            }
            let wanted: &[&str] = if adopt { &tasks } else { &[] };
            let take_suspect = suspects == Suspects::Take;
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            let rows = self
                .store
                .try_query(
                    Statement::Claim,
                    &[&worker, &queues, &shares, &limit(left), &bytes, &take_suspect, &wanted, &with_due],
                )
                .await
                .map_err(|fault| self.claim_error(fault, options.worker))?;
            let (jobs, message) = self.read(&rows, now).await?;
            if jobs.iter().any(|job| job.receipt.lane == SUSPECTS) {
                suspects = Suspects::Leave;
            }
            self.claims.opened(options.worker, &jobs);
            claimed.extend(jobs);
            match message {
                Some(DUE_JOBS_WAIT) => {
                    let rows =
                        self.store.query("claim jobs", Statement::Promote, &[&PROMOTE_WITH_CLAIM]).await?;
                    // More than one step's worth is due only after a time without workers.
                    with_due = false;
                    if let Some(row) = rows.first() {
                        with_due = row.get(1);
                        self.notifier.wake(&row.get::<_, Vec<i32>>(2));
                    }
                }
                Some(PARKED_JOBS_WAIT) => {
                    let rows = self
                        .store
                        .try_query(Statement::Adopt, &[&worker, &limit(left), &bytes, &tasks])
                        .await
                        .map_err(|fault| self.claim_error(fault, options.worker))?;
                    let (jobs, _) = self.read(&rows, now).await?;
                    self.claims.opened(options.worker, &jobs);
                    claimed.extend(jobs);
                    // What could not be adopted now, such as jobs of a paused queue, must not stop the rest.
                    adopt = false;
                }
                Some(_) => {}
                None => {
                    emptied = claimed.len() < options.limit && suspects == options.suspects;
                    break;
                }
            }
        }
        self.signals.claimed(&queues, generation, emptied);
        Ok(claimed)
    }

    async fn read(&self, rows: &[Row], now: Timestamp) -> Result<(Vec<Claimed>, Option<i64>)> {
        let mut jobs = Vec::with_capacity(rows.len());
        let mut message = None;
        for row in rows {
            let Some(claim) = row.get::<_, Option<i64>>(0) else {
                message = Some(row.get(3));
                continue;
            };
            let receipt =
                Receipt { claim: ClaimId::new(claim), queue: row.get(1), lane: row.get(2), seq: row.get(3) };
            let queue = self.store.queue_name(receipt.queue).await?;
            jobs.push(Claimed::new(job(row, 4, queue)?, receipt, now));
        }
        Ok((jobs, message))
    }

    fn claim_error(&self, fault: Fault, worker: WorkerId) -> Error {
        match fault {
            Fault::LeaseLost => Error::LeaseLost { worker },
            fault => self.store.error(fault, "claim jobs"),
        }
    }

    /// Gives back what the store holds for a worker of ours and no answer told us.
    async fn reconcile(&self, worker: WorkerId) -> Result<()> {
        let _alone = self.claiming.write().await;
        let Some(since) = self.claims.state().unsure.get(&worker).copied() else { return Ok(()) };
        let known = self.claims.known(worker);
        let worker_id = Uuid::from_bytes(*worker.as_bytes());
        let rows =
            self.store.query("give back unknown jobs", Statement::Reconcile, &[&worker_id, &known]).await?;
        if let Some(row) = rows.first() {
            self.notifier.wake(&row.get::<_, Vec<i32>>(0));
        }
        // The lost claim itself may run on in the server until its deadline; until then this is not the last look.
        if since.elapsed() > self.store.options.deadline * 2 {
            self.claims.state().unsure.remove(&worker);
        }
        Ok(())
    }
}

/// The lane of jobs that come back from a dead worker.
pub(crate) const SUSPECTS: i16 = 10;

#[cfg(test)]
mod tests {
    use celeriac_core::{Job, JobId, Payload, Priority, QueueName, TaskName, Timestamp};

    use super::*;

    fn claimed(seq: i64) -> Claimed {
        let time = Timestamp::from_micros(0);
        let job = Job::from_columns(
            JobId::from_uuid(Uuid::from_u128(u128::try_from(seq).unwrap())),
            QueueName::default_queue(),
            TaskName::new("work").unwrap(),
            Priority::default(),
            Payload::from_json("{}").unwrap(),
            0,
            0,
            time,
            time,
            None,
            celeriac_core::Extras::default(),
        );
        Claimed::new(
            job,
            Receipt { claim: ClaimId::new(7), queue: 3, lane: 0, seq },
            Timestamp::from_micros(0),
        )
    }

    #[test]
    fn a_claim_that_two_calls_end_together_is_closed_by_the_next() {
        let claims = Claims::default();
        let worker = WorkerId::from_uuid(Uuid::from_u128(1));
        let jobs = [claimed(1), claimed(2)];
        claims.opened(worker, &jobs);
        let receipts = jobs.map(|job| job.receipt);
        // Both ask before either is answered.
        for receipt in receipts {
            assert_eq!(claims.ending(worker, [receipt].into_iter()), (vec![], vec![]));
        }
        for receipt in receipts {
            claims.settled([receipt].into_iter(), &[]);
        }
        let other = WorkerId::from_uuid(Uuid::from_u128(2));
        assert_eq!(claims.ending(other, std::iter::empty()), (vec![], vec![]));
        let (queues, closed) = claims.ending(worker, std::iter::empty());
        assert_eq!((queues, closed.as_slice()), (vec![3], [7].as_slice()));
        claims.settled(std::iter::empty(), &closed);
        assert_eq!(claims.ending(worker, std::iter::empty()), (vec![], vec![]));
    }
}
