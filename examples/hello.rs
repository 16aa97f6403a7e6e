//! The smallest complete program: a task, a job, a worker.
//!
//! ```sh
//! export CELERIAC_BROKER=sqlite:hello.db    # or postgres://user@host/database
//! cargo run --example hello -- enqueue Ada
//! cargo run --example hello -- --exit-when-empty
//! ```

use std::process::ExitCode;

use celeriac::prelude::*;

#[task(retry = "5s, 1m, 10m")]
async fn greet(name: String) {
    println!("Hello, {name}!");
}

#[tokio::main]
async fn enqueue(name: String) -> celeriac::Result<ExitCode> {
    let url = std::env::var("CELERIAC_BROKER").unwrap_or_else(|_| "sqlite:hello.db".to_owned());
    let celeriac = Client::connect(&url).await?;
    let job = celeriac.enqueue(greet::call(name)).await?; // on the disk when this returns
    println!("stored as {}", job.id());
    Ok(ExitCode::SUCCESS)
}

fn main() -> celeriac::Result<ExitCode> {
    match std::env::args().skip_while(|word| word != "enqueue").nth(1) {
        Some(name) => enqueue(name),
        None => Ok(worker().main()), // everything else is the command line of a worker
    }
}
