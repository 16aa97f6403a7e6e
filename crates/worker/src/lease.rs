use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use celeriac_core::{Error, Renewal};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::session::Session;
use crate::trouble::Trouble;

/// The thread that keeps a session's lease and looks for cancellations.
///
/// It has a runtime of its own, so that a handler that blocks the worker's runtime delays neither. Dropping this
/// value stops it.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl LeaseKeeper {
    /// Starts the thread. `registered` is an instant before the registration was sent.
    pub(crate) fn start(session: Arc<Session>, registered: Instant) -> io::Result<Self> {
        // Made here, so that a failure is an error of the start and no silent loss later.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let (end, ended) = oneshot::channel::<()>();
        let stopped = stop.clone();
        thread::Builder::new().name("celeriac-lease".to_owned()).spawn(move || {
            let keeping = AssertUnwindSafe(|| {
                runtime.block_on(async {
                    let renewing = pin!(renew(&session, registered));
                    let listening = pin!(listen(&session));
                    tokio::select! {
                        () = renewing => {}
                        () = listening => {}
                        () = stopped.cancelled() => {}
                    }
                });
            });
            if catch_unwind(keeping).is_err() {
                // Nobody renews any more: others are about to get the jobs.
                session.lose("the thread that renews it failed");
            }
            drop(session);
            drop(end);
        })?;
        Ok(Self { stop: stop.drop_guard(), ended })
    }

    /// Stops renewing, and waits for the thread's end.
    pub(crate) async fn end(self) {
        drop(self.stop);
        // An error is the end as well: the sender went with the thread.
        let _ = self.ended.await;
    }
}

/// Renews the lease until it is lost.
async fn renew(session: &Session, registered: Instant) {
    let lease = session.plan.lease;
    let mut trouble = Trouble::new("renew the lease");
    // Counted from before a call was sent, so that our lease is over before the store's.
    let mut held_since = registered;
    let mut next = registered + lease / 3;
    loop {
        sleep_until(next).await;
        let end = held_since + lease;
        let asked = Instant::now();
        if asked >= end {
            session.lose("it could not be renewed in time");
            return;
        }
        let limit = (lease / 3).min(end - asked);
        let broker = &session.plan.broker;
        match timeout(limit, broker.renew(session.id, lease)).await {
            Ok(Ok(Renewal::Held)) => {
                trouble.passed();
                session.plan.pulse.renewed();
                held_since = asked;
                next = asked + lease / 3;
            }
            Ok(Ok(_) | Err(Error::LeaseLost { .. })) => {
                session.lose("the store took this worker for dead");
                return;
            }
            Ok(Err(error)) => {
                session.meters.store_failed("renew", &error);
                next = again(&mut trouble, &error, lease, end);
            }
            Err(_) => {
                let error = Error::DeadlinePassed {
                    store: broker.to_string(),
                    operation: "renew the lease",
                    after: limit,
                };
                session.meters.store_failed("renew", &error);
                next = again(&mut trouble, &error, lease, end);
            }
        }
    }
}

/// When to try again after a failure: soon, but never after the end of the lease.
fn again(trouble: &mut Trouble, error: &Error, lease: Duration, end: Instant) -> Instant {
    let pause = trouble.failed(error).min(lease / 6);
    (Instant::now() + pause).min(end)
}

/// Looks for cancellations while jobs are in hand. Never ends.
async fn listen(session: &Session) {
    let mut trouble = Trouble::new("look for cancellations");
    loop {
        sleep(CANCELLATION_POLL).await;
        if session.in_hand() == 0 {
            continue;
        }
        match within(CANCELLATION_LIMIT, session.plan.broker.cancellations(session.id)).await {
            Some(Ok(ids)) => {
                trouble.passed();
                if !ids.is_empty() {
                    session.cancel(&ids.into_iter().collect::<HashSet<_>>());
                }
            }
            // The renewal finds out by itself.
            Some(Err(Error::LeaseLost { .. })) | None => {}
            Some(Err(error)) => {
                let pause = trouble.failed(&error);
                sleep(pause).await;
            }
        }
    }
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    timeout(limit, future).await.ok()
}

/// A person who cancels a running job sees it stop within a second.
const CANCELLATION_POLL: Duration = Duration::from_millis(500);

/// A store that takes longer to answer is asked again.
const CANCELLATION_LIMIT: Duration = Duration::from_secs(5);
