//! The facade.

/// For the code that `#[task]` writes. Not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use celeriac_core::{Call, DecodeError, Delivery, Payload, TaskSpec};
    pub use celeriac_worker::{
        Argument, HandlerError, HandlerOutput, Invocation, Parameter, SpecLiterals, StateKey, TaskDefinition, TaskFuture,
        ViaDisplay, ViaError, ViaTaskError, asynchronous, blocking, spec,
    };
    pub use inventory;
    pub use serde;
}

pub use celeriac_core as core;
pub use celeriac_core::Call;
pub use celeriac_macros::task;
pub use celeriac_worker::{Context, State, States, TaskError, Registry, RegistryError, TaskDefinition, Invocation};
