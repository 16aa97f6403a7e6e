use celeriac_core::{DeadReason, Holding, Receipt, Settled, Settlement, Timestamp, Verdict, WorkerId};
use rusqlite::{OptionalExtension, params};

use crate::claim::{by_claim, contains, open_claim, without};
use crate::fault::Fault;
use crate::history;
use crate::room::{JobRow, bury, insert_job, insert_parked, insert_scheduled, take_job};
use crate::state::{ADOPTED, SUSPECTS, as_ranges, parts, range_bytes};
use crate::transaction::Transaction;

/// Carries out verdicts. One whose key is not in an open claim of this worker changes nothing.
pub(crate) fn settle(
    transaction: &mut Transaction<'_>,
    worker: WorkerId,
    verdicts: &[Settlement],
) -> Result<Vec<Settled>, Fault> {
    let mut answers = vec![Settled::Stale; verdicts.len()];
    let cancelling = transaction.has_cancellations()?;
    let mut label = None;
    for (claim, keys) in by_claim(verdicts.iter().map(|settlement| settlement.receipt)) {
        let Some(open) = open_claim(transaction, worker, claim)? else { continue };
        let mut settled = Vec::with_capacity(keys.len());
        let mut done = Vec::with_capacity(keys.len());
        let mut released = Vec::new();
        for (key, place) in keys {
            // A verdict that comes twice in one batch counts once.
            if settled.last() == Some(&key) || !contains(&open.keys, key) {
                continue;
            }
            settled.push(key);
            answers[place] = Settled::Applied;
            let mut verdict = &verdicts[place].verdict;
            if cancelling && cancellation_of(transaction, key)? && is_unfinished(verdict) {
                verdict = &Verdict::Cancel;
            }
            match verdict {
                Verdict::Done => done.push(key),
                Verdict::Release if contains(&open.acknowledged, key) => {
                    // A release would be a second delivery of a job that may have only one.
                    let interrupted = Verdict::Reject { reason: DeadReason::Interrupted, failure: None };
                    move_job(transaction, open.queue, key, &interrupted, "")?;
                }
                Verdict::Release if parts(key).1 == ADOPTED => unadopt(transaction, open.queue, key)?,
                Verdict::Release => released.push(key),
                other => {
                    let label = label_of(transaction, worker, &mut label)?;
                    move_job(transaction, open.queue, key, other, label)?;
                }
            }
        }
        if !done.is_empty() && transaction.queue(open.queue)?.settings.history.is_some() {
            let label = label_of(transaction, worker, &mut label)?;
            history::note(transaction, open.queue, label, &done)?;
        }
        finish(transaction, open.queue, &done)?;
        give_back(transaction, open.queue, &released)?;
        transaction.queue_mut(open.queue)?.counts.held -= i64::try_from(settled.len()).unwrap_or(0);
        let left = without(&open.keys, &settled);
        if left.is_empty() {
            transaction
                .connection
                .prepare_cached("delete from claims where claim = ?1")?
                .execute([claim.get()])?;
        } else if left != open.keys {
            transaction
                .connection
                .prepare_cached("update claims set keys = ?2 where claim = ?1")?
                .execute(params![claim.get(), range_bytes(&left)])?;
        }
    }
    Ok(answers)
}

/// Marks held jobs as never to be delivered again.
pub(crate) fn acknowledge(
    transaction: &Transaction<'_>,
    worker: WorkerId,
    receipts: &[Receipt],
) -> Result<Vec<Holding>, Fault> {
    let mut answers = vec![Holding::Lost; receipts.len()];
    for (claim, keys) in by_claim(receipts.iter().copied()) {
        let Some(open) = open_claim(transaction, worker, claim)? else { continue };
        let mut acknowledged: Vec<i64> =
            open.acknowledged.iter().flat_map(|range| range.low..=range.high).collect();
        for (key, place) in keys {
            if contains(&open.keys, key) {
                answers[place] = Holding::Held;
                acknowledged.push(key);
            }
        }
        acknowledged.sort_unstable();
        acknowledged.dedup();
        transaction
            .connection
            .prepare_cached("update claims set acknowledged = ?2 where claim = ?1")?
            .execute(params![claim.get(), range_bytes(&as_ranges(acknowledged))])?;
    }
    Ok(answers)
}

/// Removes finished jobs, neighbours in one statement.
fn finish(transaction: &mut Transaction<'_>, queue: i32, done: &[i64]) -> Result<(), Fault> {
    if done.is_empty() {
        return Ok(());
    }
    {
        let mut statement =
            transaction.connection.prepare_cached("delete from jobs where key >= ?1 and key <= ?2")?;
        for range in as_ranges(done.iter().copied()) {
            statement.execute([range.low, range.high])?;
        }
    }
    transaction.queue_mut(queue)?.counts.done += i64::try_from(done.len()).unwrap_or(0);
    Ok(())
}

/// Makes jobs ready again in their old places.
fn give_back(transaction: &mut Transaction<'_>, queue: i32, keys: &[i64]) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let state = transaction.queue_mut(queue)?;
    state.give_back(keys.iter().copied());
    state.counts.ready += i64::try_from(keys.len()).unwrap_or(0);
    let suspects = keys.iter().filter(|key| parts(**key).1 == SUSPECTS).count();
    state.counts.suspects += i64::try_from(suspects).unwrap_or(0);
    transaction.woke = true;
    Ok(())
}

/// Gives back a job that was parked before: it goes behind the others of its priority.
pub(crate) fn unadopt(transaction: &mut Transaction<'_>, queue: i32, key: i64) -> Result<(), Fault> {
    if let Some(row) = take_job(transaction, key)? {
        insert_job(transaction, queue, row.priority, &row)?;
    }
    Ok(())
}

/// Carries out a verdict that takes the job to another room, or away without being done.
fn move_job(
    transaction: &mut Transaction<'_>,
    queue: i32,
    key: i64,
    verdict: &Verdict,
    label: &str,
) -> Result<(), Fault> {
    let now = transaction.now;
    let Some(mut row) = take_job(transaction, key)? else { return Ok(()) };
    match verdict {
        Verdict::Cancel => transaction.queue_mut(queue)?.counts.cancelled += 1,
        Verdict::Park => insert_parked(transaction, queue, &row)?,
        Verdict::Reject { reason, failure } => {
            if let Some(failure) = failure {
                row.fail(now, label, failure.clone());
            }
            bury(transaction, queue, &row, *reason)?;
        }
        Verdict::Retry { after, failure } => {
            row.fail(now, label, failure.clone());
            transaction.queue_mut(queue)?.counts.retried += 1;
            schedule(transaction, queue, row, now.saturating_add(*after))?;
        }
        Verdict::Snooze { after } => schedule(transaction, queue, row, now.saturating_add(*after))?,
        // `Done` and `Release` do not come here; a verdict of a later version must not lose the job.
        _ => bury(transaction, queue, &row, DeadReason::Rejected)?,
    }
    Ok(())
}

fn schedule(
    transaction: &mut Transaction<'_>,
    queue: i32,
    mut row: JobRow,
    due: Timestamp,
) -> Result<(), Fault> {
    row.due_at = due.as_micros();
    // The time to live bounds the wait for the first start, and that is over.
    row.expires_at = None;
    insert_scheduled(transaction, queue, &row)
}

/// Whether a verdict would let the job run again: not after its cancellation was asked for.
const fn is_unfinished(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Retry { .. } | Verdict::Snooze { .. } | Verdict::Release | Verdict::Park)
}

/// Takes the cancellation request of a held job, if there is one.
fn cancellation_of(transaction: &Transaction<'_>, key: i64) -> Result<bool, Fault> {
    let id: Option<Vec<u8>> = transaction
        .connection
        .prepare_cached("select id from jobs where key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    id.map_or(Ok(false), |id| transaction.take_cancellation(&id))
}

fn label_of<'a>(
    transaction: &Transaction<'_>,
    worker: WorkerId,
    label: &'a mut Option<String>,
) -> Result<&'a str, Fault> {
    if label.is_none() {
        let found: Option<String> = transaction
            .connection
            .prepare_cached("select label from workers where worker = ?1")?
            .query_row([worker.as_bytes()], |row| row.get(0))
            .optional()?;
        *label = Some(found.unwrap_or_else(|| worker.to_string()));
    }
    Ok(label.as_deref().unwrap_or_default())
}
