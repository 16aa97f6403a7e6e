use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{Headers, Idempotency, JobPolicy, NewJob, Start};
use crate::name::QueueName;
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// One call of a task that is not stored yet: what `my_task::call(…)` returns.
///
/// Setters override what the task says, for this call alone. A setter that is given something wrong keeps the
/// error; enqueueing then returns it, and nothing is stored.
#[derive(Debug)]
#[must_use = "a call does nothing until it is enqueued"]
pub struct Call {
    spec: TaskSpec,
    payload: Result<Payload>,
    queue: Result<QueueName>,
    priority: Result<Priority>,
    start: Start,
    ttl: Option<Duration>,
    policy: JobPolicy,
    headers: Headers,
    id: Option<JobId>,
}

impl Call {
    /// A call of the task `spec` with `arguments`, a structure with one field for each parameter.
    pub fn new<T: Serialize + ?Sized>(spec: TaskSpec, arguments: &T) -> Self {
        let payload =
            Payload::encode(arguments).map_err(|source| Error::Arguments { task: spec.name.clone(), source });
        Self::with_payload(spec, payload)
    }

    /// A call whose arguments are JSON text, for programs that do not know the task's Rust types.
    pub fn from_json(spec: TaskSpec, arguments: &str) -> Self {
        let payload = Payload::from_json(arguments)
            .map_err(|source| Error::Arguments { task: spec.name.clone(), source });
        Self::with_payload(spec, payload)
    }

    fn with_payload(spec: TaskSpec, payload: Result<Payload>) -> Self {
        Self {
            queue: Ok(spec.queue.clone()),
            priority: Ok(spec.priority),
            ttl: spec.ttl,
            spec,
            payload,
            start: Start::Now,
            policy: JobPolicy::default(),
            headers: Headers::new(),
            id: None,
        }
    }

    /// Puts the job in another queue than the task's own.
    pub fn queue(mut self, name: impl AsRef<str>) -> Self {
        self.queue = QueueName::new(name).map_err(Error::from);
        self
    }

    /// 0 to 9, higher first.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Priority::new(priority).map_err(Error::from);
        self
    }

    /// Starts at the earliest this long after it is stored, by the store's clock.
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.start = Start::After(delay);
        self
    }

    /// Starts at the earliest at this instant, by the store's clock.
    pub const fn run_at(mut self, at: Timestamp) -> Self {
        self.start = Start::At(at);
        self
    }

    /// How many times the handler may fail before the job goes to the bin; at least 1.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.policy.max_attempts = Some(attempts);
        self
    }

    /// Other delays between attempts. Unless [`Call::max_attempts`] says otherwise, the policy's own number of
    /// attempts goes with it.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.policy.retry = Some(policy);
        self
    }

    /// The longest run of one attempt.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.policy.timeout = Some(limit);
        self
    }

    /// How long the job may wait for its first start once it is due; then it is `expired`.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Uses this id, and stores nothing if a job with this id was enqueued before: for repeating an enqueue
    /// whose answer was lost.
    pub const fn id(mut self, id: JobId) -> Self {
        self.id = Some(id);
        self
    }

    /// As [`Call::id`], with an id made from the task's name and `key`: one job for one `key`, however often it
    /// is enqueued within the days that ids are remembered.
    pub fn idempotency_key(mut self, key: impl AsRef<str>) -> Self {
        self.id = Some(JobId::from_key(self.spec.name.as_str(), key.as_ref()));
        self
    }

    /// Adds text that travels with the job. Operators see it: no secrets.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// The task that is called.
    pub const fn task(&self) -> &TaskSpec {
        &self.spec
    }

    /// The job to store. `fresh` is used unless the call has an id of its own.
    ///
    /// # Errors
    /// The first thing that was wrong with an argument or a setter.
    pub fn into_job(self, fresh: JobId) -> Result<NewJob> {
        let mut job = NewJob::new(self.id.unwrap_or(fresh), self.queue?, self.spec.name, self.payload?);
        job.idempotency = if self.id.is_some() { Idempotency::ById } else { Idempotency::None };
        job.priority = self.priority?;
        job.start = self.start;
        job.ttl = self.ttl;
        job.policy = self.policy;
        job.headers = self.headers;
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskName;

    fn spec() -> TaskSpec {
        TaskSpec::new(TaskName::new("mail").unwrap())
    }

    #[test]
    fn a_wrong_setter_is_reported_at_the_enqueue() {
        let fresh = JobId::from_key("a", "b");
        let error = Call::from_json(spec(), "{}").priority(10).into_job(fresh).unwrap_err();
        assert_eq!(error.code().as_str(), "invalid");
        assert!(error.to_string().contains("0 to 9"), "{error}");
        let error = Call::from_json(spec(), "{}").queue("two words").into_job(fresh).unwrap_err();
        assert_eq!(error.code().as_str(), "invalid_name");
        let error = Call::from_json(spec(), "[]").into_job(fresh).unwrap_err();
        assert_eq!(error.code().as_str(), "arguments");
    }

    #[test]
    fn a_key_makes_the_call_idempotent() {
        let fresh = JobId::from_key("a", "b");
        let job = Call::from_json(spec(), "{}").idempotency_key("order-1").into_job(fresh).unwrap();
        assert_eq!(job.id, JobId::from_key("mail", "order-1"));
        assert_eq!(job.idempotency, Idempotency::ById);
        let plain = Call::from_json(spec(), "{}").into_job(fresh).unwrap();
        assert_eq!((plain.id, plain.idempotency), (fresh, Idempotency::None));
    }
}
