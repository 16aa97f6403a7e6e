use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::{QueueName, TaskName};
use crate::priority::Priority;
use crate::retry::RetryPolicy;

/// How often a job may be handed to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// Redelivered when its worker dies; the default.
    #[default]
    AtLeastOnce,
    /// Acknowledged before it runs: never redelivered, never tried again (unless its handler itself snoozes it). If its worker dies, or the
    /// handler fails, the job ends in the dead-letter bin.
    AtMostOnce,
}

/// What a task says about all its jobs. Each part can be overridden by a single call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskSpec {
    /// The stable name.
    pub name: TaskName,
    /// Where its jobs go when the call names no queue.
    pub queue: QueueName,
    /// Priority of its jobs when the call gives none.
    pub priority: Priority,
    /// The longest run of one attempt; none by default, since only its author knows how long a task may take.
    pub timeout: Option<Duration>,
    /// Delays between attempts.
    pub retry: RetryPolicy,
    /// How many times the handler may fail; at least 1.
    pub max_attempts: u32,
    /// How long a job may wait before its first start; none by default.
    pub ttl: Option<Duration>,
    /// At least once, or at most once.
    pub delivery: Delivery,
}

impl TaskSpec {
    /// A task on the queue `default` with every default.
    pub fn new(name: TaskName) -> Self {
        let retry = RetryPolicy::default();
        Self {
            name,
            queue: QueueName::default_queue(),
            priority: Priority::default(),
            timeout: None,
            max_attempts: retry.default_attempts(),
            retry,
            ttl: None,
            delivery: Delivery::default(),
        }
    }
}

/// What a worker tells the store about a task that it knows, so that programs without the Rust types can
/// enqueue it and be told at once what does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The stable name.
    pub name: TaskName,
    /// Where its jobs go by default.
    pub queue: QueueName,
    /// Their priority by default.
    pub priority: Priority,
    /// How long they may wait by default.
    #[serde(default)]
    pub ttl: Option<Duration>,
    /// The parameters that make up the payload.
    pub parameters: Vec<ParameterInfo>,
}

impl TaskInfo {
    /// The public part of a specification, with the task's parameters.
    pub fn new(spec: &TaskSpec, parameters: Vec<ParameterInfo>) -> Self {
        Self {
            name: spec.name.clone(),
            queue: spec.queue.clone(),
            priority: spec.priority,
            ttl: spec.ttl,
            parameters,
        }
    }
}

/// One parameter of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// Its Rust type as it was written, such as `Option<u32>`.
    pub ty: String,
}
