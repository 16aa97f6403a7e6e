//! Stores jobs and prints the id of each one after the store has answered, so that a test knows what was promised.
//!
//! `test-producer URL TASK COUNT BATCH AT_ONCE MILLIS`: COUNT jobs of TASK (0: without end) with an argument of MILLIS,
//! in batches of BATCH, AT_ONCE calls at a time. An error ends it with its code on the error output and exit code 1.

#![expect(
    clippy::unwrap_used,
    reason = "a program of tests: what breaks here fails the test that started it"
)]

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeriac::Client;
use celeriac::core::{Call, Error, TaskName, TaskSpec};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, task, count, batch, at_once, millis] = &words[..] else {
        eprintln!("test-producer URL TASK COUNT BATCH AT_ONCE MILLIS");
        return ExitCode::from(2);
    };
    let number = |word: &String| word.parse::<usize>().unwrap();
    let task = TaskName::new(task).unwrap();
    match produce(url, &task, number(count), number(batch), number(at_once), number(millis)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {}", error.code(), error.full());
            ExitCode::FAILURE
        }
    }
}

async fn produce(
    url: &str,
    task: &TaskName,
    count: usize,
    batch: usize,
    at_once: usize,
    millis: usize,
) -> Result<(), Error> {
    let client = Client::connect(url).await?;
    let left = Arc::new(AtomicUsize::new(if count == 0 { usize::MAX } else { count }));
    let mut callers: JoinSet<Result<(), Error>> = JoinSet::new();
    for _ in 0..at_once {
        let (client, left, task) = (client.clone(), Arc::clone(&left), task.clone());
        callers.spawn(async move {
            loop {
                let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    Some(left.saturating_sub(batch))
                });
                let size = taken.unwrap_or(0).min(batch);
                if size == 0 {
                    return Ok(());
                }
                let arguments = format!("{{\"millis\": {millis}}}");
                let calls = (0..size).map(|_| Call::from_json(TaskSpec::new(task.clone()), &arguments));
                let stored = client.enqueue_all(calls).await?;
                // One call of `write` for whole lines, after the store has promised them.
                let lines: String = stored.iter().map(|stored| format!("{}\n", stored.id())).collect();
                let mut output = std::io::stdout().lock();
                output.write_all(lines.as_bytes()).and_then(|()| output.flush()).unwrap();
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap()?;
    }
    Ok(())
}
