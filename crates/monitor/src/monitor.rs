use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use celeriac_worker::Pulse;
use tokio::runtime::Builder;
use tokio::time::interval;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::address::Reach;
use crate::exporter::Exporter;
use crate::sampler::Sampler;
use crate::server::{View, serve};

/// The listener of a worker. It ends when this is dropped.
pub struct Monitor {
    address: SocketAddr,
    sampler: Sampler,
    _stop: DropGuard,
}

/// How to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorOptions {
    /// Where. See [`read_address`](crate::read_address).
    pub address: SocketAddr,
    /// From where it may be reached. Default: this machine only; any other address is refused then.
    pub reach: Reach,
    /// For how long no claim may succeed before `/livez` says that the worker hangs. Default 60 s: longer than most
    /// fail-overs, so that an outage of the store does not restart every worker.
    pub live_within: Duration,
    /// How often the store's figures are read. Default 10 s: fresh at each scrape of the usual 15 s.
    pub sample_every: Duration,
}

/// Why a monitor could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The address could not be taken.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others than this machine could reach the address, and nobody asked for that.
    #[error(
        "{address} can be reached from other machines, and metrics have no password; use 127.0.0.1, or say that you \
         want it with --metrics-public"
    )]
    Public {
        /// Where.
        address: SocketAddr,
    },
    /// The system refused the thread.
    #[error("cannot start the thread that serves metrics")]
    Thread(#[source] io::Error),
}

impl MonitorOptions {
    /// On `address`, with defaults.
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            reach: Reach::Loopback,
            live_within: Duration::from_secs(60),
            sample_every: Duration::from_secs(10),
        }
    }

    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    /// [`MonitorError::Public`].
    pub fn check(&self) -> Result<(), MonitorError> {
        if self.reach == Reach::Loopback && !self.address.ip().is_loopback() {
            return Err(MonitorError::Public { address: self.address });
        }
        Ok(())
    }
}

impl Monitor {
    /// Listens. It answers from now on, whatever the worker behind `pulse` is doing.
    ///
    /// # Errors
    /// Any [`MonitorError`].
    pub fn start(options: MonitorOptions, exporter: Exporter, pulse: Pulse) -> Result<Self, MonitorError> {
        options.check()?;
        let listen = |source: io::Error| MonitorError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let sampler = Sampler::new(options.sample_every);
        let view = Arc::new(View {
            exporter: exporter.clone(),
            pulse,
            latest: Arc::clone(&sampler.latest),
            live_within: options.live_within,
            sample_every: options.sample_every,
        });
        let runtime = Builder::new_current_thread().enable_all().build().map_err(MonitorError::Thread)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        thread::Builder::new()
            .name("celeriac-monitor".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, view) => {}
                        () = keep_up(exporter) => {}
                        () = stopped.cancelled() => {}
                    }
                });
            })
            .map_err(MonitorError::Thread)?;
        tracing::info!("metrics and health on http://{address}/");
        Ok(Self { address, sampler, _stop: stop.drop_guard() })
    }

    /// Where it listens; with the port that the system chose, if 0 was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What reads the store's figures for it. Spawn its [`run`](Sampler::run) once the broker is open.
    pub fn sampler(&self) -> Sampler {
        self.sampler.clone()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monitor({})", self.address)
    }
}

/// Never ends.
async fn keep_up(exporter: Exporter) {
    let mut ticks = interval(UPKEEP);
    loop {
        ticks.tick().await;
        exporter.upkeep();
    }
}

/// A busy worker records some hundred thousand values in this time.
const UPKEEP: Duration = Duration::from_secs(5);
