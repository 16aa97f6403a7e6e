use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use celeriac_core::{
    Broker, Error, ParameterInfo, QueueChange, TaskInfo, TaskName, WorkerId, WorkerInfo, format_duration,
};
use celeriac_metrics::WorkerMeters;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::maintenance::run_maintenance;
use crate::panic_capture;
use crate::prefetch::Prefetch;
use crate::pulse::Pulse;
use crate::registry::{Registry, RegistryError};
use crate::report::{Report, Totals};
use crate::session::{Plan, Session};
use crate::shutdown::Shutdown;
use crate::state::States;
use crate::subscription::Subscription;
use crate::supervisor::{SessionEnd, retire, run_session};
use crate::trouble::Trouble;

/// Claims jobs, runs them, and writes their verdicts back, until it is told to stop.
///
/// A worker lives through whatever happens to its store and its handlers: calls that fail are repeated with
/// growing pauses, panics are failures of their job, and a worker that was cut off for so long that its jobs
/// went to others stops its handlers, takes a new identity and goes on.
#[derive(Debug)]
pub struct Worker {
    plan: Plan,
}

/// Settings of a [`Worker`]. All have defaults.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct WorkerBuilder {
    broker: Arc<dyn Broker>,
    registry: Registry,
    states: States,
    subscription: Subscription,
    concurrency: usize,
    prefetch: Prefetch,
    grace: Duration,
    lease: Duration,
    exit_when_empty: ExitWhenEmpty,
    label: String,
    pulse: Pulse,
}

/// Whether a worker ends by itself.
///
/// With `Yes` it ends when a claim has found nothing, it has nothing in hand (verdicts written included), and
/// its queues have no job that is ready or held by any worker. Jobs that wait for a time, for another job or
/// in the bin do not hold it up, nor does what is ready in a paused queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitWhenEmpty {
    /// It waits for more; the default.
    #[default]
    No,
    /// It ends when its queues are empty.
    Yes,
}

/// Why a worker could not be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The tasks cannot be served. The text says which line to add.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A setting is out of bounds.
    #[error(transparent)]
    Setting(Error),
    /// The store refused this worker in a way that no waiting cures.
    #[error("the worker cannot start: {0}")]
    Store(#[source] Error),
    /// The system refused the thread that keeps the lease.
    #[error("the worker cannot start the thread that keeps its lease")]
    Thread(#[source] io::Error),
}

impl Worker {
    /// How many handlers run at once by default: four a core, and at least 16. Handlers mostly wait for something
    /// else, so one a core would leave the machine idle; many more would open more connections than a
    /// database likes. Handlers that compute are better served by one a core.
    pub fn default_concurrency() -> usize {
        available_parallelism().map_or(1, usize::from).saturating_mul(4).clamp(16, 1_024)
    }

    /// The most handlers at once.
    pub const MAX_CONCURRENCY: usize = 10_000;

    /// The default grace, 25 s: Kubernetes kills 30 s after its first signal, and the last five seconds are for
    /// stopping handlers and writing verdicts.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(25);

    /// The default lease, 15 s. It is renewed every 5 s, so two renewals may fail before it lapses, and the jobs of a
    /// dead worker run again within 16 s. A shorter one would mistake a busy disk for a death.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

    /// The bounds of the lease. Below, the renewals themselves would be a load; above, a crash goes
    /// unnoticed for too long.
    pub const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

    /// Starts with the two things that have no default.
    pub fn builder(broker: Arc<dyn Broker>, registry: Registry) -> WorkerBuilder {
        WorkerBuilder {
            broker,
            registry,
            states: States::default(),
            subscription: Subscription::default(),
            concurrency: Self::default_concurrency(),
            prefetch: Prefetch::default(),
            grace: Self::DEFAULT_GRACE,
            lease: Self::DEFAULT_LEASE,
            exit_when_empty: ExitWhenEmpty::default(),
            label: default_label(),
            pulse: Pulse::new(),
        }
    }

    /// Runs until `shutdown` says so, or until the queues are empty if the worker was built to end then.
    ///
    /// It declares the queues it serves and registers itself; while the store cannot be reached it tries again. Must
    /// run on a tokio runtime with time enabled. A runtime with several threads is better: on a single one
    /// a handler that blocks also blocks claiming and settling (never the lease).
    ///
    /// Synchronous handlers that are still running at the end are left behind and counted in
    /// [`Report::abandoned`]; a runtime that is dropped waits for them, one that is shut down in the
    /// background does not.
    ///
    /// If the future itself is dropped, handlers are dropped with it and the store delivers their jobs again when the
    /// lease has lapsed.
    ///
    /// # Errors
    /// [`WorkerError::Store`] if the store refuses the worker at the start for good, and
    /// [`WorkerError::Thread`].
    pub async fn run(self, shutdown: Shutdown) -> Result<Report, WorkerError> {
        panic_capture::install();
        let plan = Arc::new(self.plan);
        let totals = Arc::new(Totals::default());
        let meters = Arc::new(WorkerMeters::new());
        plan.pulse.describe(plan.queues(), plan.concurrency);
        let mut maintenance = JoinSet::new();
        let mut attitude = Attitude::Strict;
        while let Some((session, registered)) = enter(&plan, &totals, &meters, &shutdown, attitude).await? {
            tracing::info!(
                worker = %session.id,
                label = plan.label,
                queues = %plan.subscription,
                concurrency = plan.concurrency,
                prefetch = %plan.prefetch,
                tasks = plan.tasks.len(),
                lease = format_duration(plan.lease),
                store = %plan.broker,
                "worker started"
            );
            attitude = Attitude::Patient;
            if maintenance.is_empty() {
                maintenance.spawn(run_maintenance(Arc::clone(&plan.broker), Arc::clone(&meters)));
            }
            let end = run_session(session, registered, &shutdown).await?;
            if end == SessionEnd::Stopped || shutdown.is_draining() {
                break;
            }
        }
        plan.pulse.draining();
        let report = totals.lock().clone();
        tracing::info!("worker stopped: {report}");
        Ok(report)
    }
}

impl WorkerBuilder {
    /// Which queues, and how they share the handlers. Default: the queue `default`.
    pub fn subscription(mut self, subscription: Subscription) -> Self {
        self.subscription = subscription;
        self
    }

    /// How many handlers run at once, 1 to [`Worker::MAX_CONCURRENCY`]. Default:
    /// [`Worker::default_concurrency`].
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many jobs to have in hand. Default: [`Prefetch::Auto`].
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// How long running handlers may go on after [`Shutdown::drain`]. Then their tokens fire, and a second later they
    /// are dropped and their jobs released. Default: [`Worker::DEFAULT_GRACE`].
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long the worker may be silent before it is taken for dead, within [`Worker::LEASE_BOUNDS`]. Default:
    /// [`Worker::DEFAULT_LEASE`].
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Whether the worker ends when its queues are empty. Default: no.
    pub const fn exit_when_empty(mut self, exit: ExitWhenEmpty) -> Self {
        self.exit_when_empty = exit;
        self
    }

    /// What is handed to parameters of type `State<T>`. Default: nothing.
    pub fn states(mut self, states: States) -> Self {
        self.states = states;
        self
    }

    /// How people see this worker. Default: `host:pid`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Where others see how this worker is. Default: nowhere.
    pub fn pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = pulse;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// [`WorkerError::Registry`] without a task or with a missing state, [`WorkerError::Setting`] for a value
    /// out of bounds.
    pub fn build(self) -> Result<Worker, WorkerError> {
        self.registry.check(&self.states)?;
        self.registry.check_broker(&*self.broker)?;
        if !(1..=Worker::MAX_CONCURRENCY).contains(&self.concurrency) {
            return Err(WorkerError::Setting(Error::invalid(
                "concurrency",
                self.concurrency.to_string(),
                format!("allowed are 1 to {}", Worker::MAX_CONCURRENCY),
            )));
        }
        self.prefetch.check().map_err(WorkerError::Setting)?;
        let (shortest, longest) = Worker::LEASE_BOUNDS;
        if !(shortest..=longest).contains(&self.lease) {
            return Err(WorkerError::Setting(Error::invalid(
                "lease",
                format_duration(self.lease),
                format!("allowed are {} to {}", format_duration(shortest), format_duration(longest)),
            )));
        }
        let tasks: Arc<[TaskName]> = self.registry.names().cloned().collect();
        let infos = self
            .registry
            .iter()
            .map(|(definition, spec)| {
                let parameters = definition
                    .parameters
                    .iter()
                    .map(|parameter| ParameterInfo {
                        name: parameter.name.to_owned(),
                        ty: parameter.ty.to_owned(),
                    })
                    .collect();
                TaskInfo::new(spec, parameters)
            })
            .collect();
        Ok(Worker {
            plan: Plan {
                broker: self.broker,
                registry: self.registry,
                states: self.states,
                subscription: self.subscription,
                concurrency: self.concurrency,
                prefetch: self.prefetch,
                grace: self.grace,
                lease: self.lease,
                exit_when_empty: self.exit_when_empty,
                label: self.label,
                pulse: self.pulse,
                tasks,
                infos,
            },
        })
    }
}

/// What a worker makes of a refusal that no waiting cures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attitude {
    /// It has worked before: whatever is wrong now may be put right.
    Patient,
    /// It is the first start, and somebody is there to read the error.
    Strict,
}

/// Declares the queues and registers under a new id, however long it takes. `None` once a stop was asked for.
async fn enter(
    plan: &Arc<Plan>,
    totals: &Arc<Totals>,
    meters: &Arc<WorkerMeters>,
    shutdown: &Shutdown,
    attitude: Attitude,
) -> Result<Option<(Arc<Session>, Instant)>, WorkerError> {
    let mut trouble = Trouble::new("register this worker");
    while !shutdown.is_draining() {
        // A new id each time: a registration whose answer was lost may have succeeded.
        let id = WorkerId::from_uuid(Uuid::new_v4());
        let asked = Instant::now();
        let error = tokio::select! {
            answer = register(plan, id) => match answer {
                Ok(()) => {
                    trouble.passed();
                    plan.pulse.registered();
                    let session =
                        Session::new(id, Arc::clone(plan), Arc::clone(totals), Arc::clone(meters));
                    return Ok(Some((Arc::new(session), asked)));
                }
                Err(error) => error,
            },
            () = shutdown.draining() => {
                // The registration may be in the store already, and nobody would wait for its answer.
                retire(&*plan.broker, id).await;
                break;
            }
        };
        if attitude == Attitude::Strict && !error.is_transient() {
            return Err(WorkerError::Store(error));
        }
        plan.pulse.troubled(error.code());
        meters.store_failed("register", &error);
        let pause = trouble.failed(&error);
        tokio::select! {
            () = sleep(pause) => {}
            () = shutdown.draining() => {}
        }
    }
    Ok(None)
}

async fn register(plan: &Plan, id: WorkerId) -> Result<(), Error> {
    for queue in plan.subscription.names() {
        plan.broker.declare(queue.clone(), QueueChange::default()).await?;
    }
    let mut info = WorkerInfo::new(id, plan.label.clone(), plan.queues(), plan.lease);
    info.tasks = plan.infos.clone();
    info.concurrency = u32::try_from(plan.concurrency).unwrap_or(u32::MAX);
    plan.broker.register(info).await
}

/// `host:pid`.
fn default_label() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    format!("{host}:{}", std::process::id())
}
