//! `celeriac plan`: how many workers a load needs. `erlang` has the mathematics.

mod erlang;
mod live;

use std::time::Duration;

use celeriac::core::{QueueName, parse_duration};
use clap::Args;
use serde::Serialize;

use self::erlang::{Load, Service};
use crate::age::short;
use crate::command_line::{bounded, parsed};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::store::Store;
use crate::table::{Align, Cell, Table};

/// Compute how many workers a load needs
///
/// For jobs that come independently of each other, how many workers are needed so that a wanted
/// share of them starts in time:
///
///     celeriac plan --rate 100/h --run-time 300s --within 20s --share 80%
///     celeriac plan --live --queue mail --run-time 800ms --within 2s
///
/// Run times are taken as exponential (many short, some long) unless --spread says otherwise:
/// the formulas of Erlang, and of Allen and Cunneen for other spreads. Bursts, retries and other
/// queues of the same workers come on top.
///
/// With --live the rate is that of the jobs enqueued during --window. If --run-time is not given,
/// it is the time from the claim to the verdict, which includes the wait in a worker's buffer.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlanCommand {
    /// How many jobs come, such as 100/h, 5/s or 0.5/min
    #[arg(long, value_name = "N/UNIT", value_parser = rate, required_unless_present = "live", conflicts_with = "live")]
    rate: Option<f64>,
    /// Their mean run time
    #[arg(long, value_name = "DURATION", value_parser = run_time, required_unless_present = "live")]
    run_time: Option<Duration>,
    /// The standard deviation of their run time; 0 if all take the same [default: the run time]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    spread: Option<Duration>,
    /// How soon jobs shall start
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    within: Duration,
    /// How many of them
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "95%")]
    share: f64,
    /// How many jobs a worker runs at once
    #[arg(long, value_name = "N", value_parser = bounded::<u32>(1..=10_000), default_value_t = 1)]
    concurrency: u32,
    /// Take the rate from a running store
    #[arg(long, requires = "queue")]
    live: bool,
    /// Whose rate to take
    #[arg(long, value_name = "QUEUE", value_parser = parsed::<QueueName>, requires = "live")]
    queue: Option<QueueName>,
    /// For how long to look
    #[arg(long, value_name = "DURATION", value_parser = window, default_value = "10s", requires = "live")]
    window: Duration,
}

#[derive(Serialize)]
struct PlanView {
    rate_per_second: f64,
    run_time_ms: u64,
    spread_ms: u64,
    within_ms: u64,
    /// The wanted share.
    share: f64,
    /// How many handlers are busy on average.
    offered_load: f64,
    concurrency: u32,
    #[serde(flatten)]
    chosen: ServiceView,
    /// Fewer and more workers.
    alternatives: Vec<ServiceView>,
}

#[derive(Serialize)]
struct ServiceView {
    workers: u32,
    handlers: u32,
    utilisation: f64,
    expected_wait_ms: u64,
    /// Share of the jobs that start in time.
    share_within: f64,
    /// Share of the jobs that wait at all.
    share_delayed: f64,
    wait_p50_ms: u64,
    wait_p90_ms: u64,
    wait_p95_ms: u64,
    wait_p99_ms: u64,
}

/// A load and what is wanted for it.
struct Plan {
    load: Load,
    within: f64,
    share: f64,
    concurrency: u32,
    /// The services of whole workers, with the smallest that is good enough and some around it.
    services: Vec<Service>,
    chosen: usize,
}

pub(crate) async fn run(command: PlanCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let (rate, measured) = match (command.rate, &command.queue) {
        (Some(rate), _) => (rate, None),
        (None, Some(queue)) => {
            let seen = live::observe(store, queue, command.window, output).await?;
            (seen.rate, seen.run_time)
        }
        (None, None) => {
            return Err(Failure::usage("give the rate with --rate, or take it with --live --queue QUEUE"));
        }
    };
    let run_time = command.run_time.or(measured).ok_or_else(|| {
        Failure::failed(
            "no_run_time",
            "no job ended while looking; give the run time with --run-time, or look longer with --window",
        )
    })?;
    let spread = command.spread.unwrap_or(run_time);
    let variation = spread.as_secs_f64() / run_time.as_secs_f64();
    if variation > MAX_VARIATION {
        return Err(Failure::usage(format!(
            "a spread of more than {MAX_VARIATION} times the run time is beyond what the formulas are good for"
        )));
    }
    let load = Load { rate, run_time: run_time.as_secs_f64(), variation };
    let plan = Plan::new(load, command.within.as_secs_f64(), command.share, command.concurrency)?;
    if output.is_json() {
        output.json(&plan.view(run_time, spread, command.within))?;
        return Ok(Exit::Done);
    }
    plan.write(command.within, output)?;
    Ok(Exit::Done)
}

impl Plan {
    fn new(load: Load, within: f64, share: f64, concurrency: u32) -> Result<Self, Failure> {
        let mut services: Vec<Service> = Vec::new();
        let mut chosen = None;
        for service in load.services(MAX_HANDLERS).filter(|s| s.handlers.is_multiple_of(concurrency)) {
            services.push(service);
            match chosen {
                None if service.within(within) >= share => chosen = Some(services.len() - 1),
                None => {
                    // Only the last few are shown.
                    if services.len() > FEWER_SHOWN {
                        services.remove(0);
                    }
                }
                Some(chosen) if services.len() > chosen + MORE_SHOWN => break,
                Some(_) => {}
            }
        }
        let Some(chosen) = chosen else {
            return Err(Failure::usage(format!(
                "the load of {:.0} handlers is too large to plan; the limit is {MAX_HANDLERS}",
                load.offered()
            )));
        };
        Ok(Self { load, within, share, concurrency, services, chosen })
    }

    fn view(&self, run_time: Duration, spread: Duration, within: Duration) -> PlanView {
        PlanView {
            rate_per_second: rounded(self.load.rate, 1e6),
            run_time_ms: millis(run_time.as_secs_f64()),
            spread_ms: millis(spread.as_secs_f64()),
            within_ms: millis(within.as_secs_f64()),
            share: self.share,
            offered_load: rounded(self.load.offered(), 1e4),
            concurrency: self.concurrency,
            chosen: self.service_view(self.services[self.chosen]),
            alternatives: (self.services.iter().enumerate())
                .filter(|(index, _)| *index != self.chosen)
                .map(|(_, service)| self.service_view(*service))
                .collect(),
        }
    }

    fn service_view(&self, service: Service) -> ServiceView {
        ServiceView {
            workers: service.handlers / self.concurrency,
            handlers: service.handlers,
            utilisation: rounded(service.utilisation, 1e4),
            expected_wait_ms: millis(service.mean_wait()),
            share_within: rounded(service.within(self.within), 1e4),
            share_delayed: rounded(service.delayed, 1e4),
            wait_p50_ms: millis(service.percentile(0.5)),
            wait_p90_ms: millis(service.percentile(0.9)),
            wait_p95_ms: millis(service.percentile(0.95)),
            wait_p99_ms: millis(service.percentile(0.99)),
        }
    }

    fn write(&self, within: Duration, output: &mut Output) -> Result<(), Failure> {
        let chosen = self.services[self.chosen];
        let workers = chosen.handlers / self.concurrency;
        output.line(format!(
            "{workers} worker{} of {} handler{}: {} of the jobs start within {}, wanted {}",
            plural(workers),
            self.concurrency,
            plural(self.concurrency),
            percent(chosen.within(self.within)),
            short(within),
            percent(self.share),
        ))?;
        let (rate, unit) =
            if self.load.rate < 1.0 { (self.load.rate * 3600.0, "hour") } else { (self.load.rate, "second") };
        output.line(format!(
            "{} jobs {} {unit} of {} keep {:.2} handlers busy",
            rounded(rate, 100.0),
            if unit == "hour" { "an" } else { "a" },
            said(self.load.run_time),
            self.load.offered()
        ))?;
        output.line("")?;
        let mut table = Table::new([
            ("", Align::Left),
            ("WORKERS", Align::Right),
            ("BUSY", Align::Right),
            ("IN TIME", Align::Right),
            ("95% WAIT", Align::Right),
            ("99% WAIT", Align::Right),
            ("MEAN WAIT", Align::Right),
            ("", Align::Left),
        ]);
        let longest = self.services.iter().map(|service| service.mean_wait()).fold(0.0, f64::max);
        for (index, service) in self.services.iter().enumerate() {
            table.row([
                Cell::from(if index == self.chosen { "->" } else { "" }),
                Cell::from(service.handlers / self.concurrency),
                Cell::from(percent(service.utilisation)),
                Cell::from(percent(service.within(self.within))),
                Cell::from(said(service.percentile(0.95))),
                Cell::from(said(service.percentile(0.99))),
                Cell::from(said(service.mean_wait())),
                Cell::from(bar(service.mean_wait(), longest)),
            ]);
        }
        output.table(&table)
    }
}

/// A wait beside the longest one.
fn bar(wait: f64, longest: f64) -> String {
    let width = if longest > 0.0 { (wait / longest * BAR_WIDTH).round() as usize } else { 0 };
    "#".repeat(width)
}

fn said(seconds: f64) -> String {
    short(Duration::from_millis(millis(seconds)))
}

/// Never more than is true: 94.96 % is not 95.0 %.
fn percent(share: f64) -> String {
    format!("{:.1}%", (share * 1000.0 + 1e-9).floor() / 10.0)
}

/// Without digits that mean nothing.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Jobs a second from `100/h`.
fn rate(text: &str) -> Result<f64, String> {
    let problem = || "write a number and its unit of time, such as 100/h, 5/s or 0.5/min".to_owned();
    let (number, unit) = text.split_once('/').ok_or_else(problem)?;
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        "d" | "day" => 86_400.0,
        _ => return Err(problem()),
    };
    let number: f64 = number.trim().parse().map_err(|_| problem())?;
    Some(number / seconds)
        .filter(|rate| *rate > 0.0 && *rate <= MAX_RATE)
        .ok_or_else(|| format!("a rate is more than 0 and at most {MAX_RATE}/s"))
}

/// `80%` as 0.8.
fn share(text: &str) -> Result<f64, String> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| (1.0..=99.99).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "write a percentage from 1% to 99.99%, such as 80%".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn run_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| match time {
        time if time < Duration::from_millis(1) => Err("a run time is at least 1ms".to_owned()),
        time if time > MAX_RUN_TIME => Err("a run time is at most 30days".to_owned()),
        time => Ok(time),
    })
}

fn window(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| {
        match (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&time) {
            true => Ok(time),
            false => Err("allowed are 1s to 1h".to_owned()),
        }
    })
}

/// The search goes up from the load handler by handler.
const MAX_HANDLERS: u32 = 1_000_000;
const MAX_RATE: f64 = 1_000_000.0;
const MAX_RUN_TIME: Duration = Duration::from_secs(30 * 86_400);
const MAX_VARIATION: f64 = 10.0;
const BAR_WIDTH: f64 = 24.0;
/// Lines of the chart before and after the chosen one.
const FEWER_SHOWN: usize = 6;
const MORE_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_need_their_units() {
        assert_eq!(rate("100/h"), Ok(100.0 / 3600.0));
        assert_eq!(rate("0.5 / min"), Ok(0.5 / 60.0));
        for text in ["", "5", "5/", "/s", "-1/s", "0/s", "NaN/s", "inf/s", "5/fortnight", "1e99/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(share("80%"), Ok(0.8));
        for text in ["80", "0%", "100%", "NaN%", "-5%", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn workers_are_whole() {
        let load = Load { rate: 100.0 / 3600.0, run_time: 300.0, variation: 1.0 };
        let plan = |concurrency| {
            let plan = Plan::new(load, 20.0, 0.8, concurrency).unwrap();
            plan.services[plan.chosen].handlers
        };
        assert_eq!([1, 2, 5, 8].map(plan), [12, 12, 15, 16]);
        let huge = Load { rate: 1e6, run_time: 1e6, variation: 1.0 };
        assert!(Plan::new(huge, 20.0, 0.8, 1).is_err());
    }

    #[test]
    fn shares_are_not_rounded_up() {
        assert_eq!([0.9496, 0.95, 0.8, 1.0].map(percent), ["94.9%", "95.0%", "80.0%", "100.0%"]);
    }
}
