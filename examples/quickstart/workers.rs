//! The worker processes: this program, started again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use celeriac::Client;

use crate::measurements::Notebook;
use crate::{Failure, tasks};

/// What makes this program a worker: the folder to write into.
const ROLE: &str = "CELERIAC_QUICKSTART_WORKER";

pub(crate) fn folder_of_worker() -> Option<PathBuf> {
    std::env::var_os(ROLE).map(PathBuf::from)
}

/// A worker binary is not more than this. `main` reads the command line, as in `--queues high,default`.
pub(crate) fn work(folder: &Path) -> ExitCode {
    std::thread::spawn(end_with_parent);
    match (tasks::registry(), Notebook::open(folder)) {
        (Ok(registry), Ok(notebook)) => celeriac::worker().registry(registry).state(notebook).main(),
        (Err(error), _) => fail(&error),
        (_, Err(error)) => fail(&error),
    }
}

/// The other end of the standard input is the quick start. When that is killed, nobody would stop this worker.
fn end_with_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(1);
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Two workers. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Workers {
    folder: PathBuf,
    url: String,
    running: Vec<Child>,
    started: usize,
}

impl Workers {
    pub(crate) fn start(folder: &Path, url: &str) -> Result<Self, Failure> {
        let mut workers =
            Self { folder: folder.to_owned(), url: url.to_owned(), running: Vec::new(), started: 0 };
        for _ in 0..PROCESSES {
            workers.add()?;
        }
        Ok(workers)
    }

    fn add(&mut self) -> Result<(), Failure> {
        self.started += 1;
        let log = File::create(self.folder.join(format!("worker-{}.log", self.started)))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let child = Command::new(std::env::current_exe()?)
            .args(["--broker", &self.url, "--queues", "high,default"])
            // The default is for handlers that wait. These compute, so more than one a core would only be in
            // each other's way.
            .args(["--concurrency", &cores.to_string()])
            // Short, because one of the jobs kills its worker and somebody waits for the end of this example.
            .args(["--lease", "1s"])
            .env(ROLE, &self.folder)
            // Where the system leaves a memory dump of a killed worker, if it is set to make them.
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.running.push(child);
        Ok(())
    }

    /// Waits until they are ready, so that nothing else than the queue is measured.
    pub(crate) async fn until_registered(&mut self, celeriac: &Client) -> Result<(), Failure> {
        while celeriac.broker().stats().await?.workers.len() < PROCESSES {
            self.check()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub(crate) fn folder(&self) -> std::path::Display<'_> {
        self.folder.display()
    }

    /// Starts a new worker for each that was killed, as a supervisor does.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        let mut killed = 0;
        let mut failed = None;
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            // Without an exit code a signal ended it: the job that aborts its process.
            Ok(Some(status)) if status.code().is_none() => {
                killed += 1;
                false
            }
            Ok(Some(status)) => {
                failed = Some(format!("a worker ended with {status}"));
                false
            }
            Err(error) => {
                failed = Some(error.to_string());
                false
            }
        });
        if let Some(failed) = failed {
            return Err(format!("{failed}; see the logs in {}", self.folder.display()).into());
        }
        for _ in 0..killed {
            if self.started == MOST_STARTS {
                return Err(
                    format!("the workers keep dying; see the logs in {}", self.folder.display()).into()
                );
            }
            self.add()?;
        }
        Ok(())
    }

    /// Asks them to stop, and waits until they have. Returns how many were killed by a job.
    pub(crate) fn stop(mut self) -> Result<usize, Failure> {
        for child in &self.running {
            Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.running.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
            if Instant::now() > deadline {
                return Err("the workers do not stop".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(self.started - PROCESSES)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.running {
            // Both fail only for a process that has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const PROCESSES: usize = 2;

/// Two, and one for each of the three deaths; more means that something else is wrong.
const MOST_STARTS: usize = 10;
