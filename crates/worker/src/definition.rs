use std::any::Any;

use celeriac_core::{BoxFuture, DecodeError, Payload, TaskSpec};

use crate::context::Context;
use crate::state::{StateKey, States};
use crate::task_error::TaskError;

/// What a running handler comes to.
pub type TaskFuture = BoxFuture<'static, Result<(), TaskError>>;

/// One registered task: what `#[task]` writes beside the function.
///
/// It holds only literals and function pointers, because it is made before `main` runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TaskDefinition {
    /// The stable name.
    pub name: &'static str,
    /// Everything that the attribute said.
    pub spec: fn() -> TaskSpec,
    /// Decodes the arguments, takes the states and runs the handler. Synchronous handlers run on the blocking
    /// pool.
    pub run: fn(Invocation) -> Result<TaskFuture, DecodeError>,
    /// Whether a payload decodes to the task's arguments.
    pub check: fn(&Payload) -> Result<(), DecodeError>,
    /// The parameters that make up the payload.
    pub parameters: &'static [Parameter],
    /// The states that the function needs.
    pub states: fn() -> Vec<StateKey>,
    /// The type of the transaction that the function takes, if it takes one.
    pub transaction: Option<fn() -> StateKey>,
    /// Where the function is.
    pub file: &'static str,
    /// Its line.
    pub line: u32,
}

impl TaskDefinition {
    /// For the code that `#[task]` writes.
    #[doc(hidden)]
    #[expect(clippy::too_many_arguments, reason = "called by generated code only; each is a field")]
    pub const fn new(
        name: &'static str,
        spec: fn() -> TaskSpec,
        run: fn(Invocation) -> Result<TaskFuture, DecodeError>,
        check: fn(&Payload) -> Result<(), DecodeError>,
        parameters: &'static [Parameter],
        states: fn() -> Vec<StateKey>,
        file: &'static str,
        line: u32,
    ) -> Self {
        Self { name, spec, run, check, parameters, states, transaction: None, file, line }
    }

    /// The function takes the worker's transaction.
    #[doc(hidden)]
    #[must_use]
    pub const fn in_transaction(mut self, key: fn() -> StateKey) -> Self {
        self.transaction = Some(key);
        self
    }
}

/// A parameter of a task, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub ty: &'static str,
}

/// What a task is run with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Invocation {
    /// The arguments.
    pub payload: Payload,
    /// The job.
    pub context: Context,
    /// What the worker hands in.
    pub states: States,
    /// The worker's transaction, for a task that takes it.
    pub transaction: Option<Box<dyn Any + Send>>,
}

impl Invocation {
    /// Without a transaction.
    pub const fn new(payload: Payload, context: Context, states: States) -> Self {
        Self { payload, context, states, transaction: None }
    }
}

inventory::collect!(TaskDefinition);
