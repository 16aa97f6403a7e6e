use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::timeout;

/// A program that a test started. It is killed when it is dropped, and only it: no other process is ever touched.
#[derive(Debug)]
pub struct Process {
    child: Child,
    id: u32,
    output: PathBuf,
    errors: PathBuf,
}

impl Process {
    pub(crate) fn new(child: Child, output: PathBuf, errors: PathBuf) -> Self {
        let id = child.id().unwrap();
        Self { child, id, output, errors }
    }

    /// Its number.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Sends a signal; nothing if it has ended.
    pub fn signal(&self, signal: Signal) {
        // Until it is waited for, its number cannot belong to another process.
        let running = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = running {
            kill_process(pid, signal).unwrap();
        }
    }

    /// `kill -9`, and waits for its end. Gives all that it wrote to its output.
    pub async fn kill(mut self) -> String {
        self.child.kill().await.unwrap();
        self.output()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        match timeout(Duration::from_secs(60), self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("process {} does not end; it said:\n{}", self.id, self.errors()),
        }
    }

    /// Waits for its end, which must be an orderly one.
    pub async fn ended_well(mut self) {
        let status = self.ended().await;
        assert!(status.success(), "{status}; it said:\n{}", self.errors());
    }

    /// Waits for its end, which must be an orderly one. Gives all that it wrote to its error output.
    pub async fn ended_saying(mut self) -> String {
        let status = self.ended().await;
        assert!(status.success(), "{status}; it said:\n{}", self.errors());
        self.errors()
    }

    /// Whether it has ended already.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it wrote to its output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// What it wrote to its error output so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// The most memory that it ever had, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}
