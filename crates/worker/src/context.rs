use std::sync::Arc;

use celeriac_core::{Headers, JobId, QueueName, TaskName, Timestamp};
use tokio_util::sync::CancellationToken;

/// What a handler may know about the job that it runs. A parameter of this type is handed in by the worker.
#[derive(Clone, Debug)]
pub struct Context {
    facts: Arc<Facts>,
    cancelled: CancellationToken,
}

/// The fixed part of a [`Context`].
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: JobId,
    pub(crate) task: TaskName,
    pub(crate) queue: QueueName,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) deliveries: u32,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) headers: Headers,
}

impl Context {
    pub(crate) fn new(facts: Facts, cancelled: CancellationToken) -> Self {
        Self { facts: Arc::new(facts), cancelled }
    }

    /// A context for calling a task's function in a test: attempt 1 of a job of `task` in `default`.
    pub fn for_test(task: &str) -> Self {
        let task = TaskName::new(task).unwrap_or_else(|error| panic!("{error}"));
        let facts = Facts {
            id: JobId::from_key(task.as_str(), "test"),
            task,
            queue: QueueName::default_queue(),
            attempt: 1,
            max_attempts: 1,
            deliveries: 0,
            enqueued_at: Timestamp::from_micros(0),
            headers: Headers::new(),
        };
        Self::new(facts, CancellationToken::new())
    }

    /// The job's id: the same in every attempt, so it can serve as a key for effects elsewhere.
    pub fn job_id(&self) -> JobId {
        self.facts.id
    }

    /// The task's name.
    pub fn task(&self) -> &TaskName {
        &self.facts.task
    }

    /// The queue it came from.
    pub fn queue(&self) -> &QueueName {
        &self.facts.queue
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.facts.attempt
    }

    /// How many attempts are allowed.
    pub fn max_attempts(&self) -> u32 {
        self.facts.max_attempts
    }

    /// How many times a worker died while it held this job.
    pub fn lost_deliveries(&self) -> u32 {
        self.facts.deliveries
    }

    /// When the job was first stored, by the store's clock.
    pub fn enqueued_at(&self) -> Timestamp {
        self.facts.enqueued_at
    }

    /// The text that travels with the job.
    pub fn headers(&self) -> &Headers {
        &self.facts.headers
    }

    /// Whether the handler should stop: the job was cancelled, its time is up, the worker's grace is over, or
    /// its lease was lost.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits until the handler should stop. An asynchronous handler is dropped shortly afterwards in any case; a
    /// synchronous one must look at [`Context::is_cancelled`] by itself.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}
