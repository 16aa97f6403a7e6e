//! Runs jobs: claim → buffer → run → settle.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod context;
mod definition;
mod generated;
mod registry;
mod state;
mod task_error;

pub use context::Context;
pub use definition::{Invocation, Parameter, TaskDefinition, TaskFuture};
#[doc(hidden)]
pub use generated::{Argument, HandlerOutput, SpecLiterals, asynchronous, blocking, spec};
pub use registry::{Registry, RegistryError};
pub use state::{State, StateKey, States};
pub use task_error::{HandlerError, TaskError, ViaDisplay, ViaError, ViaTaskError};
