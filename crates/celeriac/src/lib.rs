//! The facade.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod client;
mod connect;
pub mod duration;
pub mod prelude;

pub use celeriac_core as core;
pub use celeriac_core::{
    Broker, Call, Cancelled, Details, Enqueued, Error, ErrorCode, JobId, Priority, QueueName, Result, RetryPolicy,
    TaskName, Timestamp,
};
pub use celeriac_macros::task;
pub use celeriac_worker::{
    Context, Invocation, Registry, RegistryError, State, States, TaskDefinition, TaskError,
};

pub use crate::client::Client;
pub use crate::connect::connect_broker;

/// For the code that `#[task]` writes. Not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use celeriac_core::{Call, DecodeError, Delivery, Payload, TaskSpec};
    pub use celeriac_worker::{
        Argument, HandlerError, HandlerOutput, Invocation, Parameter, SpecLiterals, StateKey, TaskDefinition,
        TaskFuture, ViaDisplay, ViaError, ViaTaskError, asynchronous, blocking, spec,
    };
    pub use {inventory, serde};
}
