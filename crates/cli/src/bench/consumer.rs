//! What runs inside a worker process of the benchmark.
//!
//! The process says `ready` when it is connected, starts to claim on `go`, stops on `stop` (or when its input
//! ends, so that it does not outlive its parent), and says what it did in one line of JSON.

use std::io::{self, BufRead, Write};

use celeriac::{Prefetch, Registry, Shutdown, States, Subscription, Worker};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::job::{self, Recorder, no_op};
use super::process;
use crate::failure::{Exit, Failure};
use crate::store::{Missing, Store};

/// The worker process that `bench` starts.
#[derive(Debug, Args)]
pub(crate) struct ConsumerCommand {
    /// Handlers at once; a worker's default if it is not given.
    #[arg(long)]
    concurrency: Option<usize>,
    /// As of a worker.
    #[arg(long, default_value = "auto")]
    prefetch: String,
}

/// What a worker process did.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ConsumerReport {
    /// Handlers started.
    pub(crate) runs: u64,
    /// Verdicts `done` that the store took.
    pub(crate) done: u64,
    /// Waiting times in microseconds, with how often each was seen.
    pub(crate) waits: Vec<(u64, u64)>,
    pub(crate) peak_rss_mib: Option<f64>,
    pub(crate) cpu_seconds: Option<f64>,
}

/// Serves the benchmark's queue as its parent says.
pub(crate) async fn consume(command: ConsumerCommand, store: &Store) -> Result<Exit, Failure> {
    let mut commands = commands();
    let broker = store.open(Missing::Refuse).await?;
    let mut states = States::default();
    states.insert(Recorder::new()?);
    let recorder =
        states.get::<Recorder>().ok_or_else(|| Failure::failed("bench", "the recorder was just put in"))?;
    let registry = Registry::new()
        .with(no_op::definition())
        .map_err(|error| Failure::failed("bench", error.to_string()))?;
    let mut builder = Worker::builder(broker, registry)
        .subscription(job::queue()?.as_str().parse::<Subscription>().map_err(worker_failure)?)
        .prefetch(command.prefetch.parse::<Prefetch>().map_err(worker_failure)?)
        .states(states);
    if let Some(concurrency) = command.concurrency {
        builder = builder.concurrency(concurrency);
    }
    let worker = builder.build().map_err(worker_failure)?;
    say("ready")?;
    if commands.recv().await.as_deref() != Some("go") {
        return Ok(Exit::Done);
    }
    let shutdown = Shutdown::new();
    let stopper = shutdown.clone();
    tokio::spawn(async move {
        // Any further word, and the end of the input, mean the end.
        commands.recv().await;
        stopper.drain();
    });
    let report = worker.run(shutdown).await.map_err(worker_failure)?;
    let report = ConsumerReport {
        runs: recorder.runs(),
        done: report.done,
        waits: recorder.waits(),
        peak_rss_mib: process::peak_rss_mib(None),
        cpu_seconds: process::cpu_seconds(None),
    };
    let line = serde_json::to_string(&report)
        .map_err(|error| Failure::failed("bench", format!("cannot write the report: {error}")))?;
    say(&line)?;
    Ok(Exit::Done)
}

/// Lines of the standard input. A thread of its own reads them: an asynchronous read of it cannot be given up,
/// and would hold the process at its end.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

fn worker_failure(error: impl std::fmt::Display) -> Failure {
    Failure::failed("worker", error.to_string())
}
