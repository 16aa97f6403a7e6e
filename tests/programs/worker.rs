//! A worker whose tasks do what handlers do on bad days. Each run is noted in the ledger, see `celeriac_tests::Entry`.

#![expect(clippy::unwrap_used, reason = "a handler that cannot write its line has failed")]

use std::process::ExitCode;
use std::time::Duration;

use celeriac::prelude::*;
use celeriac_tests::{Entry, Event};

/// Succeeds after so many milliseconds, and stops when it is told to.
#[task]
async fn record(millis: u64, context: Context) {
    Entry::write(Event::Started, &context);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(millis)) => Entry::write(Event::Ended, &context),
        () = context.cancelled() => {
            Entry::write(Event::Cancelled, &context);
            // Dropped here by the worker, or ended with the process.
            std::future::pending::<()>().await;
        }
    }
}

/// As `record`, acknowledged before it runs.
#[task(delivery = "at_most_once")]
async fn once(millis: u64, context: Context) {
    Entry::write(Event::Started, &context);
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Entry::write(Event::Ended, &context);
}

/// Does not listen to anybody.
#[task]
async fn stubborn(millis: u64, context: Context) {
    Entry::write(Event::Started, &context);
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Entry::write(Event::Ended, &context);
}

/// Fails so many times, then succeeds.
#[task(retry = "10ms, 10ms, 10ms, 10ms")]
async fn fail(times: u32, context: Context) -> Result<(), String> {
    Entry::write(Event::Started, &context);
    if context.attempt() <= times {
        return Err(format!("failure {}", context.attempt()));
    }
    Entry::write(Event::Ended, &context);
    Ok(())
}

/// Panics each time.
#[task(retry = "10ms", name = "panic")]
async fn panics(context: Context) {
    Entry::write(Event::Started, &context);
    panic!("the sky is falling");
}

/// Holds a thread of the runtime without ever awaiting.
#[task]
async fn block_runtime(millis: u64, context: Context) {
    Entry::write(Event::Started, &context);
    std::thread::sleep(Duration::from_millis(millis));
    Entry::write(Event::Ended, &context);
}

/// Takes its process with it.
#[task]
async fn abort_process(context: Context) {
    Entry::write(Event::Started, &context);
    std::process::abort();
}

/// Runs for longer than it may.
#[task(timeout = "100ms", retry = "10ms", max_attempts = 2)]
async fn overrun(context: Context) {
    Entry::write(Event::Started, &context);
    std::future::pending::<()>().await;
}

/// Asks to be called again later, twice, then succeeds.
#[task]
async fn snooze(context: Context) -> Result<(), TaskError> {
    let runs = std::fs::read_to_string(std::env::var_os("CELERIAC_TEST_LEDGER").unwrap()).unwrap_or_default();
    let runs = runs.lines().filter(|line| line.contains(&context.job_id().to_string())).count();
    Entry::write(Event::Started, &context);
    if runs < 2 {
        return Err(TaskError::snooze(millis(10)));
    }
    Entry::write(Event::Ended, &context);
    Ok(())
}

/// Wants the bin at once.
#[task]
async fn reject(context: Context) -> Result<(), TaskError> {
    Entry::write(Event::Started, &context);
    Err(TaskError::reject("no such user"))
}

/// A synchronous handler.
#[task]
fn compute(millis: u64, context: Context) {
    Entry::write(Event::Started, &context);
    std::thread::sleep(Duration::from_millis(millis));
    Entry::write(Event::Ended, &context);
}

fn main() -> ExitCode {
    worker().main()
}
