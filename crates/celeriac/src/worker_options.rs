use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use celeriac_core::{Error, format_duration, parse_duration};
use celeriac_monitor::read_address;
use celeriac_worker::{Prefetch, Subscription, Worker};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// The command line of a worker program.
#[derive(Debug, Parser)]
#[command(
    name = "worker",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    about = ABOUT
)]
pub(crate) struct WorkerOptions {
    /// The store, such as sqlite:jobs.db
    #[arg(long, env = "CELERIAC_BROKER", hide_env_values = true, value_name = "URL")]
    pub(crate) broker: Option<String>,
    /// Queues to serve: `high,default` strictly in this order, `high=6,default=3` by weight. Missing ones are
    /// declared
    #[arg(long, value_name = "LIST", default_value = "default", value_parser = read::<Subscription>)]
    pub(crate) queues: Subscription,
    /// Handlers that run at once [default: four a core, at least 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = read_concurrency)]
    pub(crate) concurrency: Option<usize>,
    /// Jobs to have in hand: `auto` holds about 100 ms of work, or a number
    #[arg(long, value_name = "auto|N", default_value = "auto", allow_negative_numbers = true,
        value_parser = read::<Prefetch>)]
    pub(crate) prefetch: Prefetch,
    /// How long running handlers may go on after the first signal
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = read_duration)]
    pub(crate) grace: Duration,
    /// How long this worker may be silent before its jobs are given to others
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = read_lease)]
    pub(crate) lease: Duration,
    /// End when the queues have nothing more to run
    #[arg(long)]
    pub(crate) exit_when_empty: bool,
    /// How people see this worker [default: host:pid]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Serve metrics for Prometheus and health on this port of this machine, or on ADDR:PORT
    #[arg(long, value_name = "PORT|ADDR", value_parser = read_metrics)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Let other machines reach the metrics too: they have no password
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_public: bool,
    /// How often the store's figures are read for the metrics
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "metrics",
        value_parser = read_sample)]
    pub(crate) metrics_sample: Duration,
    /// For how long no claim may succeed before /livez says that this worker hangs
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "metrics",
        value_parser = read_duration)]
    pub(crate) live_within: Duration,
    /// What to log: a level, or one for each part such as `warn,my_tasks=debug`
    #[arg(long, env = "RUST_LOG", hide_env_values = true, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const ABOUT: &str = "\
Takes jobs from a Celeriac store and runs them.

    worker --broker sqlite:jobs.db --queues high,default

Stops in order on SIGTERM or Ctrl-C, at once on a second one.
Exit codes: 0 done, 1 failed, 2 wrong usage.";

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Command {
    /// List the tasks of this program with their parameters and where they are
    Tasks {
        /// Write JSON for programs
        #[arg(long)]
        json: bool,
    },
}

impl WorkerOptions {
    pub(crate) fn parse(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        Self::from_arg_matches(&Self::command().try_get_matches_from(words)?)
    }

    /// An error of usage that only the program itself can find.
    pub(crate) fn complaint(kind: ErrorKind, text: &str) -> clap::Error {
        Self::command().error(kind, text)
    }
}

/// The problem alone: the command line's own error names the option and the value.
fn problem(error: Error) -> String {
    match error {
        Error::Invalid { problem, .. } => problem,
        other => other.to_string(),
    }
}

fn read<T: std::str::FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(problem)
}

fn read_concurrency(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=Worker::MAX_CONCURRENCY).contains(number))
        .ok_or_else(|| format!("allowed are 1 to {}", Worker::MAX_CONCURRENCY))
}

fn read_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn read_metrics(text: &str) -> Result<SocketAddr, String> {
    read_address(text).map_err(|error| error.problem)
}

fn read_sample(text: &str) -> Result<Duration, String> {
    let period = read_duration(text)?;
    if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&period) {
        return Err("allowed are 100ms to 1h".to_owned());
    }
    Ok(period)
}

fn read_lease(text: &str) -> Result<Duration, String> {
    let lease = read_duration(text)?;
    let (shortest, longest) = Worker::LEASE_BOUNDS;
    if !(shortest..=longest).contains(&lease) {
        return Err(format!("allowed are {} to {}", format_duration(shortest), format_duration(longest)));
    }
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<WorkerOptions, String> {
        WorkerOptions::parse(std::iter::once("worker").chain(words.split_whitespace()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_sound_and_its_defaults_are_those_of_the_worker() {
        WorkerOptions::command().debug_assert();
        let options = parse("").unwrap();
        assert_eq!(options.queues, Subscription::default());
        assert_eq!(options.prefetch, Prefetch::default());
        assert_eq!(options.grace, Worker::DEFAULT_GRACE);
        assert_eq!(options.lease, Worker::DEFAULT_LEASE);
        assert_eq!((options.concurrency, options.exit_when_empty), (None, false));
    }

    #[test]
    fn everything_can_be_set() {
        let options = parse(
            "--broker sqlite:a.db --queues high=6,low=1 --concurrency 3 --prefetch 10 --grace 1m --lease 30s \
             --exit-when-empty --label here --log debug",
        )
        .unwrap();
        assert_eq!(options.queues.to_string(), "high=6,low=1");
        assert_eq!(options.concurrency, Some(3));
        assert_eq!(options.prefetch, Prefetch::Fixed(10));
        assert_eq!(options.grace, Duration::from_secs(60));
        assert_eq!(options.lease, Duration::from_secs(30));
        assert!(options.exit_when_empty);
        assert!(matches!(parse("tasks --json").unwrap().command, Some(Command::Tasks { json: true })));
    }

    #[test]
    fn absurd_values_are_refused_with_what_is_allowed() {
        for (words, part) in [
            ("--prefetch 0", "allowed are auto and the numbers 1 to"),
            ("--prefetch lots", "allowed are auto"),
            ("--concurrency 0", "allowed are 1 to"),
            ("--concurrency -3", "allowed are 1 to"),
            ("--grace 30", "a number with its unit"),
            ("--metrics nowhere", "write a port such as 9464"),
            ("--metrics-public", "--metrics"),
            ("--metrics 1 --metrics-sample 1ms", "allowed are 100ms to 1h"),
            ("--lease 1ms", "allowed are 100ms to 1h"),
            ("--queues high,high", "high is named twice"),
            ("--queues two;words", "has ';' at character 4"),
            ("--queue high", "a similar argument exists: '--queues'"),
        ] {
            let text = parse(words).unwrap_err();
            assert!(text.contains(part), "{words} gave {text}");
        }
    }
}
