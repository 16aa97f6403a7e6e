use serde::Serialize;

use hdrhistogram::Histogram;

use super::comparison::{ServerFigures, UsualFigures};
use super::floor::Rate;
use super::usual::UsualRate;
use super::{BenchCommand, Workload};
use crate::failure::Failure;
use crate::output::Output;
use crate::store::Store;
use crate::table::{Align, Cell, Table, grouped};

/// What a run of the benchmark found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    workload: &'static str,
    engine: String,
    /// The settings of the run.
    payload_bytes: usize,
    batch: usize,
    concurrency: Option<usize>,
    processes: usize,
    backlog: u64,
    prefetch: String,
    /// Every round, in the order in which they were run.
    pub(crate) rounds: Vec<Round>,
}

/// The figures of one round, or the medians of all. What does not apply is null.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Round {
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) jobs_per_s: f64,
    floor_jobs_per_s: f64,
    ratio_to_floor: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Of the largest worker process; of this process where there is none.
    pub(crate) peak_rss_mib: Option<f64>,
    /// Of this process while the clock ran, and of the worker processes from start to end.
    pub(crate) cpu_seconds: Option<f64>,
    /// Handlers started; more than `jobs` means that some ran twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handler_runs: Option<u64>,
    /// enqueue with --batch 1: the rate of one caller, and how many times faster all of them are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) single_caller_jobs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_single_caller: Option<f64>,
    /// latency: the median of a durable commit of one row.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_p50_ms: Option<f64>,
    /// latency: processor time of an idle worker process, in hundredths of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_cpu_percent: Option<f64>,
    /// latency on PostgreSQL: transactions of the database a second for each idle worker process; each of them is one
    /// statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_statements_per_s: Option<f64>,
    /// steady and snapshot: the rates of the first and of the last ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_jobs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_jobs_per_s: Option<f64>,
    /// backlog: the rate with 10,000 jobs behind, and how the rate with all of them compares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) small_backlog_jobs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_small_backlog: Option<f64>,
    /// PostgreSQL only.
    #[serde(flatten)]
    pub(crate) server: Option<ServerFigures>,
    #[serde(flatten)]
    usual: Option<UsualFigures>,
    /// floor: the other parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    insert_jobs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_and_delete_jobs_per_s: Option<f64>,
}

impl Report {
    pub(crate) fn new(command: &BenchCommand, store: &Store) -> Result<Self, Failure> {
        Ok(Self {
            workload: command.workload.as_str(),
            engine: store.engine()?.to_owned(),
            payload_bytes: command.payload,
            batch: command.batch,
            concurrency: command.concurrency,
            processes: command.processes,
            backlog: command.backlog(),
            prefetch: command.prefetch.to_string(),
            rounds: Vec::new(),
        })
    }

    pub(crate) fn write(&self, output: &mut Output) -> Result<(), Failure> {
        if output.is_json() {
            #[derive(Serialize)]
            struct Whole<'a> {
                workload: &'static str,
                engine: &'a str,
                #[serde(flatten)]
                medians: Round,
                payload_bytes: usize,
                batch: usize,
                concurrency: Option<usize>,
                processes: usize,
                backlog: u64,
                prefetch: &'a str,
                rounds: &'a [Round],
            }
            return output.json(&Whole {
                workload: self.workload,
                engine: &self.engine,
                medians: Round::medians(&self.rounds),
                payload_bytes: self.payload_bytes,
                batch: self.batch,
                concurrency: self.concurrency,
                processes: self.processes,
                backlog: self.backlog,
                prefetch: &self.prefetch,
                rounds: &self.rounds,
            });
        }
        let medians = Round::medians(&self.rounds);
        output.heading(&format!("{} on {}", self.workload, self.engine))?;
        output.table(&self.table(&medians))?;
        for line in medians.remarks() {
            output.line(line)?;
        }
        Ok(())
    }

    fn table(&self, medians: &Round) -> Table {
        let mut table = Table::new([
            ("ROUND", Align::Left),
            ("JOBS", Align::Right),
            ("SECONDS", Align::Right),
            ("JOBS/S", Align::Right),
            ("FLOOR/S", Align::Right),
            ("RATIO", Align::Right),
            ("P50 MS", Align::Right),
            ("P95 MS", Align::Right),
            ("P99 MS", Align::Right),
            ("PEAK MIB", Align::Right),
            ("CPU S", Align::Right),
        ]);
        let named = (self.rounds.iter().enumerate())
            .map(|(index, round)| ((index + 1).to_string(), round))
            .chain([("median".to_owned(), medians)]);
        for (name, round) in named {
            let optional = |value: Option<f64>, digits| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            table.row([
                Cell::from(name),
                Cell::from(grouped(round.jobs)),
                Cell::from(format!("{:.2}", round.seconds)),
                Cell::from(whole(round.jobs_per_s)),
                Cell::from(whole(round.floor_jobs_per_s)),
                Cell::from(format!("{:.2}", round.ratio_to_floor)),
                Cell::from(optional(round.p50_ms, 2)),
                Cell::from(optional(round.p95_ms, 2)),
                Cell::from(optional(round.p99_ms, 2)),
                Cell::from(optional(round.peak_rss_mib, 1)),
                Cell::from(optional(round.cpu_seconds, 2)),
            ]);
        }
        table
    }
}

impl Round {
    /// A round of `jobs` in `seconds`.
    #[expect(clippy::cast_precision_loss, reason = "jobs of a round stay far below 2^52")]
    pub(crate) fn new(jobs: u64, seconds: f64) -> Self {
        Self { jobs, seconds, jobs_per_s: jobs as f64 / seconds.max(f64::EPSILON), ..Self::default() }
    }

    pub(crate) fn of_floor(both: &Rate, insert: &Rate, read: &Rate) -> Self {
        Self {
            jobs: both.jobs,
            seconds: both.seconds,
            jobs_per_s: both.jobs_per_s,
            floor_jobs_per_s: both.jobs_per_s,
            ratio_to_floor: 1.0,
            server: both.cost.wal_bytes_per_job.map(|_| ServerFigures::new(both.cost)),
            p50_ms: Some(both.p50_ms),
            insert_jobs_per_s: Some(insert.jobs_per_s),
            read_and_delete_jobs_per_s: Some(read.jobs_per_s),
            ..Self::default()
        }
    }

    /// Takes over the percentiles of a histogram of microseconds.
    #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^52")]
    pub(crate) fn percentiles(&mut self, waits: &Histogram<u64>) {
        if waits.is_empty() {
            return;
        }
        let at = |quantile| Some(waits.value_at_quantile(quantile) as f64 / 1_000.0);
        (self.p50_ms, self.p95_ms, self.p99_ms) = (at(0.50), at(0.95), at(0.99));
    }

    /// Compares with what was measured just before.
    pub(crate) fn compare(&mut self, workload: Workload, floor: &Rate, usual: Option<&UsualRate>) {
        if let Some(server) = &mut self.server {
            server.compare(floor.cost);
        }
        self.usual = usual.map(|usual| UsualFigures::new(usual, self.jobs_per_s));
        self.floor_jobs_per_s = floor.jobs_per_s;
        if workload == Workload::Latency {
            // The share of the wait that the disk alone would take.
            self.floor_p50_ms = Some(floor.p50_ms);
            self.ratio_to_floor = self.p50_ms.map_or(0.0, |p50| floor.p50_ms / p50.max(f64::EPSILON));
        } else {
            self.ratio_to_floor = self.jobs_per_s / floor.jobs_per_s.max(f64::EPSILON);
        }
    }

    /// One line for a person who waits.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{} jobs/s, floor {} jobs/s, ratio {:.2}",
            whole(self.jobs_per_s),
            whole(self.floor_jobs_per_s),
            self.ratio_to_floor
        );
        if let (Some(p50), Some(p99)) = (self.p50_ms, self.p99_ms) {
            line.push_str(&format!(", p50 {p50:.2} ms, p99 {p99:.2} ms"));
        }
        if let (Some(first), Some(last)) = (self.first_jobs_per_s, self.last_jobs_per_s) {
            line.push_str(&format!(", first {} last {}", whole(first), whole(last)));
        }
        line
    }

    /// The median of each figure by itself.
    fn medians(rounds: &[Self]) -> Self {
        let number = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure)).unwrap_or_default();
        let optional = |figure: fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(figure));
        let count = |figure: fn(&Self) -> u64| {
            let mut counts: Vec<u64> = rounds.iter().map(figure).collect();
            counts.sort_unstable();
            counts.get(counts.len() / 2).copied().unwrap_or_default()
        };
        Self {
            jobs: count(|round| round.jobs),
            seconds: number(|round| round.seconds),
            jobs_per_s: number(|round| round.jobs_per_s),
            floor_jobs_per_s: number(|round| round.floor_jobs_per_s),
            ratio_to_floor: number(|round| round.ratio_to_floor),
            p50_ms: optional(|round| round.p50_ms),
            p95_ms: optional(|round| round.p95_ms),
            p99_ms: optional(|round| round.p99_ms),
            peak_rss_mib: optional(|round| round.peak_rss_mib),
            cpu_seconds: optional(|round| round.cpu_seconds),
            handler_runs: rounds
                .iter()
                .any(|round| round.handler_runs.is_some())
                .then(|| count(|round| round.handler_runs.unwrap_or_default())),
            single_caller_jobs_per_s: optional(|round| round.single_caller_jobs_per_s),
            ratio_to_single_caller: optional(|round| round.ratio_to_single_caller),
            floor_p50_ms: optional(|round| round.floor_p50_ms),
            idle_cpu_percent: optional(|round| round.idle_cpu_percent),
            idle_statements_per_s: optional(|round| round.idle_statements_per_s),
            first_jobs_per_s: optional(|round| round.first_jobs_per_s),
            last_jobs_per_s: optional(|round| round.last_jobs_per_s),
            small_backlog_jobs_per_s: optional(|round| round.small_backlog_jobs_per_s),
            ratio_to_small_backlog: optional(|round| round.ratio_to_small_backlog),
            server: ServerFigures::medians(rounds.iter().filter_map(|round| round.server)),
            usual: UsualFigures::medians(rounds.iter().filter_map(|round| round.usual)),
            insert_jobs_per_s: optional(|round| round.insert_jobs_per_s),
            read_and_delete_jobs_per_s: optional(|round| round.read_and_delete_jobs_per_s),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(single), Some(ratio)) = (self.single_caller_jobs_per_s, self.ratio_to_single_caller) {
            lines.push(format!(
                "a single caller: {} jobs/s; all of them: {ratio:.1} times that",
                whole(single)
            ));
        }
        if let Some(idle) = self.idle_cpu_percent {
            lines.push(format!("an idle worker process: {idle:.2} % of one core"));
        }
        if let Some(statements) = self.idle_statements_per_s {
            lines.push(format!("an idle worker process: {statements:.2} statements a second"));
        }
        if let (Some(first), Some(last)) = (self.first_jobs_per_s, self.last_jobs_per_s) {
            lines.push(format!("first and last seconds: {} → {} jobs/s", whole(first), whole(last)));
        }
        if let (Some(small), Some(ratio)) = (self.small_backlog_jobs_per_s, self.ratio_to_small_backlog) {
            lines.push(format!("with a small backlog: {} jobs/s; ratio {ratio:.2}", whole(small)));
        }
        lines.extend(self.server.as_ref().map(ServerFigures::remark));
        lines.extend(self.usual.as_ref().map(UsualFigures::remark));
        if let Some(commit) = self.floor_p50_ms {
            lines.push(format!("a durable commit of one row: {commit:.2} ms"));
        }
        if let (Some(insert), Some(read)) = (self.insert_jobs_per_s, self.read_and_delete_jobs_per_s) {
            lines.push(format!("insert: {}/s; read and delete: {}/s", whole(insert), whole(read)));
        }
        if let Some(runs) = self.handler_runs.filter(|runs| *runs > self.jobs) {
            lines.push(format!("{} handler runs for {} jobs", grouped(runs), grouped(self.jobs)));
        }
        lines
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and finite")]
fn whole(rate: f64) -> String {
    grouped(rate.round().max(0.0) as u64)
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::server::Cost;

    #[test]
    fn medians_are_of_each_figure_by_itself() {
        let rounds: Vec<Round> = [(10, 1.0, Some(4.0)), (30, 2.0, None), (20, 9.0, Some(2.0))]
            .into_iter()
            .map(|(jobs, seconds, p50_ms)| Round { p50_ms, ..Round::new(jobs, seconds) })
            .collect();
        let medians = Round::medians(&rounds);
        assert_eq!((medians.jobs, medians.seconds, medians.p50_ms), (20, 2.0, Some(3.0)));
        assert_eq!(medians.handler_runs, None);
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn the_ratio_of_a_latency_is_of_times() {
        let floor = Rate { jobs: 2000, seconds: 2.0, jobs_per_s: 1000.0, p50_ms: 1.0, cost: Cost::default() };
        let mut round = Round { p50_ms: Some(2.0), ..Round::new(300, 6.0) };
        round.compare(Workload::Latency, &floor, None);
        assert_eq!(round.ratio_to_floor, 0.5);
        let mut round = Round::new(3000, 6.0);
        round.compare(Workload::Steady, &floor, None);
        assert_eq!(round.ratio_to_floor, 0.5);
    }
}
