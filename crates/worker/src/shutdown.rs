use tokio_util::sync::CancellationToken;

/// Stops a worker from outside. Clones stop the same worker.
///
/// Both steps may be asked for at any time and any number of times, also before the worker runs.
///
/// ```
/// # use celeriac_worker::Shutdown;
/// let shutdown = Shutdown::new();
/// let handle = shutdown.clone();
/// // tokio::spawn(worker.run(shutdown)); …
/// handle.drain(); // on the first signal
/// handle.now();   // on the second
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    now: CancellationToken,
}

impl Shutdown {
    /// Nothing is asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stop in order: claim no more, release at once what has not started, let running handlers finish within
    /// the grace, settle everything.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Stop at once: the tokens of running handlers fire, and what has not ended a moment later is dropped and
    /// released.
    pub fn now(&self) {
        self.now.cancel();
        self.drain.cancel();
    }

    /// Whether a stop was asked for.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Waits until a stop is asked for.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until an immediate stop is asked for.
    pub(crate) async fn stopping(&self) {
        self.now.cancelled().await;
    }
}
