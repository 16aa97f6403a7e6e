use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac::Client;
use celeriac::core::{BulkAct, QueueName, QueueStats};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::crew::{Crew, CrewReport};
use super::producer::{Producers, Timing, Until, Window};
use super::report::Round;
use super::{BenchCommand, job, process};
use crate::failure::Failure;
use crate::queues::{find, purge_waiting};

/// One store under measurement. Each function below is one round of a workload, and leaves the queue empty.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) queue: QueueName,
    url: String,
    jobs: u64,
    text: Arc<str>,
    processes: usize,
    concurrency: Option<usize>,
    batch: usize,
    time: Duration,
    backlog: u64,
    prefetch: String,
    /// The idle worker is looked at once, in the first round.
    idle_seen: AtomicU64,
}

impl Bench {
    pub(crate) fn new(
        client: Client,
        queue: QueueName,
        url: String,
        command: &BenchCommand,
    ) -> Result<Self, Failure> {
        Ok(Self {
            client,
            queue,
            url,
            jobs: command.jobs(),
            text: job::text(command.payload).into(),
            processes: command.processes,
            concurrency: command.concurrency,
            batch: command.batch,
            time: command.duration(),
            backlog: command.backlog,
            prefetch: command.prefetch.to_string(),
            idle_seen: AtomicU64::new(0),
        })
    }

    pub(crate) async fn enqueue(&self) -> Result<Round, Failure> {
        let callers = self.concurrency.unwrap_or(CALLERS);
        let until = Until { jobs: self.jobs, time: Some(self.time) };
        let single = if self.batch == 1 && callers > 1 {
            // One caller is slow and steady; a part of the time is enough.
            let until = Until { jobs: self.jobs, time: Some(self.time.min(Duration::from_secs(3))) };
            let produced = self.producers(1, Timing::Off).run(until, None).await?;
            self.empty().await?;
            Some(Round::new(produced.jobs, produced.seconds).jobs_per_s)
        } else {
            None
        };
        let cpu = process::cpu_seconds(None);
        let produced = self.producers(callers, Timing::Off).run(until, None).await?;
        let mut round = Round::new(produced.jobs, produced.seconds);
        round.cpu_seconds = difference(process::cpu_seconds(None), cpu);
        round.peak_rss_mib = process::peak_rss_mib(None);
        round.percentiles(&produced.calls);
        round.single_caller_jobs_per_s = single;
        round.ratio_to_single_caller = single.map(|single| round.jobs_per_s / single.max(f64::EPSILON));
        let stored = self.figures().await?.ready;
        if stored != produced.jobs {
            return Err(Failure::failed(
                "bench",
                format!("{} jobs were confirmed and {stored} are there", produced.jobs),
            ));
        }
        self.empty().await?;
        Ok(round)
    }

    pub(crate) async fn drain(&self) -> Result<Round, Failure> {
        let all = Until { jobs: self.jobs + self.backlog, time: None };
        self.filling().run(all, None).await?;
        let before = self.figures().await?;
        let mut crew = self.crew(self.concurrency).await?;
        let cpu = process::cpu_seconds(None);
        let start = Instant::now();
        crew.go().await?;
        self.wait_for_done(before.done + self.jobs, &mut crew, &AtomicU64::new(0)).await?;
        let mut round = Round::new(self.jobs, start.elapsed().as_secs_f64());
        let own_cpu = difference(process::cpu_seconds(None), cpu);
        let report = crew.stop().await?;
        round.take_crew(&report, own_cpu);
        let after = self.figures().await?;
        self.account(&before, &after, &report, all.jobs)?;
        // Until they were stopped, the workers went on with the backlog.
        round.handler_runs = Some(report.runs.saturating_sub(after.done - before.done - self.jobs));
        if self.backlog > 0 {
            self.empty().await?;
        }
        Ok(round)
    }

    pub(crate) async fn steady(&self) -> Result<Round, Failure> {
        let waiting = Until { jobs: self.backlog, time: None };
        self.filling().run(waiting, None).await?;
        let before = self.figures().await?;
        let callers = self.concurrency.unwrap_or(CALLERS);
        let window = Arc::new(Window {
            stored: AtomicU64::new(before.done),
            done: AtomicU64::new(before.done),
            most: (callers * self.batch * WINDOW_CALLS).max(WINDOW_JOBS) as u64 + self.backlog,
        });
        let mut crew = self.crew(None).await?;
        let cpu = process::cpu_seconds(None);
        let start = Instant::now();
        crew.go().await?;
        let producing = {
            let (producers, window) = (self.producers(callers, Timing::On), Arc::clone(&window));
            let until = Until { jobs: u64::MAX, time: Some(self.time) };
            tokio::spawn(async move { producers.run(until, Some(window)).await })
        };
        while start.elapsed() < self.time && !producing.is_finished() {
            window.done.store(self.figures().await?.done, Ordering::Relaxed);
            sleep(LOOK).await;
        }
        let finished = self.figures().await?.done - before.done;
        let mut round = Round::new(finished, start.elapsed().as_secs_f64());
        let own_cpu = difference(process::cpu_seconds(None), cpu);
        let produced = producing
            .await
            .map_err(|error| Failure::failed("bench", format!("the callers failed: {error}")))??;
        let all = produced.jobs + self.backlog;
        self.wait_for_done(before.done + all, &mut crew, &window.done).await?;
        let report = crew.stop().await?;
        round.percentiles(&report.waits);
        round.take_crew(&report, own_cpu);
        // The runs after the time was over are in the crew's count.
        round.handler_runs = Some(report.runs.saturating_sub(all - finished));
        self.account(&before, &self.figures().await?, &report, all)?;
        Ok(round)
    }

    pub(crate) async fn latency(&self) -> Result<Round, Failure> {
        let before = self.figures().await?;
        let mut crew = self.crew(self.concurrency).await?;
        crew.go().await?;
        // The first job tells that the workers are there.
        self.client.enqueue(job::plain_call(0, &self.text)).await?;
        let seen = AtomicU64::new(0);
        self.wait_for_done(before.done + 1, &mut crew, &seen).await?;
        let idle = if self.idle_seen.fetch_add(1, Ordering::Relaxed) == 0 {
            self.idle_cpu_percent(&crew).await
        } else {
            None
        };
        let cpu = process::cpu_seconds(None);
        let start = Instant::now();
        let mut ticks = interval(Duration::from_millis(20));
        // A late tick must not be followed by a burst: each job comes to an idle system.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0..self.jobs {
            ticks.tick().await;
            self.client.enqueue(job::timed_call(number, &self.text)).await?;
        }
        self.wait_for_done(before.done + 1 + self.jobs, &mut crew, &seen).await?;
        let mut round = Round::new(self.jobs, start.elapsed().as_secs_f64());
        let own_cpu = difference(process::cpu_seconds(None), cpu);
        let report = crew.stop().await?;
        round.percentiles(&report.waits);
        round.take_crew(&report, own_cpu);
        round.handler_runs = report.runs.checked_sub(1);
        round.idle_cpu_percent = idle;
        self.account(&before, &self.figures().await?, &report, self.jobs + 1)?;
        Ok(round)
    }

    /// Of one process, in hundredths of one core.
    #[expect(clippy::cast_precision_loss, reason = "a few processes")]
    async fn idle_cpu_percent(&self, crew: &Crew) -> Option<f64> {
        let (before, start) = (crew.cpu_seconds(), Instant::now());
        sleep(IDLE).await;
        let used = difference(crew.cpu_seconds(), before)?;
        Some(used / start.elapsed().as_secs_f64() * 100.0 / self.processes as f64)
    }

    async fn crew(&self, concurrency: Option<usize>) -> Result<Crew, Failure> {
        Crew::start(self.processes, &self.url, concurrency, &self.prefetch).await
    }

    fn producers(&self, callers: usize, timing: Timing) -> Producers {
        Producers {
            client: self.client.clone(),
            callers,
            batch: self.batch,
            text: Arc::clone(&self.text),
            timing,
        }
    }

    /// Callers that fill the queue as fast as they can; that is not measured.
    fn filling(&self) -> Producers {
        Producers { batch: 1_000, ..self.producers(2, Timing::Off) }
    }

    async fn figures(&self) -> Result<QueueStats, Failure> {
        let stats = self.client.broker().stats().await?;
        find(&stats.queues, &self.queue).cloned()
    }

    /// Returns when the queue counts `target` finished jobs. `seen` is kept up to date meanwhile.
    async fn wait_for_done(&self, target: u64, crew: &mut Crew, seen: &AtomicU64) -> Result<(), Failure> {
        let mut progress = Instant::now();
        let mut last = 0;
        loop {
            let done = self.figures().await?.done;
            seen.store(done, Ordering::Relaxed);
            if done >= target {
                return Ok(());
            }
            if done > last {
                (last, progress) = (done, Instant::now());
            }
            if progress.elapsed() > STANDSTILL {
                return Err(Failure::failed(
                    "bench",
                    format!("{} jobs are not finished, and nothing moved for a minute", target - done),
                ));
            }
            crew.check()?;
            sleep(LOOK).await;
        }
    }

    /// Every job was finished once in the store's books, and nothing is left of those that were to be done.
    fn account(
        &self,
        before: &QueueStats,
        after: &QueueStats,
        report: &CrewReport,
        stored: u64,
    ) -> Result<(), Failure> {
        let done = after.done - before.done;
        let left = after.ready + after.held;
        let others = (after.retried + after.buried) - (before.retried + before.buried);
        if done + left == stored && report.done == done && others == 0 {
            return Ok(());
        }
        Err(Failure::failed(
            "bench",
            format!(
                "the books do not balance: {stored} stored, {done} done, {left} left, {others} failed; the workers \
                 say {} done in {} runs",
                report.done, report.runs
            ),
        ))
    }

    async fn empty(&self) -> Result<(), Failure> {
        purge_waiting(&**self.client.broker(), &self.queue, BulkAct::Purge).await?;
        Ok(())
    }
}

impl Round {
    fn take_crew(&mut self, report: &CrewReport, own_cpu: Option<f64>) {
        self.handler_runs = Some(report.runs);
        self.peak_rss_mib = report.peak_rss_mib;
        self.cpu_seconds = match (report.cpu_seconds, own_cpu) {
            (Some(crew), Some(own)) => Some(crew + own),
            (crew, own) => crew.or(own),
        };
    }
}

fn difference(after: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}

/// Callers at once, unless the command says otherwise.
const CALLERS: usize = 4;
/// How many calls of each caller may wait for workers in `steady`, and at least how many jobs: enough that
/// workers always find full batches, few enough that the queue does not grow.
const WINDOW_CALLS: usize = 20;
const WINDOW_JOBS: usize = 2_000;
/// How often the store's counters are looked at. It bounds the error of an end, which is always late.
const LOOK: Duration = Duration::from_millis(5);
/// How long an idle worker is watched: its processor time is shown in hundredths of a second.
const IDLE: Duration = Duration::from_secs(5);
/// Nothing moves for this long: something is broken.
const STANDSTILL: Duration = Duration::from_secs(60);
