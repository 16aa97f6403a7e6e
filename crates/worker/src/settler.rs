use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Error, Settled, Verdict};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::outbox::Finished;
use crate::session::{Session, settlements};
use crate::trouble::pause;

/// Calls on their way at once: one that the store is at work on, and one that is ready when it is back.
pub(crate) const SETTLERS: usize = 2;

/// Writes verdicts until the outbox is closed and empty, or the lease is lost.
pub(crate) async fn run_settler(session: Arc<Session>) {
    // While jobs wait for a handler, more verdicts are about to come.
    let more = || session.buffer.fill().jobs > 0;
    while let Some(batch) = session.outbox.next_batch(more).await {
        session.observe(&batch);
        tokio::select! {
            () = settle(&session, batch) => {}
            () = session.lost.cancelled() => return,
        }
    }
}

/// Writes a batch, however often the store has to be asked.
///
/// If the store refuses the batch for its content, it is cut in halves until the culprit is alone: the others
/// must not wait for it.
async fn settle(session: &Session, batch: Vec<Finished>) {
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let mut tries = 0_u32;
        loop {
            let asked = Instant::now();
            let error = match session
                .plan
                .broker
                .settle(session.id, settlements(&part))
                .instrument(tracing::debug_span!("settle", verdicts = part.len()))
                .await
            {
                Ok(answers) => {
                    session.settling().passed();
                    let stale = account(session, &part, &answers, tries);
                    session.meters.settled(part.len(), stale, asked.elapsed());
                    break;
                }
                Err(error) => error,
            };
            tries += 1;
            session.meters.store_failed("settle", &error);
            if let Error::LeaseLost { .. } = error {
                session.lose("the store does not know this worker any more");
                return;
            }
            let wait = if error.is_transient() {
                session.settling().failed(&error)
            } else if part.len() > 1 {
                tracing::warn!(
                    jobs = part.len(),
                    "a batch of verdicts was refused, trying its halves: {}",
                    error.full()
                );
                let second = part.split_off(part.len() / 2);
                parts.push(second);
                parts.push(part);
                break;
            } else if tries.is_multiple_of(TRIES) && !replace(session, &mut part, &error) {
                break;
            } else {
                pause(tries, fastrand::f64())
            };
            sleep(wait).await;
        }
    }
}

/// Finds another way for a verdict that the store refuses again and again: first the job is given back instead,
/// then it is left to the end of this worker. Gives whether there is something to try.
fn replace(session: &Session, part: &mut [Finished], error: &Error) -> bool {
    let [finished] = part else { return true };
    if finished.verdict == Verdict::Release {
        tracing::error!(
            claim = finished.receipt.claim.get(),
            seq = finished.receipt.seq,
            "giving up on a job that the store refuses to take back; it is delivered again when this worker ends: {}",
            error.full()
        );
        session.totals.lock().unsettled += 1;
        session.let_go(1, usize::from(finished.suspect));
        return false;
    }
    tracing::error!(
        claim = finished.receipt.claim.get(),
        seq = finished.receipt.seq,
        "the store refuses a verdict; giving its job back instead: {}",
        error.full()
    );
    finished.verdict = Verdict::Release;
    true
}

/// Counts what the store answered, and lets the jobs go. Gives the number of stale verdicts.
pub(crate) fn account(session: &Session, batch: &[Finished], answers: &[Settled], earlier_tries: u32) -> u64 {
    let mut stale = 0_u64;
    {
        let mut totals = session.totals.lock();
        for (place, finished) in batch.iter().enumerate() {
            match answers.get(place) {
                Some(Settled::Applied) => {
                    totals.count(&finished.verdict);
                    finished.count();
                }
                _ => stale += 1,
            }
        }
        totals.stale += stale;
    }
    if stale > 0 && earlier_tries > 0 {
        tracing::warn!(
            worker = %session.id,
            stale,
            "verdicts changed nothing: they were written by an earlier try whose answer was lost, or their jobs \
             had been handed to another worker"
        );
    } else if stale > 0 {
        tracing::warn!(
            worker = %session.id,
            stale,
            "verdicts changed nothing: their jobs had been handed to another worker"
        );
    }
    session.let_go(batch.len(), batch.iter().filter(|finished| finished.suspect).count());
    stale
}

/// After so many refusals that no waiting cures, another way is looked for.
const TRIES: u32 = 5;

/// How long the last verdicts are tried at the end. Longer than any hiccup; a store that is gone must not
/// keep a process from ending.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(15);
