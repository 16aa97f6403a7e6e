use std::collections::HashMap;
use std::time::SystemTime;

use celeriac_core::{
    Attempt, AttemptKind, ClaimId, DeadReason, Extras, Failure, Holding, Receipt, Result, Settled,
    Settlement, Verdict, WorkerId,
};
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::fault::Fault;
use crate::row::instant;
use crate::statement::Statement;
use crate::store::micros;
use crate::wake::EVERYBODY;

/// Neighbours of at least this number are deleted as one range; fewer are cheaper by themselves.
const RUN: usize = 3;

const DONE: i16 = 0;
const CANCEL: i16 = 1;
const SCHEDULE: i16 = 2;
const BURY: i16 = 3;
const PARK: i16 = 4;
const RELEASE: i16 = 5;

/// The columns of `settle`.
#[derive(Default)]
struct Columns {
    queues: Vec<i32>,
    claims: Vec<i64>,
    lanes: Vec<i16>,
    seqs: Vec<i64>,
    kinds: Vec<i16>,
    afters: Vec<i64>,
    failed: Vec<bool>,
    attempts: Vec<Option<i32>>,
    extras: Vec<Option<Vec<u8>>>,
    reasons: Vec<Option<&'static str>>,
}

/// The columns of `settle_done`: each claim once, runs of neighbours, single jobs.
#[derive(Default)]
struct Finished {
    queues: Vec<i32>,
    claims: Vec<i64>,
    run_claims: Vec<i32>,
    run_lanes: Vec<i16>,
    run_lows: Vec<i64>,
    run_highs: Vec<i64>,
    single_claims: Vec<i32>,
    single_lanes: Vec<i16>,
    single_seqs: Vec<i64>,
}

/// What a verdict must know of its job.
struct Known {
    attempt: i32,
    extras: Extras,
    cancelled: bool,
    acknowledged: bool,
    label: String,
    now: SystemTime,
}

impl PostgresBroker {
    pub(crate) async fn settle_jobs(
        &self,
        worker: WorkerId,
        verdicts: Vec<Settlement>,
    ) -> Result<Vec<Settled>> {
        if verdicts.is_empty() {
            return Ok(Vec::new());
        }
        let receipts: Vec<Receipt> = verdicts.iter().map(|settlement| settlement.receipt).collect();
        let all_done = verdicts.iter().all(|settlement| settlement.verdict == Verdict::Done);
        let ending = self.claims.ending(worker, receipts.iter().copied());
        let answers = if all_done && self.settle_done(worker, &receipts, &ending).await? {
            vec![Settled::Applied; verdicts.len()]
        } else {
            self.settle_each(worker, verdicts, &ending).await?
        };
        self.claims.settled(receipts.into_iter(), &ending.1);
        Ok(answers)
    }

    /// The usual batch in one round trip. `false`: nothing was changed, since one of the verdicts is stale.
    async fn settle_done(
        &self,
        worker: WorkerId,
        receipts: &[Receipt],
        (close_queues, close_claims): &(Vec<i32>, Vec<i64>),
    ) -> Result<bool> {
        let done = Finished::new(receipts);
        let worker = Uuid::from_bytes(*worker.as_bytes());
        let answer = self
            .store
            .try_query(
                Statement::SettleDone,
                &[
                    &worker,
                    &done.queues,
                    &done.claims,
                    &done.run_claims,
                    &done.run_lanes,
                    &done.run_lows,
                    &done.run_highs,
                    &done.single_claims,
                    &done.single_lanes,
                    &done.single_seqs,
                    close_queues,
                    close_claims,
                ],
            )
            .await;
        match answer {
            Ok(_) => Ok(true),
            Err(Fault::Stale) => Ok(false),
            Err(fault) => Err(self.store.error(fault, "settle jobs")),
        }
    }

    async fn settle_each(
        &self,
        worker: WorkerId,
        verdicts: Vec<Settlement>,
        (close_queues, close_claims): &(Vec<i32>, Vec<i64>),
    ) -> Result<Vec<Settled>> {
        let known = self.peek(worker, &verdicts).await?;
        let count = verdicts.len();
        let mut columns = Columns::default();
        for (place, settlement) in verdicts.into_iter().enumerate() {
            columns.add(settlement, known.get(&place));
        }
        let seen_at = known.values().map(|known| known.now).max();
        let worker = Uuid::from_bytes(*worker.as_bytes());
        let rows = self
            .store
            .query(
                "settle jobs",
                Statement::Settle,
                &[
                    &worker,
                    &columns.queues,
                    &columns.claims,
                    &columns.lanes,
                    &columns.seqs,
                    &columns.kinds,
                    &columns.afters,
                    &columns.failed,
                    &columns.attempts,
                    &columns.extras,
                    &columns.reasons,
                    close_queues,
                    close_claims,
                    &seen_at,
                ],
            )
            .await?;
        let mut answers = vec![Settled::Stale; count];
        let mut woken = Vec::new();
        let applied: Vec<i32> = rows.first().map(|row| row.get(0)).unwrap_or_default();
        for place in applied.into_iter().filter_map(|place| usize::try_from(place - 1).ok()) {
            answers[place] = Settled::Applied;
            match columns.kinds[place] {
                RELEASE => woken.push(columns.queues[place]),
                PARK => woken.push(EVERYBODY),
                _ => {}
            }
        }
        woken.sort_unstable();
        woken.dedup();
        self.notifier.wake(&woken);
        Ok(answers)
    }

    async fn peek(&self, worker: WorkerId, verdicts: &[Settlement]) -> Result<HashMap<usize, Known>> {
        // `done` says all there is to say.
        let places: Vec<usize> =
            (0..verdicts.len()).filter(|place| verdicts[*place].verdict != Verdict::Done).collect();
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let receipts = places.iter().map(|place| verdicts[*place].receipt);
        let queues: Vec<i32> = receipts.clone().map(|receipt| receipt.queue).collect();
        let lanes: Vec<i16> = receipts.clone().map(|receipt| receipt.lane).collect();
        let seqs: Vec<i64> = receipts.map(|receipt| receipt.seq).collect();
        let worker = Uuid::from_bytes(*worker.as_bytes());
        let rows =
            self.store.query("settle jobs", Statement::Peek, &[&worker, &queues, &lanes, &seqs]).await?;
        let mut known = HashMap::with_capacity(rows.len());
        for row in rows {
            let Ok(at) = usize::try_from(row.get::<_, i64>(0) - 1) else { continue };
            let extras = Extras::from_bytes(row.get::<_, Option<&[u8]>>(2).unwrap_or_default());
            known.insert(
                places[at],
                Known {
                    attempt: row.get(1),
                    extras: extras.unwrap_or_else(|error| {
                        // A damaged history is given up: a job must not be stuck for it.
                        tracing::warn!(error = %error.full(), "the extras of a job are damaged and are replaced");
                        Extras::default()
                    }),
                    cancelled: row.get(3),
                    acknowledged: row.get(4),
                    label: row.get::<_, Option<String>>(5).unwrap_or_default(),
                    now: row.get(6),
                },
            );
        }
        // The verdicts of a batch have one time.
        if let Some(now) = known.values().map(|known: &Known| known.now).max() {
            known.values_mut().for_each(|known| known.now = now);
        }
        Ok(known)
    }

    pub(crate) async fn acknowledge_jobs(
        &self,
        worker: WorkerId,
        receipts: &[Receipt],
    ) -> Result<Vec<Holding>> {
        let queues: Vec<i32> = receipts.iter().map(|receipt| receipt.queue).collect();
        let claims: Vec<i64> = receipts.iter().map(|receipt| receipt.claim.get()).collect();
        let lanes: Vec<i16> = receipts.iter().map(|receipt| receipt.lane).collect();
        let seqs: Vec<i64> = receipts.iter().map(|receipt| receipt.seq).collect();
        let worker = Uuid::from_bytes(*worker.as_bytes());
        let rows = self
            .store
            .query("acknowledge jobs", Statement::Acknowledge, &[&worker, &queues, &claims, &lanes, &seqs])
            .await?;
        let mut answers = vec![Holding::Lost; receipts.len()];
        let held: Vec<i32> = rows.first().map(|row| row.get(0)).unwrap_or_default();
        for place in held.into_iter().filter_map(|place| usize::try_from(place - 1).ok()) {
            answers[place] = Holding::Held;
        }
        Ok(answers)
    }
}

impl Columns {
    fn add(&mut self, settlement: Settlement, known: Option<&Known>) {
        let Settlement { receipt, verdict } = settlement;
        let (mut after, mut failed, mut attempt, mut extras, mut reason) = (0, false, None, None, None);
        let unfinished = matches!(
            verdict,
            Verdict::Park | Verdict::Release | Verdict::Retry { .. } | Verdict::Snooze { .. }
        );
        let kind = match verdict {
            // Whoever asked for the end was told that it is on its way: the job must not run again.
            _ if unfinished && known.is_some_and(|known| known.cancelled) => CANCEL,
            Verdict::Release if known.is_some_and(|known| known.acknowledged) => {
                reason = Some(DeadReason::Interrupted.as_str());
                BURY
            }
            Verdict::Done => DONE,
            Verdict::Park => PARK,
            Verdict::Release => RELEASE,
            Verdict::Retry { after: delay, failure } => {
                (after, failed) = (micros(delay), true);
                (attempt, extras) = known.map(|known| known.failed(failure)).unzip();
                SCHEDULE
            }
            Verdict::Snooze { after: delay } => {
                after = micros(delay);
                SCHEDULE
            }
            Verdict::Reject { reason: why, failure } => {
                reason = Some(why.as_str());
                if let (Some(failure), Some(known)) = (failure, known) {
                    let (count, bytes) = known.failed(failure);
                    (attempt, extras) = (Some(count), Some(bytes));
                }
                BURY
            }
            // A verdict that this version does not know removes nothing silently: it counts as a cancellation.
            Verdict::Cancel | _ => CANCEL,
        };
        self.queues.push(receipt.queue);
        self.claims.push(receipt.claim.get());
        self.lanes.push(receipt.lane);
        self.seqs.push(receipt.seq);
        self.kinds.push(kind);
        self.afters.push(after);
        self.failed.push(failed);
        self.attempts.push(attempt);
        self.extras.push(extras);
        self.reasons.push(reason);
    }
}

impl Known {
    /// The count of attempts and the extras after a failure.
    fn failed(&self, failure: Failure) -> (i32, Vec<u8>) {
        // Arguments that cannot be decoded never reached the handler.
        let ran = failure.kind != AttemptKind::Undecodable;
        let attempt = self.attempt.saturating_add(i32::from(ran));
        let number = u32::try_from(attempt).unwrap_or(0).max(1);
        let mut extras = self.extras.clone();
        extras.record(Attempt::new(instant(self.now), number, self.label.clone(), failure));
        (attempt, extras.to_bytes())
    }
}

impl Finished {
    fn new(receipts: &[Receipt]) -> Self {
        let mut finished = Self::default();
        let mut places: HashMap<ClaimId, i32> = HashMap::new();
        let mut sorted: Vec<(i32, i16, i64)> = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let place = *places.entry(receipt.claim).or_insert_with(|| {
                finished.queues.push(receipt.queue);
                finished.claims.push(receipt.claim.get());
                i32::try_from(finished.claims.len()).unwrap_or(i32::MAX)
            });
            sorted.push((place, receipt.lane, receipt.seq));
        }
        sorted.sort_unstable();
        let mut rest = &sorted[..];
        while let Some((claim, lane, low)) = rest.first().copied() {
            let run = rest
                .iter()
                .zip(0..)
                .take_while(|((c, l, seq), step)| {
                    (*c, *l, Some(*seq)) == (claim, lane, low.checked_add(*step))
                })
                .count();
            if run >= RUN {
                finished.run_claims.push(claim);
                finished.run_lanes.push(lane);
                finished.run_lows.push(low);
                finished.run_highs.push(rest[run - 1].2);
            } else {
                for (claim, lane, seq) in &rest[..run] {
                    finished.single_claims.push(*claim);
                    finished.single_lanes.push(*lane);
                    finished.single_seqs.push(*seq);
                }
            }
            rest = &rest[run..];
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_runs() {
        let receipt =
            |claim: i64, lane: i16, seq: i64| Receipt { claim: ClaimId::new(claim), queue: 7, lane, seq };
        let receipts: Vec<Receipt> =
            [5, 3, 4, 9, 6, 11].map(|seq| receipt(1, 0, seq)).into_iter().chain([receipt(2, 0, 7)]).collect();
        let done = Finished::new(&receipts);
        assert_eq!(done.claims, [1, 2]);
        assert_eq!((done.run_lows, done.run_highs), (vec![3], vec![6]));
        assert_eq!((done.single_claims, done.single_seqs), (vec![1, 1, 2], vec![9, 11, 7]));
    }

    #[test]
    fn a_verdict_twice_is_no_run() {
        let receipt = Receipt { claim: ClaimId::new(1), queue: 7, lane: 0, seq: 3 };
        let done = Finished::new(&[receipt, receipt]);
        // Two single entries and one row: the counts differ, and the verdicts are looked at one by one.
        assert_eq!(done.single_seqs, [3, 3]);
    }
}
