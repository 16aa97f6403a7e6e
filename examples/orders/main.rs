//! A service that takes orders, and the worker that ships them: a job for an order that does not exist cannot be, nor an
//! order without its job.
//!
//! Both are this program, on one PostgreSQL database:
//!
//! ```sh
//! export DATABASE_URL=postgres://me@localhost/shop
//! cargo run --bin orders -- serve --listen 127.0.0.1:8080 &
//! cargo run --bin orders -- work --queues shipping &
//! curl -i -d '{"item": "lamp", "quantity": 2}' -H 'content-type: application/json' localhost:8080/orders
//! curl localhost:8080/orders/1
//! ```
//!
//! `service` has the HTTP side and its transaction, `shipping` the task, `database` the tables.

mod database;
mod service;
mod shipping;

use std::net::SocketAddr;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let result = match words.next().as_deref() {
        Some("serve") => match (words.next().as_deref(), words.next()) {
            (Some("--listen"), Some(address)) => serve(&address),
            (None, None) => serve("127.0.0.1:8080"),
            _ => Err(USAGE.into()),
        },
        // What is left of the command line is that of a worker.
        Some("work") => work(words),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(address: &str) -> Result<ExitCode, Failure> {
    let address: SocketAddr = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
    let url = database::url()?;
    let database = database::pool(&url)?;
    database::prepare(&database).await?;
    let celeriac = celeriac::Client::connect(&url).await?.declare_missing_queues();
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, service::routes(database, celeriac))
        .with_graceful_shutdown(async {
            // Without a signal handler there is nothing to wait for, and the service runs until it is killed.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn work(words: impl Iterator<Item = String>) -> Result<ExitCode, Failure> {
    let url = database::url()?;
    let pool = database::pool(&url)?;
    let words = ["orders work", "--broker", &url].map(str::to_owned).into_iter().chain(words);
    Ok(celeriac::worker().state(pool).main_with(words))
}

const USAGE: &str = "usage: orders serve [--listen ADDRESS:PORT]\n       orders work [OPTIONS OF A WORKER]\n\nThe variable DATABASE_URL names the database.";
