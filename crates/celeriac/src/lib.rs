//! A job queue for Rust services: call a typed function later, in another process, and rely on it.
//!
//! * A job is on the disk before the call returns.
//! * A worker process runs it. If it fails it is tried again in growing delays; if its worker dies another takes it.
//! * What cannot succeed ends in a dead-letter bin, where a person sees it, reads why, and sends it back.
//! * There is no server of ours to run: the queue is one SQLite file that any number of processes on a machine share, or,
//!   past one machine, a schema in your PostgreSQL. Programs change nothing but the URL.
//!
//! # In twenty lines
//!
//! ```standalone_crate
//! use celeriac::prelude::*;
//! use celeriac::{ExitWhenEmpty, Registry, Shutdown, Worker};
//!
//! /// Mail servers have bad minutes: four tries within a quarter of an hour, then the bin.
//! #[task(queue = "mail", timeout = "30s", retry = "5s, 1m, 10m")]
//! async fn welcome(address: String) -> Result<(), TaskError> {
//!     if !address.contains('@') {
//!         return Err(TaskError::reject("that is no address")); // no retry can help
//!     }
//!     println!("a letter to {address}");
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The service. A file would be "sqlite:jobs.db".
//!     let celeriac = Client::connect("sqlite::memory:").await?.declare_missing_queues();
//!     celeriac.enqueue(welcome::call("ada@example.org")).await?;
//!     let wrong = celeriac.enqueue(welcome::call("nobody").priority(9)).await?;
//!
//!     // The worker. Usually a program of its own: see `worker()`.
//!     let worker = Worker::builder(celeriac.broker().clone(), Registry::collect()?)
//!         .subscription("mail".parse()?)
//!         .exit_when_empty(ExitWhenEmpty::Yes)
//!         .build()?;
//!     let report = worker.run(Shutdown::new()).await?;
//!     assert_eq!((report.done, report.buried), (1, 1));
//!
//!     let wrong = celeriac.job(wrong.id()).await?.expect("it is in the bin");
//!     assert_eq!(wrong.last_error(), Some("that is no address"));
//!     Ok(())
//! }
//! ```
//!
//! # The map
//!
//! | you want to | look at |
//! | --- | --- |
//! | make a function a task | [`task`](macro@task), [`book::tasks`] |
//! | call it later | [`Client`], [`Call`], [`book::calls`] |
//! | run a worker | [`worker()`], [`worker_main!`]; inside your own program [`Worker`]; [`book::workers`] |
//! | say more than "it failed" | [`TaskError`] |
//! | know the job, notice a stop | [`Context`] |
//! | hand a pool or a configuration to handlers | [`State`] |
//! | store a job in the transaction of the order it belongs to | [`Client::enqueue_in`], [`postgres`] |
//! | look into the store, or act on it | [`Client::broker`], [`Broker`], and the command `celeriac` |
//! | know what is promised, and at what price | [`book::promises`] |
//! | know what happens when something breaks | [`book::failures`] |
//! | know the defaults and their reasons | [`book::defaults`] |
//!
//! Words that are always meant exactly: a *task* is a function under a stable name; a *job* is one stored call of it;
//! a *delivery* is one hand-over of a job to a worker; an *attempt* is one run of the handler that ended by itself; a
//! *verdict* is what the run came to; a *queue* is a named stream of jobs; the *bin* keeps what waits for a person.
//!
//! # What it promises
//!
//! 1. An enqueue that returned `Ok` survives `kill -9` and a power cut.
//! 2. Every job runs at least once, or ends in the bin with its reason. None vanishes, none hangs for ever.
//! 3. A worker that was cut off and comes back changes nothing about the jobs that others took over.
//! 4. No error of the store, panic or poisonous job stops a worker for longer than the fault itself.
//! 5. Limits are settings with safe defaults; whoever passes one gets an error that names it.
//!
//! [`book::promises`] says how each is kept, and what is *not* promised: that a job runs exactly once.
//!
//! # What happens when
//!
//! | event | result |
//! | --- | --- |
//! | the handler returns `Ok` | done, removed |
//! | it fails, attempts are left | tried again after the policy's next delay |
//! | it fails, none are left | the bin: `retries_exhausted`, with every attempt's error |
//! | it panics | as a failure, with message and place; the worker lives on |
//! | its time limit passes | it is stopped; as a failure |
//! | the worker is told to stop | running handlers finish within the grace, the rest is given back, nothing is counted |
//! | the worker dies | another runs its jobs within seconds; after three deaths the bin: `delivery_limit` |
//! | the arguments cannot be decoded | the bin: `undecodable`, bytes kept |
//! | no worker knows the task | set aside, nothing counted, until one comes that does |
//! | the disk is full, the file locked or gone | enqueues fail with an error that says so; workers wait and go on |
//!
//! All rows, with the reasons: [`book::failures`].
//!
//! # When not to use it
//!
//! * The caller needs the result: a job has no return value that somebody waits for. Let the handler store it.
//! * The work is lost with the process anyway: a channel and a task of your runtime are cheaper.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

pub mod book;
mod client;
mod connect;
pub mod duration;
pub mod prelude;
mod task_list;
mod worker_main;
mod worker_options;

pub use celeriac_core as core;
pub use celeriac_core::{
    Broker, Call, Cancelled, Details, Enqueued, Error, ErrorCode, JobId, Priority, QueueName, Result,
    RetryPolicy, TaskName, Timestamp,
};
pub use celeriac_macros::task;
pub use celeriac_metrics as metrics;
pub use celeriac_monitor as monitor;
pub use celeriac_postgres as postgres;
pub use celeriac_worker::{
    Context, ExitWhenEmpty, Invocation, Phase, Prefetch, Propagation, Pulse, Registry, RegistryError, Report,
    Shutdown, State, States, Subscription, TaskDefinition, TaskError, Vitals, Worker, WorkerBuilder,
    WorkerError, set_propagation,
};

pub use crate::client::Client;
pub use crate::connect::connect_broker;
pub use crate::worker_main::{WorkerMain, worker};

/// For the code that `#[task]` writes. Not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use celeriac_core::{Call, DecodeError, Delivery, Payload, TaskSpec};
    pub use celeriac_worker::__celeriac_field as field;
    pub use celeriac_worker::generated::*;
    pub use celeriac_worker::{Invocation, Parameter, StateKey, TaskDefinition, TaskFuture};
    pub use {inventory, serde};
}
