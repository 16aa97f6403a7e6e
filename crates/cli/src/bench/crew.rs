use std::process::Stdio;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::consumer::ConsumerReport;
use super::{job, process};
use crate::failure::Failure;

/// Worker processes that are connected and wait for the word.
#[derive(Debug)]
pub(crate) struct Crew(Vec<Member>);

#[derive(Debug)]
struct Member {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What the processes of a crew did together.
#[derive(Debug)]
pub(crate) struct CrewReport {
    pub(crate) runs: u64,
    pub(crate) done: u64,
    pub(crate) waits: Histogram<u64>,
    /// Of the largest.
    pub(crate) peak_rss_mib: Option<f64>,
    pub(crate) cpu_seconds: Option<f64>,
}

impl Crew {
    /// Starts `processes` workers and returns when all are connected. None claims before [`Crew::go`].
    pub(crate) async fn start(
        processes: usize,
        url: &str,
        concurrency: Option<usize>,
        prefetch: &str,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed("bench", format!("cannot find this program: {error}")))?;
        let mut members = Vec::with_capacity(processes);
        for _ in 0..processes {
            let mut command = Command::new(&program);
            // In the environment, as a URL may hold a password and the command line is for all to see.
            command.env("CELERIAC_BROKER", url).arg("bench-consumer").arg("--prefetch").arg(prefetch);
            if let Some(concurrency) = concurrency {
                command.arg("--concurrency").arg(concurrency.to_string());
            }
            members.push(Member::start(&mut command)?);
        }
        let mut crew = Self(members);
        for member in &mut crew.0 {
            let line = member.read().await?;
            if line != "ready" {
                return Err(Failure::failed("bench", format!("a worker process said {line:?}")));
            }
        }
        Ok(crew)
    }

    /// Lets all of them claim.
    pub(crate) async fn go(&mut self) -> Result<(), Failure> {
        for member in &mut self.0 {
            member.say("go").await?;
        }
        Ok(())
    }

    /// Processor time of all processes so far.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.0.iter().map(|member| process::cpu_seconds(Some(member.child.id()?))).sum()
    }

    /// Whether all processes are running.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for member in &mut self.0 {
            if let Ok(Some(status)) = member.child.try_wait() {
                return Err(Failure::failed("bench", format!("a worker process ended early: {status}")));
            }
        }
        Ok(())
    }

    /// Stops them in order and collects what they did.
    pub(crate) async fn stop(mut self) -> Result<CrewReport, Failure> {
        for member in &mut self.0 {
            member.say("stop").await?;
        }
        let mut whole =
            CrewReport { runs: 0, done: 0, waits: job::waits()?, peak_rss_mib: None, cpu_seconds: None };
        for mut member in self.0 {
            let line = member.read().await?;
            let report: ConsumerReport = serde_json::from_str(&line).map_err(|error| {
                Failure::failed("bench", format!("a worker process said {line:?}: {error}"))
            })?;
            whole.add(&report);
            let ended = timeout(PATIENCE, member.child.wait()).await;
            if !matches!(ended, Ok(Ok(status)) if status.success()) {
                return Err(Failure::failed("bench", "a worker process did not end well"));
            }
        }
        Ok(whole)
    }
}

impl Member {
    fn start(command: &mut Command) -> Result<Self, Failure> {
        let refuse =
            |problem: String| Failure::failed("bench", format!("cannot start a worker process: {problem}"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| refuse(error.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(refuse("it has no pipes".to_owned()));
        };
        Ok(Self { child, input, lines: BufReader::new(output).lines() })
    }

    async fn say(&mut self, word: &str) -> Result<(), Failure> {
        let line = format!("{word}\n");
        let sent = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.flush().await
        };
        sent.await.map_err(|error| Failure::failed("bench", format!("a worker process is gone: {error}")))
    }

    async fn read(&mut self) -> Result<String, Failure> {
        match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err(Failure::failed("bench", "a worker process ended early; see above")),
            Ok(Err(error)) => {
                Err(Failure::failed("bench", format!("a worker process cannot be read: {error}")))
            }
            Err(_) => Err(Failure::failed("bench", "a worker process does not answer")),
        }
    }
}

impl CrewReport {
    fn add(&mut self, report: &ConsumerReport) {
        self.runs += report.runs;
        self.done += report.done;
        for (value, count) in &report.waits {
            self.waits.saturating_record_n(*value, *count);
        }
        self.peak_rss_mib = match (self.peak_rss_mib, report.peak_rss_mib) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        self.cpu_seconds = match (self.cpu_seconds, report.cpu_seconds) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }
}

/// How long a worker process may take to connect, to stop or to end. A worker's own grace is shorter.
const PATIENCE: Duration = Duration::from_secs(60);
