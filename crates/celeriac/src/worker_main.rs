use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, Error, Result};
use celeriac_monitor::{Exporter, Monitor, MonitorOptions, Reach};
use celeriac_worker::{ExitWhenEmpty, Pulse, Registry, Shutdown, StateKey, States, Worker, WorkerError};
use clap::error::ErrorKind;
use tokio::task::JoinSet;
use tracing_subscriber::EnvFilter;

use crate::client::Client;
use crate::connect::{check_url, connect_broker};
use crate::task_list::TaskList;
use crate::worker_options::{Command, WorkerOptions};

/// The start of a worker program; three lines make one:
///
/// ```no_run
/// // use my_tasks as _; // the crate with the tasks, if they are in another
/// fn main() -> std::process::ExitCode {
///     celeriac::worker().main()
/// }
/// ```
///
/// It runs every task of the program, and reads its settings from the command line: `worker --help` lists them.
pub fn worker() -> WorkerMain {
    WorkerMain { states: States::default(), registry: None }
}

/// A worker program in the making: see [`worker`].
#[derive(Debug)]
#[must_use = "nothing runs before `main` or `run` is called"]
pub struct WorkerMain {
    states: States,
    /// `None`: every task of the program.
    registry: Option<Registry>,
}

impl WorkerMain {
    /// Gives handlers the value for their parameters of type `State<T>`. One value for each type; a later one
    /// replaces the earlier.
    ///
    /// The worker's own [`Client`] is always given: a handler that enqueues further jobs takes a `State<Client>`.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// Runs these tasks only, instead of all that are in the program.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Reads the command line, makes a runtime and runs until the work is over or a signal comes.
    ///
    /// On SIGTERM or Ctrl-C it stops in order: running handlers may finish within the grace, what was not
    /// started goes back. On a second it stops at once, on a third it only exits.
    ///
    /// The exit code is 0 after an orderly end, 1 after a failure, 2 for a wrong command line. Logs and errors
    /// go to the error output.
    pub fn main(self) -> ExitCode {
        self.main_with(std::env::args_os())
    }

    /// As [`WorkerMain::main`], with this command line; the first word is the program's name.
    pub fn main_with(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        if tokio::runtime::Handle::try_current().is_ok() {
            return failed("main() makes a runtime, but was called in one; write worker().run().await there");
        }
        let options = match self.prepare(words) {
            Ok(options) => options,
            Err(exit) => return exit,
        };
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&format!("the runtime cannot be started: {error}")),
        };
        let exit = runtime.block_on(self.serve(options));
        // A synchronous handler that nothing can stop must not keep the process: its job is released or will be
        // delivered again.
        runtime.shutdown_background();
        exit
    }

    /// As [`WorkerMain::main`], in the runtime of the caller: for states that are made with `await`. When that runtime
    /// is dropped it waits for synchronous handlers that are still running.
    ///
    /// ```no_run
    /// # struct Pool;
    /// # impl Pool { async fn connect() -> Pool { Pool } }
    /// #[tokio::main]
    /// async fn main() -> std::process::ExitCode {
    ///     celeriac::worker().state(Pool::connect().await).run().await
    /// }
    /// ```
    pub async fn run(self) -> ExitCode {
        match self.prepare(std::env::args_os()) {
            Ok(options) => self.serve(options).await,
            Err(exit) => exit,
        }
    }

    /// Everything that needs no store: the command line, the sub-commands, the tasks and their states.
    fn prepare(
        &self,
        words: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> std::result::Result<Prepared, ExitCode> {
        let options = WorkerOptions::parse(words).map_err(|error| {
            // The pipe may be closed, as in `worker --help | head -1`.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
        })?;
        let registry = match &self.registry {
            Some(registry) => registry.clone(),
            None => Registry::collect().map_err(|error| failed(&error.to_string()))?,
        };
        if let Some(Command::Tasks { json }) = options.command {
            return Err(list_tasks(&registry, json));
        }
        let usage = |kind: ErrorKind, text: &str| {
            let _ = WorkerOptions::complaint(kind, text).print();
            ExitCode::from(USAGE)
        };
        let Some(url) = options.broker.clone().filter(|url| !url.is_empty()) else {
            return Err(usage(
                ErrorKind::MissingRequiredArgument,
                "no broker is given; name it with --broker or in the variable CELERIAC_BROKER, for example \
                 --broker sqlite:jobs.db",
            ));
        };
        let filter = EnvFilter::builder().parse(&options.log).map_err(|error| {
            usage(
                ErrorKind::ValueValidation,
                &format!(
                    "log filter {:?}: {error}; write a level such as info, or one for each part such as \
                     warn,my_tasks=debug",
                    options.log
                ),
            )
        })?;
        check_url(&url).map_err(|error| failed(&error.full()))?;
        registry
            .check_given(|key| key == StateKey::of::<Client>() || self.states.contains(key))
            .map_err(|error| failed(&error.to_string()))?;
        let monitor = options.metrics.map(|address| {
            let mut monitor = MonitorOptions::new(address);
            if options.metrics_public {
                monitor.reach = Reach::Anywhere;
            }
            monitor.live_within = options.live_within;
            monitor.sample_every = options.metrics_sample;
            monitor
        });
        if let Some(Err(error)) = monitor.as_ref().map(MonitorOptions::check) {
            return Err(usage(ErrorKind::ValueValidation, &error.to_string()));
        }
        Ok(Prepared { options, registry, url, filter, monitor })
    }

    async fn serve(self, prepared: Prepared) -> ExitCode {
        let Prepared { options, registry, url, filter, monitor } = prepared;
        // A program that has its own subscriber keeps it.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(stderr)
            .with_ansi(stderr().is_terminal())
            .try_init();
        let shutdown = Shutdown::new();
        if let Err(error) = follow_signals(shutdown.clone()) {
            return failed(&format!("signals cannot be received: {error}"));
        }
        let pulse = Pulse::new();
        // Before everything that records, and before the store is there: its absence is what others ask about.
        let monitor = match monitor.map(|options| start_monitor(options, &pulse)).transpose() {
            Ok(monitor) => monitor,
            Err(text) => return failed(&text),
        };
        let broker = match open(&shutdown, || connect_broker(&url)).await {
            Ok(Some(broker)) => broker,
            Ok(None) => return ExitCode::SUCCESS,
            Err(error) => return failed(&error.full()),
        };
        let mut sampling = JoinSet::new();
        if let Some(monitor) = &monitor {
            sampling.spawn(monitor.sampler().run(Arc::clone(&broker)));
        }
        let mut states = self.states;
        if !states.contains(StateKey::of::<Client>()) {
            states.insert(Client::new(Arc::clone(&broker)));
        }
        let mut builder = Worker::builder(broker, registry)
            .subscription(options.queues)
            .prefetch(options.prefetch)
            .grace(options.grace)
            .lease(options.lease)
            .pulse(pulse)
            .states(states);
        if let Some(concurrency) = options.concurrency {
            builder = builder.concurrency(concurrency);
        }
        if options.exit_when_empty {
            builder = builder.exit_when_empty(ExitWhenEmpty::Yes);
        }
        if let Some(label) = options.label {
            builder = builder.label(label);
        }
        let ended = match builder.build() {
            Ok(worker) => worker.run(shutdown).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(_) => ExitCode::SUCCESS,
            Err(WorkerError::Store(error)) => failed(&format!("the worker cannot start: {}", error.full())),
            Err(error) => failed(&with_causes(&error)),
        }
    }
}

fn start_monitor(options: MonitorOptions, pulse: &Pulse) -> std::result::Result<Monitor, String> {
    let exporter = Exporter::install().map_err(|error| error.to_string())?;
    Monitor::start(options, exporter, pulse.clone()).map_err(|error| with_causes(&error))
}

/// A command line that can be served.
struct Prepared {
    options: WorkerOptions,
    registry: Registry,
    url: String,
    filter: EnvFilter,
    monitor: Option<MonitorOptions>,
}

/// The exit code for a wrong command line.
const USAGE: u8 = 2;

/// Pauses between attempts to open the store grow to this: a store that comes back is noticed within seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Opens the broker, however long it takes to become available. `None` once a stop was asked for.
async fn open<F: Future<Output = Result<Arc<dyn Broker>>>>(
    shutdown: &Shutdown,
    connect: impl Fn() -> F,
) -> Result<Option<Arc<dyn Broker>>> {
    let mut pause = Duration::from_millis(100);
    let mut reported = None;
    loop {
        let error: Error = tokio::select! {
            opened = connect() => match opened {
                Ok(broker) => {
                    if reported.is_some() {
                        tracing::info!("the store is available");
                    }
                    return Ok(Some(broker));
                }
                Err(error) => error,
            },
            () = shutdown.draining() => return Ok(None),
        };
        if !error.is_transient() {
            return Err(error);
        }
        // Once for each kind of trouble, not once for each attempt.
        if reported != Some(error.code()) {
            tracing::warn!(code = %error.code(), "{}; trying again", error.full());
            reported = Some(error.code());
        }
        // Spread, so that workers that failed together do not come back together.
        let spread = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        tokio::select! {
            () = tokio::time::sleep(spread) => {}
            () = shutdown.draining() => return Ok(None),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The first signal asks for an orderly stop, the second for one at once; the third ends the process.
fn follow_signals(shutdown: Shutdown) -> std::io::Result<()> {
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        let signal = signals.next().await;
        tracing::info!(
            "{signal}: no more jobs are taken, running ones may finish; a second signal stops at once"
        );
        shutdown.drain();
        let signal = signals.next().await;
        tracing::warn!("{signal} again: running handlers are stopped");
        shutdown.now();
        let signal = signals.next().await;
        tracing::error!(
            "{signal} for the third time: exit without settling; the store delivers the jobs again"
        );
        std::process::exit(1);
    });
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // Without a handler there is no orderly stop, but everything else works.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}

fn list_tasks(registry: &Registry, json: bool) -> ExitCode {
    if registry.is_empty() {
        return failed(&celeriac_worker::RegistryError::Empty.to_string());
    }
    let list = TaskList::new(registry);
    let text = if json { list.json() } else { list.text() };
    // The pipe may be closed, as in `worker tasks | head -1`.
    let _ = stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn failed(text: &str) -> ExitCode {
    let _ = writeln!(stderr(), "error: {text}");
    ExitCode::from(1)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The `main` of a worker program whose tasks are in other crates:
///
/// ```
/// # mod my_tasks {}
/// # mod more_tasks {}
/// celeriac::worker_main!(my_tasks, more_tasks);
/// ```
///
/// Naming the crates is what links them: a dependency that is never named is left out by the compiler, and its
/// tasks with it. A program with states writes `use my_tasks as _;` and a `main` of its own with [`worker`].
#[macro_export]
macro_rules! worker_main {
    ($($tasks:ident),* $(,)?) => {
        $(use $tasks as _;)*

        fn main() -> ::std::process::ExitCode {
            $crate::worker().main()
        }
    };
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use celeriac_testkit::ReferenceBroker;

    use super::*;

    fn busy() -> Error {
        Error::Unavailable {
            store: "sqlite:jobs.db".to_owned(),
            operation: "open the store",
            source: "database is locked".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_busy_is_waited_for() {
        let left = Cell::new(20);
        let shutdown = Shutdown::new();
        let broker = open(&shutdown, || async {
            left.set(left.get() - 1);
            if left.get() > 0 { Err(busy()) } else { Ok(Arc::new(ReferenceBroker::new()) as Arc<dyn Broker>) }
        });
        assert!(broker.await.unwrap().is_some());
        assert_eq!(left.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait() {
        let shutdown = Shutdown::new();
        let tries = Cell::new(0);
        let opened = open(&shutdown, || async {
            tries.set(tries.get() + 1);
            if tries.get() == 3 {
                shutdown.drain();
            }
            Err(busy())
        });
        assert!(opened.await.unwrap().is_none());
        assert_eq!(tries.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_waiting_cures_is_an_error_at_once() {
        let newer = || Error::SchemaTooNew { store: "sqlite:jobs.db".to_owned(), found: 9, supported: 1 };
        let error = open(&Shutdown::new(), || async { Err(newer()) }).await.unwrap_err();
        assert_eq!(error.full(), newer().full());
    }
}
