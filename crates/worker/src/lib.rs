//! Runs jobs: claim → buffer → run → settle.

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
mod trouble;
mod worker;

pub use context::Context;
pub use definition::{Invocation, Parameter, TaskDefinition, TaskFuture};
pub use prefetch::Prefetch;
pub use registry::{Registry, RegistryError};
pub use report::Report;
pub use shutdown::Shutdown;
pub use state::{State, StateKey, States};
pub use subscription::{Order, Subscription};
pub use task_error::TaskError;
pub use worker::{ExitWhenEmpty, Worker, WorkerBuilder, WorkerError};
