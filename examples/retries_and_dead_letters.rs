//! What happens to a job that fails: again after a delay, then the bin, and back from there.
//!
//! ```sh
//! cargo run --example retries_and_dead_letters
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use celeriac::core::{BulkAct, BulkOptions, Filter, JobId, PageOptions, Room};
use celeriac::prelude::*;
use celeriac::{Registry, Shutdown, Worker};

/// Stands for a service that is down until somebody repairs it.
static REPAIRED: AtomicBool = AtomicBool::new(false);

/// Three attempts: at once, after 50 ms, after 100 ms more.
#[task(retry = "50ms, 100ms")]
async fn send_invoice(number: u32) -> Result<(), TaskError> {
    if number == 0 {
        // No attempt can help, so none is made.
        return Err(TaskError::reject("there is no invoice 0"));
    }
    if !REPAIRED.load(Ordering::Relaxed) {
        return Err(TaskError::failed("mail server: connection refused"));
    }
    println!("invoice {number} is sent");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let celeriac = Client::connect("sqlite::memory:").await?;
    let worker = Worker::builder(Arc::clone(celeriac.broker()), Registry::collect()?).build()?;
    let shutdown = Shutdown::new();
    let working = tokio::spawn(worker.run(shutdown.clone()));

    let unlucky = celeriac.enqueue(send_invoice::call(7)).await?.id();
    let impossible = celeriac.enqueue(send_invoice::call(0)).await?.id();
    for job in [unlucky, impossible] {
        until(&celeriac, job, Some(Room::Dead)).await?;
    }

    let bin = celeriac.broker().list(Filter::room(Room::Dead), PageOptions::default()).await?;
    for dead in &bin.jobs {
        let reason = dead.reason.map(|reason| reason.to_string()).unwrap_or_default();
        println!("{} is dead: {reason}", dead.job.id);
        for attempt in &dead.job.extras.history {
            println!("  {}  {}", attempt.at, attempt.error);
        }
    }

    // A person repairs the cause, and sends back what it concerned. The job starts again with all its attempts.
    REPAIRED.store(true, Ordering::Relaxed);
    let mut concerned = Filter::room(Room::Dead);
    concerned.error = Some("connection refused".to_owned());
    celeriac.broker().bulk(concerned, BulkAct::Replay { queue: None }, BulkOptions::default()).await?;
    until(&celeriac, unlucky, None).await?;

    shutdown.drain();
    println!("{}", working.await??);
    Ok(())
}

/// Waits until the job is in this room; `None` means that it is finished.
async fn until(celeriac: &Client, job: JobId, room: Option<Room>) -> celeriac::Result<()> {
    while celeriac.job(job).await?.map(|details| details.room) != room {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
