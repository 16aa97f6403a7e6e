use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, WorkerId};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::claimer::{ClaimerEnd, run_claimer};
use crate::lease::LeaseKeeper;
use crate::session::Session;
use crate::settler::{LAST_CALL, SETTLERS, run_settler};
use crate::shutdown::Shutdown;
use crate::slot::{Stop, run_slot};
use crate::worker::WorkerError;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The lease was lost. Its handlers are stopped, its verdicts dropped.
    Lost,
    /// In order: told to, or because the queues are empty.
    Stopped,
}

/// The running parts of a session. Dropping it stops them.
struct Parts {
    slots: JoinSet<()>,
    settlers: JoinSet<()>,
    claimer: JoinSet<ClaimerEnd>,
    /// The task that gives back what waits too long in the buffer.
    watch: JoinSet<()>,
    stop_claiming: CancellationToken,
}

/// Runs a registered session to its end. `registered` is an instant before the registration was sent.
pub(crate) async fn run_session(
    session: Arc<Session>,
    registered: Instant,
    shutdown: &Shutdown,
) -> Result<SessionEnd, WorkerError> {
    let keeper = LeaseKeeper::start(Arc::clone(&session), registered).map_err(WorkerError::Thread)?;
    let mut parts = Parts::start(&session);
    tokio::select! {
        () = session.lost.cancelled() => {}
        () = shutdown.draining() => {}
        Some(ended) = parts.claimer.join_next() => {
            if let Err(error) = ended {
                fail(&session, &error);
            }
        }
        // Both end only after the buffer or the outbox was closed, or by a fault of ours.
        Some(ended) = parts.slots.join_next() => unexpected(&session, ended),
        Some(ended) = parts.settlers.join_next() => unexpected(&session, ended),
    }
    session.settle_loss().await;
    if !session.lost.is_cancelled() {
        tokio::select! {
            () = parts.drain(&session, shutdown) => {}
            () = session.lost.cancelled() => {}
        }
        session.settle_loss().await;
    }
    if session.lost.is_cancelled() {
        parts.tear_down(&session).await;
        keeper.end().await;
        return Ok(SessionEnd::Lost);
    }
    let left = session.in_hand();
    if left > 0 {
        session.totals.lock().unsettled += u64::try_from(left).unwrap_or(u64::MAX);
        tracing::warn!(jobs = left, "stopped with jobs in hand; the store delivers them again");
    }
    retire(&*session.plan.broker, session.id).await;
    keeper.end().await;
    Ok(SessionEnd::Stopped)
}

/// Says farewell to the store, which need not be listening.
pub(crate) async fn retire(broker: &dyn Broker, worker: WorkerId) {
    match timeout(RETIRE_LIMIT, broker.retire(worker)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!("cannot retire; the lease ends by itself: {}", error.full());
        }
        Err(_) => tracing::warn!("the store did not answer the farewell; the lease ends by itself"),
    }
}

impl Parts {
    fn start(session: &Arc<Session>) -> Self {
        let mut parts = Self {
            slots: JoinSet::new(),
            settlers: JoinSet::new(),
            claimer: JoinSet::new(),
            watch: JoinSet::new(),
            stop_claiming: CancellationToken::new(),
        };
        for index in 0..session.plan.concurrency {
            parts.slots.spawn(run_slot(Arc::clone(session), index));
        }
        for _ in 0..SETTLERS {
            parts.settlers.spawn(run_settler(Arc::clone(session)));
        }
        parts.claimer.spawn(run_claimer(Arc::clone(session), parts.stop_claiming.clone()));
        parts.watch.spawn(watch_buffer(Arc::clone(session)));
        parts
    }

    /// The orderly stop: nothing more is claimed, what has not started is released, what runs may finish within
    /// the grace, all verdicts are written.
    async fn drain(&mut self, session: &Session, shutdown: &Shutdown) {
        session.plan.pulse.draining();
        self.stop_claiming.cancel();
        session.close_buffer();
        let grace = session.plan.grace;
        let told = tokio::select! {
            () = all(&mut self.slots) => None,
            () = shutdown.stopping() => Some(Stop::Now),
            () = sleep(grace) => Some(Stop::GraceOver),
        };
        if let Some(why) = told {
            tracing::info!(handlers = self.slots.len(), "telling running handlers to stop");
            session.stop_all(why);
            tokio::select! {
                () = all(&mut self.slots) => {}
                () = sleep(why.patience() + MARGIN) => {}
                // A second signal while handlers may still say their last words.
                () = after(shutdown, Stop::Now.patience() + MARGIN) => {}
            }
        }
        self.abandon_slots(session);
        // A claim that was on its way brings jobs that are released now. The store's own deadline bounds it.
        tokio::select! {
            _ = self.claimer.join_next() => {}
            () = sleep(LAST_CALL) => {}
            () = after(shutdown, LAST_CALL_NOW) => {}
        }
        session.outbox.close();
        tokio::select! {
            () = all(&mut self.settlers) => {}
            () = sleep(LAST_CALL) => {}
            () = after(shutdown, LAST_CALL_NOW) => {}
        }
    }

    /// The end after a lost lease: nothing is written any more.
    async fn tear_down(&mut self, session: &Session) {
        self.claimer.abort_all();
        self.settlers.abort_all();
        self.watch.abort_all();
        // The tokens fired when the lease was lost.
        let _ = timeout(Stop::LeaseLost.patience() + MARGIN, all(&mut self.slots)).await;
        self.abandon_slots(session);
    }

    /// Gives up on slots whose handlers did not let themselves be dropped: they block their thread.
    fn abandon_slots(&mut self, session: &Session) {
        let stuck = self.slots.len();
        if stuck > 0 {
            session.totals.lock().abandoned += u64::try_from(stuck).unwrap_or(u64::MAX);
            tracing::warn!(
                handlers = stuck,
                "handlers block their threads and cannot be stopped; leaving them behind"
            );
            // Should one come to a point where it waits, it is dropped there.
            self.slots.abort_all();
            self.slots.detach_all();
        }
    }
}

/// Waits until all tasks have ended.
async fn all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!("a part of the worker failed: {error}");
        }
    }
}

/// Returns this long after an immediate stop was asked for.
async fn after(shutdown: &Shutdown, pause: Duration) {
    shutdown.stopping().await;
    sleep(pause).await;
}

async fn watch_buffer(session: Arc<Session>) {
    let mut ticks = interval(WATCH_PERIOD);
    loop {
        ticks.tick().await;
        session.release_stale();
        session.show_level();
    }
}

fn unexpected(session: &Session, ended: Result<(), JoinError>) {
    match ended {
        Err(error) => fail(session, &error),
        Ok(()) if session.lost.is_cancelled() => {}
        Ok(()) => session.lose("a part of the worker ended before its time"),
    }
}

/// A panic in our own code. Jobs may hang in what is left of the session, so it is given up like one whose lease
/// is lost; the store hands its jobs out again.
fn fail(session: &Session, error: &JoinError) {
    tracing::error!("a part of the worker failed: {error}");
    session.lose("a part of the worker failed");
}

/// Between two looks at the buffer: a quarter of the time that a job may wait in it.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// Beyond the patience with handlers, for tasks to be scheduled on a busy machine.
const MARGIN: Duration = Duration::from_secs(1);

/// As [`LAST_CALL`], when somebody has asked a second time.
const LAST_CALL_NOW: Duration = Duration::from_secs(3);

/// A farewell is a courtesy: without it the lease lapses by itself.
const RETIRE_LIMIT: Duration = Duration::from_secs(5);
