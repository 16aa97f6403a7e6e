use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

use celeriac::core::{Error, JobId};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::bench::{BenchCommand, ConsumerCommand};
use crate::dead::DeadCommand;
use crate::doctor::DoctorCommand;
use crate::enqueue::EnqueueCommand;
use crate::failure::{Exit, Failure};
use crate::jobs::JobsCommand;
use crate::migrate::MigrateCommand;
use crate::output::{Format, Output};
use crate::periodic::PeriodicCommand;
use crate::plan::PlanCommand;
use crate::queues::QueuesCommand;
use crate::store::Store;

/// Looks into a Celeriac store and acts on it: enqueue jobs, see what waits, what failed and why.
///
/// The store is named by --broker or by the variable CELERIAC_BROKER:
///
///     celeriac --broker sqlite:jobs.db stats
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(
    name = "celeriac",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    verbatim_doc_comment
)]
pub(crate) struct CommandLine {
    /// The store, such as sqlite:jobs.db
    #[arg(
        long,
        global = true,
        env = "CELERIAC_BROKER",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    broker: Option<String>,
    /// Write JSON for programs; errors too, on the error output
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

// A command's help is written at its structure, a command without one has it here.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Enqueue(EnqueueCommand),
    Queues(QueuesCommand),
    Jobs(JobsCommand),
    Dead(DeadCommand),
    Periodic(PeriodicCommand),
    Plan(PlanCommand),
    /// Show the figures of all queues and workers
    Stats,
    /// List the tasks that workers have announced, with their parameters
    Tasks,
    Migrate(MigrateCommand),
    Doctor(DoctorCommand),
    Bench(BenchCommand),
    #[command(hide = true)]
    BenchConsumer(ConsumerCommand),
    Completions(CompletionsCommand),
}

/// Print the completion script of a shell.
///
/// For bash: celeriac completions bash > ~/.local/share/bash-completion/completions/celeriac
#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// A setting that can be taken away: `none`, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting<T> {
    None,
    Value(T),
}

impl CommandLine {
    /// Reads the process's arguments. What is wrong with them is printed here; the caller only exits.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let words: Vec<OsString> = std::env::args_os().collect();
        Self::try_parse_from(&words).map_err(|error| {
            if error.use_stderr() && words.iter().any(|word| word == "--json") {
                Output::new(Format::Json).complain(&Failure::usage(plain_message(&error)));
            } else {
                // The pipe may be closed, as in `celeriac --help | head -1`.
                let _ = error.print();
            }
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => Exit::Usage.into(),
            }
        })
    }

    pub(crate) const fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.broker.clone())
    }
}

pub(crate) fn completions(command: &CompletionsCommand, output: &mut Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut CommandLine::command(), "celeriac", &mut script);
    output.writer().write_all(&script)?;
    Ok(Exit::Done)
}

/// Reads a setting; `parse` reads its value.
pub(crate) fn setting<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Setting<T>, E> {
    if text == "none" { Ok(Setting::None) } else { parse(text).map(Setting::Value) }
}

/// Reads anything that reads itself with an error of core, so that its own words are shown.
pub(crate) fn parsed<T: FromStr>(text: &str) -> Result<T, String>
where
    T::Err: Into<Error>,
{
    text.parse::<T>().map_err(|error| error.into().to_string())
}

/// Reads a job's id.
pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| "an id is a UUID, such as 01920c5e-8f3a-7bb2-9d51-3a1f0a3b1c2d".to_owned())
}

/// Reads a number within its bounds.
pub(crate) fn bounded<T>(
    bounds: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        text.parse::<T>()
            .ok()
            .filter(|value| bounds.contains(value))
            .ok_or_else(|| format!("allowed are {} to {}", bounds.start(), bounds.end()))
    }
}

impl<T> Setting<T> {
    pub(crate) fn into_option(self) -> Option<T> {
        match self {
            Self::None => None,
            Self::Value(value) => Some(value),
        }
    }
}

/// The sentence of a usage error, without the usage and the hints that only help at a prompt.
fn plain_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\n\nUsage:").or_else(|| text.find("\n\nFor more information")).unwrap_or(text.len());
    text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn none_takes_a_setting_away() {
        assert_eq!(setting("none", str::parse::<u64>).unwrap(), Setting::None);
        assert_eq!(setting("7", str::parse::<u64>).unwrap(), Setting::Value(7));
        assert!(setting("nil", str::parse::<u64>).is_err());
    }
}
