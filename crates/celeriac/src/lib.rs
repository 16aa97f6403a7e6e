//! The facade.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

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
pub use celeriac_worker::{
    Context, ExitWhenEmpty, Invocation, Prefetch, Registry, RegistryError, Report, Shutdown, State, States,
    Subscription, TaskDefinition, TaskError, Worker, WorkerBuilder, WorkerError,
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
