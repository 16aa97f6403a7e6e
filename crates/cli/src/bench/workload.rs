use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use celeriac::Client;
use celeriac::core::{BulkAct, QueueName, QueueStats};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::comparison::ServerFigures;
use super::crew::{Crew, CrewReport};
use super::producer::{CALLERS, Producers, Timing, Until, Window};
use super::report::Round;
use super::series::Series;
use super::server::{Reading, Server};
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
    /// What is asked about costs; none on SQLite.
    server: Option<Server>,
    /// How often the store's counters are looked at. It bounds the error of an end, which is always late.
    look: Duration,
    /// The idle worker is looked at once, in the first round.
    idle_seen: AtomicU64,
}

impl Bench {
    pub(crate) fn new(
        client: Client,
        queue: QueueName,
        url: String,
        command: &BenchCommand,
        server: Option<Server>,
    ) -> Result<Self, Failure> {
        // A look at a server is a statement that takes its time from the others.
        let look = Duration::from_millis(if server.is_some() { 20 } else { 5 });
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
            backlog: command.backlog(),
            prefetch: command.prefetch.to_string(),
            server,
            look,
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
        let reading = self.reading().await?;
        let produced = self.producers(callers, Timing::Off).run(until, None).await?;
        let mut round = Round::new(produced.jobs, produced.seconds);
        self.take_cost(&mut round, reading, produced.jobs).await?;
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
        let round = self.drain_from(all.jobs).await?;
        if self.backlog > 0 {
            self.empty().await?;
        }
        Ok(round)
    }

    /// The same jobs twice: with little behind them, then with `--backlog` jobs behind them and as many that wait for
    /// their time.
    pub(crate) async fn backlog(&self) -> Result<Round, Failure> {
        let little = self.backlog.min(LITTLE);
        self.fill_to(self.jobs + little, little).await?;
        let small = self.drain_from(self.jobs + little).await?.jobs_per_s;
        self.fill_to(self.jobs + self.backlog, self.backlog).await?;
        let stored = self.figures().await?.ready;
        let mut round = self.drain_from(stored).await?;
        round.small_backlog_jobs_per_s = Some(small);
        round.ratio_to_small_backlog = Some(round.jobs_per_s / small.max(f64::EPSILON));
        self.empty().await?;
        Ok(round)
    }

    /// Brings the queue to so many jobs that are due, and so many that are not for a day.
    async fn fill_to(&self, ready: u64, scheduled: u64) -> Result<(), Failure> {
        let found = self.figures().await?;
        let missing = Until { jobs: ready.saturating_sub(found.ready + found.held), time: None };
        self.filling().run(missing, None).await?;
        let missing = Until { jobs: scheduled.saturating_sub(found.scheduled), time: None };
        Producers { timing: Timing::Tomorrow, ..self.filling() }.run(missing, None).await.map(drop)
    }

    /// Drains `--jobs` of `stored`.
    async fn drain_from(&self, stored: u64) -> Result<Round, Failure> {
        let before = self.figures().await?;
        let mut crew = self.crew(self.concurrency).await?;
        let cpu = process::cpu_seconds(None);
        let reading = self.reading().await?;
        let start = Instant::now();
        crew.go().await?;
        self.wait_for_done(before.done + self.jobs, &mut crew, &AtomicU64::new(0)).await?;
        let mut round = Round::new(self.jobs, start.elapsed().as_secs_f64());
        let own_cpu = difference(process::cpu_seconds(None), cpu);
        let report = crew.stop().await?;
        round.take_crew(&report, own_cpu);
        let after = self.figures().await?;
        self.account(&before, &after, &report, stored)?;
        // Until they were stopped, the workers went on with the backlog.
        round.handler_runs = Some(report.runs.saturating_sub(after.done - before.done - self.jobs));
        self.take_cost(&mut round, reading, after.done - before.done).await?;
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
            most: window(callers, self.batch) + self.backlog,
        });
        let mut crew = self.crew(None).await?;
        let cpu = process::cpu_seconds(None);
        let reading = self.reading().await?;
        let mut series = Series::start();
        let start = series.started();
        crew.go().await?;
        let producing = {
            let (producers, window) = (self.producers(callers, Timing::On), Arc::clone(&window));
            let until = Until { jobs: u64::MAX, time: Some(self.time) };
            tokio::spawn(async move { producers.run(until, Some(window)).await })
        };
        while start.elapsed() < self.time && !producing.is_finished() {
            let done = self.figures().await?.done;
            window.done.store(done, Ordering::Relaxed);
            series.note(done - before.done);
            sleep(self.look).await;
        }
        let finished = self.figures().await?.done - before.done;
        series.note(finished);
        let mut round = Round::new(finished, start.elapsed().as_secs_f64());
        (round.first_jobs_per_s, round.last_jobs_per_s) = series.first_and_last().unzip();
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
        self.take_cost(&mut round, reading, all).await?;
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
            self.idle(&crew).await?
        } else {
            (None, None)
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
        (round.idle_cpu_percent, round.idle_statements_per_s) = idle;
        self.account(&before, &self.figures().await?, &report, self.jobs + 1)?;
        Ok(round)
    }

    /// What one idle process costs: hundredths of one core, and transactions of the database a second.
    #[expect(clippy::cast_precision_loss, reason = "a few processes")]
    async fn idle(&self, crew: &Crew) -> Result<(Option<f64>, Option<f64>), Failure> {
        // A server's counters are up to a second old while it works, and settle when it does not.
        if self.server.is_some() {
            sleep(Duration::from_secs(2)).await;
        }
        let reading = self.reading().await?;
        let (before, start) = (crew.cpu_seconds(), Instant::now());
        sleep(IDLE).await;
        let cpu = difference(crew.cpu_seconds(), before);
        let each = |sum: f64| sum / start.elapsed().as_secs_f64() / self.processes as f64;
        let statements = match (self.reading().await?, reading) {
            (Some(after), Some(before)) => Some(each(after.transactions_since(&before))),
            _ => None,
        };
        Ok((cpu.map(|cpu| each(cpu) * 100.0), statements))
    }

    async fn reading(&self) -> Result<Option<Reading>, Failure> {
        match &self.server {
            Some(server) => server.read().await.map(Some),
            None => Ok(None),
        }
    }

    /// What the server did since `before`, for each of `jobs`.
    async fn take_cost(&self, round: &mut Round, before: Option<Reading>, jobs: u64) -> Result<(), Failure> {
        if let (Some(server), Some(before)) = (&self.server, before) {
            let cost = server.cost_since(&before, jobs).await?;
            round.server = Some(ServerFigures::new(cost));
        }
        Ok(())
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
            sleep(self.look).await;
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

/// How far callers may be ahead of workers: enough that workers always find full batches, few enough that the queue does
/// not grow.
pub(crate) fn window(callers: usize, batch: usize) -> u64 {
    (callers * batch * WINDOW_CALLS).max(WINDOW_JOBS) as u64
}

/// Calls of each caller.
const WINDOW_CALLS: usize = 20;
/// And never fewer jobs than these.
const WINDOW_JOBS: usize = 2_000;
/// What `backlog` compares a large one with.
const LITTLE: u64 = 10_000;
/// How long an idle worker is watched: its processor time is shown in hundredths of a second.
const IDLE: Duration = Duration::from_secs(5);
/// Nothing moves for this long: something is broken.
const STANDSTILL: Duration = Duration::from_secs(60);
