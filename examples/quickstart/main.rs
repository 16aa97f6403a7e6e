//! Quick start: the SHA-256 of every file below a folder, each computed by a job.
//!
//! ```sh
//! cargo run --release --example quickstart            # this folder
//! cargo run --release --example quickstart -- DIR
//! ```
//!
//! One SQLite file is the queue. This process fills it; two worker processes, which are this same program started
//! again, empty it. A few jobs are made to fail, so that there is something to see in the dead-letter bin.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use celeriac::core::{QueueChange, QueueStats};
use celeriac::prelude::*;

mod files;
mod measurements;
mod progress;
mod summary;
mod tasks;
mod workers;

use files::Files;
use progress::Progress;
use summary::{Run, say};
use workers::Workers;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    if let Some(folder) = workers::folder_of_worker() {
        return workers::work(&folder);
    }
    let mut arguments = std::env::args_os().skip(1);
    let root = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    if root.as_os_str() == "--help" || root.as_os_str() == "-h" {
        say!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if arguments.next().is_some() || root.to_string_lossy().starts_with('-') {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let result =
        tokio::runtime::Runtime::new().map_err(Failure::from).and_then(|runtime| runtime.block_on(run(root)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(root: PathBuf) -> Result<(), Failure> {
    let files = Files::below(&root)?;
    let folder = tempfile::Builder::new().prefix("celeriac-quickstart-").tempdir()?.keep();
    let url = format!("sqlite:{}", folder.join("jobs.db").display());
    say!("{files}");
    say!("The queue is {url}\n");

    let celeriac = Client::connect(&url).await?;
    celeriac.broker().declare("high".parse()?, QueueChange::default()).await?;
    let mut workers = Workers::start(&folder, &url)?;
    workers.until_registered(&celeriac).await?;
    let mut progress = Progress::new();

    let started = Instant::now();
    let mut enqueued = 0;
    for batch in files.list.chunks(BATCH) {
        enqueued += celeriac.enqueue_all(batch.iter().map(tasks::digest_of)).await?.len();
        progress.show(enqueued, &Totals::read(&celeriac).await?);
    }
    let stored_after = started.elapsed();
    let totals = until_empty(&celeriac, enqueued, &mut workers, &mut progress).await?;
    let done_after = started.elapsed();
    let unreadable = totals.buried;

    progress.say("Now a few jobs that fail. One of them kills its worker, so this takes some seconds.");
    let trouble = tasks::trouble(&folder);
    enqueued += celeriac.enqueue_all(trouble).await?.len();
    let totals = until_empty(&celeriac, enqueued, &mut workers, &mut progress).await?;
    progress.end();
    let lost_workers = workers.stop()?;

    let run = Run {
        measured: measurements::read(&folder)?,
        files,
        stored_after,
        done_after,
        unreadable,
        totals,
        lost_workers,
    };
    run.check()?;
    run.print();
    run.print_sample()?;
    summary::print_bin(&celeriac).await?;
    summary::print_commands(&url, &folder);
    Ok(())
}

/// Waits until no job waits or runs, and keeps the workers alive meanwhile.
async fn until_empty(
    celeriac: &Client,
    enqueued: usize,
    workers: &mut Workers,
    progress: &mut Progress,
) -> Result<Totals, Failure> {
    loop {
        let totals = Totals::read(celeriac).await?;
        progress.show(enqueued, &totals);
        if totals.waiting == 0 {
            return Ok(totals);
        }
        if progress.stalled_for() > PATIENCE {
            return Err(format!(
                "nothing has happened for {PATIENCE:?}; see the logs in {}",
                workers.folder()
            )
            .into());
        }
        workers.check()?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The counters of all queues together.
#[derive(Debug, Default)]
struct Totals {
    waiting: u64,
    done: u64,
    retried: u64,
    redelivered: u64,
    buried: u64,
}

impl Totals {
    async fn read(celeriac: &Client) -> Result<Self, Failure> {
        let stats = celeriac.broker().stats().await?;
        let sum = |field: fn(&QueueStats) -> u64| stats.queues.iter().map(field).sum();
        Ok(Self {
            waiting: sum(|queue| queue.ready + queue.held + queue.scheduled + queue.parked),
            done: sum(|queue| queue.done),
            retried: sum(|queue| queue.retried),
            redelivered: sum(|queue| queue.redelivered),
            buried: sum(|queue| queue.buried),
        })
    }
}

const USAGE: &str = "usage: quickstart [DIR]\n\nComputes the SHA-256 of each file below DIR (default: this folder), one job a file.";

/// Jobs stored by one call. Each call waits for the disk once, whatever its size.
const BATCH: usize = 500;

/// A job takes milliseconds here, and a lost worker is noticed within seconds.
const PATIENCE: Duration = Duration::from_secs(60);
