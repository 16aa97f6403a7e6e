use std::collections::BTreeMap;

use celeriac_core::{Broker, TaskName, TaskSpec};

use crate::definition::TaskDefinition;
use crate::state::{StateKey, States};

/// The tasks that a worker knows, by name.
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<TaskName, Registered>);

/// A definition and its evaluated specification.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub(crate) definition: TaskDefinition,
    pub(crate) spec: TaskSpec,
}

/// Why a set of tasks cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two tasks have one name. A worker could not tell which of them a job means.
    #[error(
        "two tasks are named {name:?}: at {first} and at {second}; give one of them #[task(name = \"…\")]"
    )]
    Duplicate {
        /// The name.
        name: String,
        /// Where the one is.
        first: String,
        /// Where the other is.
        second: String,
    },
    /// No task is registered. Either there is none, or the crate with the tasks is a dependency that the
    /// binary never names, and the compiler left it out.
    #[error(
        "no task is registered. If your tasks are in a library, name it in the worker's main.rs, so that it is \
         linked:\n\n    use my_tasks as _;\n\nor register them by hand: Registry::new().with(my_task::definition())"
    )]
    Empty,
    /// A task needs a state that the worker was not given.
    #[error(
        "task {task} ({place}) needs State<{state}>; add .state(…) with a value of that type to the worker"
    )]
    MissingState {
        /// The task.
        task: String,
        /// Where it is.
        place: String,
        /// The type.
        state: &'static str,
    },
    /// A task takes the worker's transaction, and this store has none to give.
    #[error(
        "task {task} ({place}) takes a {transaction}, which {store} cannot give: connect the worker to a postgres:// \
         broker, or let the task take its database as a State and write so that a second run does no harm"
    )]
    NoTransactions {
        /// The task.
        task: String,
        /// Where it is.
        place: String,
        /// The type that it takes.
        transaction: &'static str,
        /// The store, without its password.
        store: String,
    },
    /// A name that no store would take.
    #[error("task {name:?} at {place}: {problem}")]
    Name {
        /// The name.
        name: String,
        /// Where the task is.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl Registry {
    /// No tasks yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// All tasks that were registered with `#[task]` in this program.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`] and [`RegistryError::Name`]. An empty registry is no error here, but a
    /// worker refuses to start with it.
    pub fn collect() -> Result<Self, RegistryError> {
        inventory::iter::<TaskDefinition>
            .into_iter()
            .try_fold(Self::new(), |registry, task| registry.with(*task))
    }

    /// Adds a task by hand: for tests, and for platforms without life before `main`.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`] and [`RegistryError::Name`].
    pub fn with(mut self, definition: TaskDefinition) -> Result<Self, RegistryError> {
        let place = |task: &TaskDefinition| format!("{}:{}", task.file, task.line);
        let name = TaskName::new(definition.name).map_err(|error| RegistryError::Name {
            name: definition.name.to_owned(),
            place: place(&definition),
            problem: error.problem,
        })?;
        if let Some(other) = self.0.get(&name) {
            return Err(RegistryError::Duplicate {
                name: definition.name.to_owned(),
                first: place(&other.definition),
                second: place(&definition),
            });
        }
        self.0.insert(name, Registered { spec: (definition.spec)(), definition });
        Ok(self)
    }

    /// Whether there is no task at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The definitions with their specifications, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskDefinition, &TaskSpec)> {
        self.0.values().map(|task| (&task.definition, &task.spec))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &TaskName> {
        self.0.keys()
    }

    pub(crate) fn get(&self, name: &TaskName) -> Option<&Registered> {
        self.0.get(name)
    }

    /// Checks that a worker can serve these tasks with these states.
    ///
    /// # Errors
    /// [`RegistryError::Empty`] and [`RegistryError::MissingState`].
    pub fn check(&self, states: &States) -> Result<(), RegistryError> {
        self.check_given(|key| states.contains(key))
    }

    /// Checks that the broker has the transactions that these tasks take.
    ///
    /// # Errors
    /// [`RegistryError::NoTransactions`].
    pub fn check_broker(&self, broker: &dyn Broker) -> Result<(), RegistryError> {
        let given = broker.transactions().map(celeriac_core::Transactions::handle);
        for task in self.0.values() {
            let Some(key) = task.definition.transaction.map(|key| key()) else { continue };
            if given != Some(key.id()) {
                return Err(RegistryError::NoTransactions {
                    task: task.definition.name.to_owned(),
                    place: format!("{}:{}", task.definition.file, task.definition.line),
                    transaction: key.name(),
                    store: broker.to_string(),
                });
            }
        }
        Ok(())
    }

    /// As [`Registry::check`], when some states are made later: `given` says whether a state is or will be there.
    ///
    /// # Errors
    /// [`RegistryError::Empty`] and [`RegistryError::MissingState`].
    pub fn check_given(&self, given: impl Fn(StateKey) -> bool) -> Result<(), RegistryError> {
        if self.0.is_empty() {
            return Err(RegistryError::Empty);
        }
        for task in self.0.values() {
            if let Some(missing) = (task.definition.states)().into_iter().find(|key| !given(*key)) {
                return Err(RegistryError::MissingState {
                    task: task.definition.name.to_owned(),
                    place: format!("{}:{}", task.definition.file, task.definition.line),
                    state: missing.name(),
                });
            }
        }
        Ok(())
    }
}
