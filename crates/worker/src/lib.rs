//! Runs jobs: claim → buffer → run → settle.
//!
//! [`Worker::builder`] takes a broker and a [`Registry`] of tasks, [`Worker::run`] works until its [`Shutdown`]
//! says stop, and the [`Report`] tells what was done. The facade `celeriac` adds `#[task]` and a ready-made `main`.
//!
//! # How a job goes through a worker
//! 1. The *claimer* asks the store for as many jobs as `prefetch` allows ([`Prefetch`]), queue by queue as the
//!    [`Subscription`] shares them out, and puts them into the *buffer*.
//! 2. A *slot*, one for each unit of concurrency, takes the next job and runs its handler to an outcome, which
//!    [`celeriac_core::judge`] turns into a verdict.
//! 3. A *settler* sends all verdicts that have gathered since its last call, in one transaction.
//!
//! Along the way it records the metrics of `celeriac-metrics` into the recorder that is installed when it starts, and
//! keeps its [`Pulse`].
//!
//! Beside these, a thread of its own renews the lease and looks for cancellations, and the maintenance that
//! any process may do runs about once a second.
//!
//! # What can go wrong
//!
//! | event | what the worker does |
//! | --- | --- |
//! | a handler fails, panics, or runs out of time | the job is tried again or goes to the bin, as its policy says |
//! | a handler blocks the runtime | other handlers wait; the lease is kept, from its own thread |
//! | the store is away | what is held runs on; verdicts are kept and sent when it is back; one line in the log |
//! | the store is away for longer than the lease, or took the worker for dead | handlers are told to stop and dropped, their verdicts thrown away; the worker registers under a new id and goes on |
//! | jobs wait in the buffer behind long ones | after a second they are given back for others |
//! | a task takes the worker's transaction | what it wrote and its verdict are committed together, or neither is |
//! | [`Shutdown::drain`] | nothing more is claimed, what has not started is released, what runs may finish within the grace |
//! | [`Shutdown::now`] | handlers are told to stop, and dropped a moment later |

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod abandoned;
mod buffer;
mod claimer;
mod context;
mod definition;
mod delivery;
#[doc(hidden)]
pub mod generated;
mod lease;
mod maintenance;
mod outbox;
mod panic_capture;
mod prefetch;
mod pulse;
mod registry;
mod report;
mod session;
mod settler;
mod shares;
mod shutdown;
mod slot;
mod spin_guard;
mod state;
mod subscription;
mod supervisor;
mod task_error;
mod trace;
mod transaction;
mod trouble;
mod worker;

pub use context::Context;
pub use definition::{Invocation, Parameter, TaskDefinition, TaskFuture};
pub use prefetch::Prefetch;
pub use pulse::{Phase, Pulse, Vitals};
pub use registry::{Registry, RegistryError};
pub use report::Report;
pub use shutdown::Shutdown;
pub use state::{State, StateKey, States};
pub use subscription::{Order, Subscription};
pub use task_error::TaskError;
pub use trace::{Propagation, inject, set_propagation};
pub use worker::{ExitWhenEmpty, Worker, WorkerBuilder, WorkerError};
