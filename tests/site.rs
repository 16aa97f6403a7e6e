use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use celeriac::Client;
use celeriac::core::{
    Broker, Call, CheckOptions, Details, Filter, JobId, PageOptions, QueueStats, Room, TaskName, TaskSpec,
};
use tempfile::TempDir;
use tokio::process::Command;

use self::ledger::Entry;
use self::process::Process;

pub(crate) mod ledger;
pub(crate) mod process;

/// How long a test waits for something that must happen, on a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer.
///
/// # Panics
/// When there is none within a minute.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A store, a ledger on disk, and programs to start on them. The files go with it, and the processes too.
#[derive(Debug)]
pub struct Site {
    folder: TempDir,
    store: PathBuf,
    /// Of a store that is no file.
    url: Option<String>,
    worker: PathBuf,
    producer: PathBuf,
    started: AtomicU32,
}

impl Site {
    /// An empty folder. The store is made by the first who opens it.
    pub fn new(worker: &str, producer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("jobs.db");
        Self {
            folder,
            store,
            url: None,
            worker: worker.into(),
            producer: producer.into(),
            started: AtomicU32::new(0),
        }
    }

    /// The same with the store elsewhere: on a disk of its own.
    #[must_use]
    pub fn with_store(mut self, store: impl Into<PathBuf>) -> Self {
        self.store = store.into();
        self
    }

    /// The same on PostgreSQL, in a schema of its own on the server that all tests share.
    ///
    /// # Panics
    /// When there is no PostgreSQL; `tests/run` installs it.
    #[must_use]
    pub fn on_postgres(mut self) -> Self {
        self.url = Some(celeriac_testkit::postgres::fresh_url().unwrap());
        self
    }

    /// The same at this URL.
    #[must_use]
    pub fn at(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store's file.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// The store's address.
    pub fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("sqlite:{}", self.store.display()))
    }

    /// A client in this process.
    pub async fn client(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    /// Starts a worker with these words on its command line. Its lease is longer than any test unless they say otherwise:
    /// a short one would lapse by itself on a machine that is busy enough.
    pub fn start_worker(&self, words: &str) -> Process {
        self.start(self.worker_command(words))
    }

    /// Starts a producer; see `programs/producer.rs` for its words.
    pub fn start_producer(&self, words: &str) -> Process {
        let mut command = Command::new(&self.producer);
        command.arg(self.url()).args(words.split_whitespace());
        self.start(command)
    }

    /// A worker that is not started yet.
    pub fn worker_command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.worker);
        command.args(["--broker", &self.url()]).args(words.split_whitespace());
        if !words.contains("--lease") {
            command.args(["--lease", "10m"]);
        }
        command
    }

    /// The program that produces, for a test that starts it in its own way.
    pub fn producer(&self) -> &Path {
        &self.producer
    }

    /// Starts a program with the ledger in its environment and its output in files of the folder.
    pub fn start(&self, mut command: Command) -> Process {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let output = self.folder().join(format!("process-{number}.out"));
        let errors = self.folder().join(format!("process-{number}.err"));
        command
            .env("CELERIAC_TEST_LEDGER", self.ledger_file())
            .env_remove("CELERIAC_BROKER")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&output).unwrap())
            .stderr(std::fs::File::create(&errors).unwrap())
            .kill_on_drop(true);
        Process::new(command.spawn().unwrap(), output, errors)
    }

    fn ledger_file(&self) -> PathBuf {
        self.folder().join("ledger")
    }

    /// What handlers wrote so far.
    pub fn ledger(&self) -> Vec<Entry> {
        Entry::read_all(&self.ledger_file())
    }

    /// Waits until the ledger is as `done` wants it.
    pub async fn ledger_until(
        &self,
        what: &str,
        done: impl Fn(&[Entry]) -> bool + Send + Sync,
    ) -> Vec<Entry> {
        eventually(what, || async {
            let ledger = self.ledger();
            done(&ledger).then_some(ledger)
        })
        .await
    }
}

/// A call of a task of the test worker.
pub fn call(task: &str, arguments: &serde_json::Value) -> Call {
    Call::from_json(TaskSpec::new(TaskName::new(task).unwrap()), &arguments.to_string())
}

/// The figures of a queue.
pub async fn figures(broker: &Arc<dyn Broker>, queue: &str) -> QueueStats {
    let stats = broker.stats().await.unwrap();
    stats.queues.into_iter().find(|figures| figures.name.as_str() == queue).unwrap()
}

/// Every job of a room.
pub async fn jobs_in(broker: &Arc<dyn Broker>, room: Room) -> Vec<Details> {
    let mut page = PageOptions::default();
    page.limit = PageOptions::MAX_LIMIT;
    let mut all = Vec::new();
    loop {
        let answer = broker.list(Filter::room(room), page.clone()).await.unwrap();
        all.extend(answer.jobs);
        page.after = answer.next;
        if page.after.is_none() {
            return all;
        }
    }
}

/// Asserts that every invariant of the store holds, and that each job that was ever stored is there or was counted when
/// it went. Nothing may happen on the store meanwhile.
pub async fn sound(broker: &Arc<dyn Broker>) {
    let report = broker.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let stats = broker.stats().await.unwrap();
    let stored: u64 = stats.queues.iter().map(|queue| queue.enqueued).sum();
    let gone: u64 = stats.queues.iter().map(|queue| queue.done + queue.cancelled + queue.dropped).sum();
    assert_eq!(stored, gone + report.jobs);
}

/// Waits until a job is in the bin.
pub async fn buried(broker: &Arc<dyn Broker>, id: JobId) -> Details {
    eventually("a job in the bin", || async {
        broker.find(id).await.unwrap().filter(|details| details.room == Room::Dead)
    })
    .await
}

/// Waits until nothing is left to run: neither ready, nor held, nor scheduled.
pub async fn drained(broker: &Arc<dyn Broker>, queue: &str) -> QueueStats {
    eventually("an empty queue", || async {
        let figures = figures(broker, queue).await;
        (figures.ready + figures.held + figures.scheduled == 0).then_some(figures)
    })
    .await
}
