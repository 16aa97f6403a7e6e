//! `celeriac periodic`: jobs that come again and again.

mod preview;

use clap::{Args, Subcommand};

use self::preview::PreviewCommand;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Periodic jobs: see when a cron expression fires
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct PeriodicCommand {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    Preview(PreviewCommand),
}

pub(crate) fn run(command: PeriodicCommand, output: &mut Output) -> Result<Exit, Failure> {
    match command.act {
        Act::Preview(command) => preview::run(&command, output),
    }
}
