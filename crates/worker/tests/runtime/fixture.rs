//! A store, a window to the handlers, and workers on them.

use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, Call, CheckOptions, Details, EnqueueOptions, JobId, Room, TaskName, TaskSpec};
use celeriac_testkit::{ManualClock, ReferenceBroker};
use celeriac_worker::{
    ExitWhenEmpty, Registry, Report, Shutdown, States, Worker, WorkerBuilder, WorkerError,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::probe::{LIMIT, Probe, registry};
use crate::watched_broker::WatchedBroker;

pub(crate) struct Fixture {
    /// Another process's view of the store.
    pub(crate) store: ReferenceBroker,
    /// What the worker uses.
    pub(crate) broker: Arc<WatchedBroker>,
    pub(crate) probe: Probe,
    jobs: std::cell::Cell<u32>,
}

/// A worker at work.
pub(crate) struct Running {
    pub(crate) shutdown: Shutdown,
    worker: JoinHandle<Result<Report, WorkerError>>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::on(ReferenceBroker::new())
    }

    pub(crate) fn with_clock(clock: &ManualClock) -> Self {
        Self::on(ReferenceBroker::with_clock(clock.clone()))
    }

    fn on(store: ReferenceBroker) -> Self {
        Self {
            broker: WatchedBroker::new(store.handle()),
            store,
            probe: Probe::default(),
            jobs: std::cell::Cell::new(0),
        }
    }

    /// Stores a job with the argument `key`.
    pub(crate) async fn enqueue(&self, task: &str, key: &str) -> JobId {
        self.call(task, key, "", |call| call).await
    }

    /// Stores a job with an answer to give.
    pub(crate) async fn enqueue_answer(&self, task: &str, key: &str, answer: &str) -> JobId {
        self.call(task, key, answer, |call| call).await
    }

    /// Stores a job with settings of its own.
    pub(crate) async fn call(
        &self,
        task: &str,
        key: &str,
        answer: &str,
        set: impl FnOnce(Call) -> Call,
    ) -> JobId {
        let spec = TaskSpec::new(TaskName::new(task).unwrap());
        let arguments = format!(r#"{{"key": "{key}", "answer": "{answer}"}}"#);
        let number = self.jobs.get();
        self.jobs.set(number + 1);
        let fresh = JobId::from_key("fixture", &number.to_string());
        let job = set(Call::from_json(spec, &arguments)).into_job(fresh).unwrap();
        let mut options = EnqueueOptions::default();
        options.declare_missing = true;
        self.store.enqueue(vec![job], options).await.unwrap();
        fresh
    }

    /// A builder on the watched store with all tasks.
    pub(crate) fn builder(&self) -> WorkerBuilder {
        self.builder_with(registry())
    }

    pub(crate) fn builder_with(&self, registry: Registry) -> WorkerBuilder {
        let mut states = States::default();
        states.insert(self.probe.clone());
        let broker: Arc<WatchedBroker> = Arc::clone(&self.broker);
        Worker::builder(broker, registry).states(states).label("test:1").concurrency(4)
    }

    /// Starts a worker with four handlers.
    pub(crate) fn start(&self, set: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Running {
        Running::start(set(self.builder()))
    }

    /// Runs a worker until the queues are empty.
    pub(crate) async fn run_until_empty(&self) -> Report {
        self.start(|builder| builder.exit_when_empty(ExitWhenEmpty::Yes)).report().await
    }

    pub(crate) async fn find(&self, id: JobId) -> Option<Details> {
        self.store.find(id).await.unwrap()
    }

    /// The job, which must be in this room.
    pub(crate) async fn find_in(&self, id: JobId, room: Room) -> Details {
        let details = self.find(id).await.expect("the job is gone");
        assert_eq!(details.room, room, "{details:?}");
        details
    }

    /// The store's own check finds nothing wrong.
    pub(crate) async fn check(&self) {
        let report = self.store.check(CheckOptions::default()).await.unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
    }
}

impl Running {
    pub(crate) fn start(builder: WorkerBuilder) -> Self {
        let shutdown = Shutdown::new();
        let worker = builder.build().unwrap();
        Self { worker: tokio::spawn(worker.run(shutdown.clone())), shutdown }
    }

    /// Stops the worker in order.
    pub(crate) async fn drain(self) -> Report {
        self.shutdown.drain();
        self.report().await
    }

    /// Waits for the worker's end.
    pub(crate) async fn report(self) -> Report {
        timeout(LIMIT, self.worker).await.expect("the worker did not end").unwrap().unwrap()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }
}

/// A lease that lapses within a test, and that a busy machine does not lose by itself.
pub(crate) const SHORT_LEASE: Duration = Duration::from_millis(1_500);
