//! What the worker hands to a task: shared state, and what is known about the job.
//!
//! ```sh
//! cargo run --example state_and_context
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeriac::prelude::*;
use celeriac::{ExitWhenEmpty, Registry, Shutdown, States, Worker};

/// Something that is made once and used by all handlers: a connection pool, a client, a configuration.
#[derive(Clone, Debug, Default)]
struct Till {
    cents: Arc<AtomicU64>,
}

/// `order` and `cents` are the job. `till` and `context` come from the worker, and are no part of the payload.
#[task]
async fn charge(order: u32, cents: u64, till: State<Till>, context: Context) -> Result<(), TaskError> {
    // The id is the same in each attempt, so it can be the key of an effect that must not happen twice.
    println!("order {order}: {cents} cents, as job {}, attempt {}", context.job_id(), context.attempt());
    if let Some(customer) = context.headers().get("customer") {
        println!("order {order} is from {customer}");
    }
    till.cents.fetch_add(cents, Ordering::Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let celeriac = Client::connect("sqlite::memory:").await?;
    celeriac.enqueue(charge::call(1, 250)).await?;
    celeriac.enqueue(charge::call(2, 1_000).header("customer", "Ada").priority(9)).await?;
    // The same key again is the same job: nothing is stored twice, however often this runs.
    for _ in 0..3 {
        celeriac.enqueue(charge::call(3, 42).idempotency_key("order-3")).await?;
    }

    let till = Till::default();
    let mut states = States::default();
    states.insert(till.clone());
    let worker = Worker::builder(Arc::clone(celeriac.broker()), Registry::collect()?)
        .states(states)
        .exit_when_empty(ExitWhenEmpty::Yes)
        .build()?;
    let report = worker.run(Shutdown::new()).await?;

    let cents = till.cents.load(Ordering::Relaxed);
    println!("{report}; {cents} cents in the till");
    assert_eq!(cents, 1_292, "three orders, each charged once");

    // Without a queue the task is still an ordinary function.
    let result = charge(4, 8, State::new(Till::default()), Context::for_test("charge")).await;
    assert!(result.is_ok());
    Ok(())
}
