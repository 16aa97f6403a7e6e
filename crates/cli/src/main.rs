//! `celeriac`: the operator's command.
//!
//! One module for each command, named after it. `command_line` reads the words, `store` opens the broker,
//! `output` and `table` write for people and programs, `failure` decides about exit codes.

mod age;
mod bench;
mod bulk;
mod command_line;
mod dead;
mod doctor;
mod enqueue;
mod failure;
mod import;
mod job_request;
mod job_view;
mod jobs;
mod migrate;
mod output;
mod periodic;
mod plan;
mod queues;
mod stats;
mod store;
mod table;
mod tasks;

use std::process::ExitCode;

use crate::command_line::{Command, CommandLine};
use crate::failure::{Exit, Failure};
use crate::output::Output;

fn main() -> ExitCode {
    let command_line = match CommandLine::read() {
        Ok(command_line) => command_line,
        Err(code) => return code,
    };
    let mut output = Output::new(command_line.format());
    let result = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::failed("runtime", format!("cannot start threads: {error}")))
        .and_then(|runtime| runtime.block_on(run(command_line, &mut output)))
        .and_then(|exit| {
            output.flush()?;
            Ok(exit)
        });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // What was written before the failure is still of use; if that fails too, there is nobody to tell.
            let _ = output.flush();
            output.complain(&failure);
            failure.exit().into()
        }
    }
}

async fn run(command_line: CommandLine, output: &mut Output) -> Result<Exit, Failure> {
    let store = command_line.store();
    match command_line.command {
        Command::Bench(command) => bench::run(command, &store, output).await,
        Command::BenchConsumer(command) => bench::consume(command, &store).await,
        Command::Completions(command) => command_line::completions(&command, output),
        Command::Dead(command) => dead::run(command, &store, output).await,
        Command::Doctor(command) => doctor::run(command, &store, output).await,
        Command::Enqueue(command) => enqueue::run(command, &store, output).await,
        Command::Jobs(command) => jobs::run(command, &store, output).await,
        Command::Migrate(command) => migrate::run(command, &store, output).await,
        Command::Periodic(command) => periodic::run(command, output),
        Command::Plan(command) => plan::run(command, &store, output).await,
        Command::Queues(command) => queues::run(command, &store, output).await,
        Command::Stats => stats::run(&store, output).await,
        Command::Tasks => tasks::run(&store, output).await,
    }
}
