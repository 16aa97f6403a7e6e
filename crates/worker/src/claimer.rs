use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{ClaimOptions, Error, Paused, QueueName, Stats, WaitOptions};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::session::Session;
use crate::shares::Shares;
use crate::spin_guard::SpinGuard;
use crate::trouble::Trouble;
use crate::worker::ExitWhenEmpty;

/// Why the claimer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimerEnd {
    /// The queues are empty, and the worker was asked to end then.
    Empty,
    /// It was told to, or the lease is lost.
    Stopped,
}

/// Claims jobs until `stop` fires, the lease is lost, or the queues are empty and that is the end.
///
/// A claim that is on its way is always waited for: its jobs are ours whether we listen or not.
pub(crate) async fn run_claimer(session: Arc<Session>, stop: CancellationToken) -> ClaimerEnd {
    let queues = session.plan.queues();
    let mut shares = Shares::new(&session.plan.subscription);
    let mut spin = SpinGuard::default();
    let mut trouble = Trouble::new("claim jobs");
    let mut waited = IDLE_WAIT;
    loop {
        if stop.is_cancelled() || session.lost.is_cancelled() {
            return ClaimerEnd::Stopped;
        }
        let limit = session.next_claim();
        if limit == 0 {
            // All handlers have work: that is no reason to take the worker for dead.
            session.plan.pulse.beat();
            tokio::select! {
                () = session.room.notified() => {}
                () = sleep(IDLE_WAIT) => {}
                () = stop.cancelled() => {}
                () = session.lost.cancelled() => {}
            }
            continue;
        }
        let began = Instant::now();
        let claimed = match claim(&session, &mut shares, limit).await {
            Ok(claimed) => {
                trouble.passed();
                session.plan.pulse.beat();
                session.meters.claimed(claimed, began.elapsed());
                claimed
            }
            Err(error) => {
                fail(&session, &stop, &mut trouble, &error).await;
                continue;
            }
        };
        if claimed == 0 {
            if session.plan.exit_when_empty == ExitWhenEmpty::Yes && session.in_hand() == 0 {
                match session.plan.broker.stats().await {
                    Ok(stats) if nothing_left(&stats, &queues) => return ClaimerEnd::Empty,
                    Ok(_) => {}
                    Err(error) => {
                        fail(&session, &stop, &mut trouble, &error).await;
                        continue;
                    }
                }
            }
            pause(&session, &stop, spin.nothing(waited)).await;
            let began = Instant::now();
            if let Err(error) = wait(&session, &stop, &queues).await {
                fail(&session, &stop, &mut trouble, &error).await;
            }
            waited = began.elapsed();
            continue;
        }
        spin.found();
        if claimed < limit.min(GOOD_CLAIM) {
            // Jobs come in slower than they could be run. A moment later there are more for one round trip; the
            // one that found an idle worker is running already.
            let pace = PACE.saturating_sub(began.elapsed());
            pause(&session, &stop, pace).await;
        }
    }
}

/// Claims once and takes what comes in hand. Gives the number.
async fn claim(session: &Session, shares: &mut Shares, limit: usize) -> Result<usize, Error> {
    let mut options = ClaimOptions::new(session.id, [], limit);
    options.queues = shares.ask(limit);
    options.max_bytes = session.next_claim_bytes();
    options.suspects = session.suspects();
    options.tasks = Arc::clone(&session.plan.tasks);
    let asked = options.queues.clone();
    let jobs = session.plan.broker.claim(options).await?;
    shares.charge(&asked, &jobs);
    let count = jobs.len();
    if count > 0 {
        session.take_in(jobs);
    }
    Ok(count)
}

/// Waits for the store to have something, and for whatever else could make a claim worth while.
async fn wait(session: &Session, stop: &CancellationToken, queues: &[QueueName]) -> Result<(), Error> {
    let limit = match session.plan.exit_when_empty {
        ExitWhenEmpty::No => IDLE_WAIT,
        // Others may finish the last job, which wakes nobody.
        ExitWhenEmpty::Yes => EXIT_WAIT,
    };
    let mut options = WaitOptions::new(queues.iter().cloned(), limit);
    options.suspects = session.suspects();
    tokio::select! {
        hint = session.plan.broker.wait(options) => hint,
        () = session.attention.notified() => Ok(()),
        () = stop.cancelled() => Ok(()),
        () = session.lost.cancelled() => Ok(()),
    }
}

async fn fail(session: &Session, stop: &CancellationToken, trouble: &mut Trouble, error: &Error) {
    if matches!(error, Error::LeaseLost { .. }) {
        session.lose("the store does not know this worker any more");
        return;
    }
    session.plan.pulse.troubled(error.code());
    session.meters.store_failed("claim", error);
    pause(session, stop, trouble.failed(error)).await;
}

async fn pause(session: &Session, stop: &CancellationToken, pause: Duration) {
    if pause.is_zero() {
        return;
    }
    tokio::select! {
        () = sleep(pause) => {}
        () = stop.cancelled() => {}
        () = session.lost.cancelled() => {}
    }
}

/// Whether these queues have no job that is ready or in anybody's hands. A paused queue hands out nothing, so
/// only what is held counts there.
fn nothing_left(stats: &Stats, queues: &[QueueName]) -> bool {
    stats
        .queues
        .iter()
        .filter(|queue| queues.contains(&queue.name))
        .all(|queue| queue.held == 0 && (queue.ready == 0 || queue.paused == Paused::Yes))
}

/// The poll that runs under all wake-ups: a lost hint costs a second, never a job.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// The same while the worker looks for its end.
const EXIT_WAIT: Duration = Duration::from_millis(100);

/// A claim that brought so many is followed by the next at once.
const GOOD_CLAIM: usize = 100;

/// The time between two claims that bring few.
const PACE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use celeriac_core::{QueueSettings, QueueStats};

    use super::*;

    #[test]
    fn ready_and_held_jobs_of_own_queues_hold_the_end_up() {
        let own = [QueueName::new("own").unwrap()];
        let stats = |name: &str, change: fn(&mut QueueStats)| {
            let name = QueueName::new(name).unwrap();
            let mut queue = QueueStats::new(name, QueueSettings::default(), Paused::No);
            change(&mut queue);
            let mut stats = Stats::default();
            stats.queues.push(queue);
            stats
        };
        assert!(nothing_left(&Stats::default(), &own));
        assert!(!nothing_left(&stats("own", |queue| queue.ready = 1), &own));
        assert!(!nothing_left(&stats("own", |queue| queue.held = 1), &own));
        assert!(nothing_left(&stats("other", |queue| queue.ready = 1), &own));
        assert!(nothing_left(&stats("own", |queue| queue.scheduled = 1), &own));
        let paused = stats("own", |queue| (queue.ready, queue.paused) = (1, Paused::Yes));
        assert!(nothing_left(&paused, &own));
    }
}
