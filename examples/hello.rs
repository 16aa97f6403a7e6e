//! The smallest complete program: a task, a job, a worker.
//!
//! ```sh
//! cargo run --example hello -- enqueue Ada
//! cargo run --example hello -- --broker sqlite:hello.db --exit-when-empty
//! ```

use std::process::ExitCode;

use celeriac::prelude::*;

#[task(retry = "5s, 1m, 10m")]
async fn greet(name: String) {
    println!("Hello, {name}!");
}

#[tokio::main]
async fn enqueue(name: String) -> celeriac::Result<()> {
    let celeriac = Client::connect("sqlite:hello.db").await?;
    let job = celeriac.enqueue(greet::call(name)).await?; // on the disk when this returns
    println!("stored as {}", job.id());
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("enqueue"), Some(name)) => match enqueue(name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        // Everything else is the command line of a worker.
        _ => worker().main(),
    }
}
