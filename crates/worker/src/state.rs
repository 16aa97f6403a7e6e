use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::task_error::TaskError;

/// Something that the worker hands to handlers: a pool, a client, a configuration.
///
/// A parameter of this type is not part of the job. The value is given once, with `worker().state(value)`, and
/// shared by all handlers; it reads like a reference.
pub struct State<T: ?Sized>(Arc<T>);

impl<T> State<T> {
    /// Wraps a value, for calling a task's function in a test.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: ?Sized> From<Arc<T>> for State<T> {
    fn from(shared: Arc<T>) -> Self {
        Self(shared)
    }
}

impl<T: ?Sized> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> fmt::Debug for State<T> {
    /// The type only: a state may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State<{}>", std::any::type_name::<T>())
    }
}

/// The type of a state that a task needs, with its name for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateKey {
    id: TypeId,
    name: &'static str,
}

impl StateKey {
    /// The key of `T`.
    pub fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: std::any::type_name::<T>() }
    }

    /// The type.
    pub const fn id(&self) -> TypeId {
        self.id
    }

    /// The type's name, for messages.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// All states of a worker, one for each type. A clone shares them.
#[derive(Clone, Default)]
pub struct States(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl States {
    /// Adds a state; one of the same type is replaced.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Whether a state of this type is there.
    pub fn contains(&self, key: StateKey) -> bool {
        self.0.contains_key(&key.id)
    }

    /// The state of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        let shared = self.0.get(&TypeId::of::<T>())?;
        Arc::clone(shared).downcast::<T>().ok().map(State)
    }

    /// The state of type `T` for a handler. A worker checks at its start that all are there, so the failure
    /// is seen only by who runs a definition by hand.
    #[doc(hidden)]
    pub fn hand_in<T: Send + Sync + 'static>(&self) -> Result<State<T>, TaskError> {
        self.get().ok_or_else(|| {
            TaskError::failed(format!("the worker has no State<{}>", std::any::type_name::<T>()))
        })
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}
