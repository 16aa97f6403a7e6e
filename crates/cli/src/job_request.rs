use std::collections::BTreeMap;
use std::time::Duration;

use celeriac::core::{
    Broker, Call, Error, JobId, NewJob, Priority, QueueName, RetryPolicy, Start, TaskInfo, TaskName,
    TaskSpec, nearest,
};
use uuid::Uuid;

use crate::failure::Failure;

/// A job as a person asks for it, by flags or in a line of a file.
#[derive(Clone, Debug)]
pub(crate) struct JobRequest {
    pub(crate) task: TaskName,
    /// JSON text, kept as it was written: parsing would round large numbers.
    pub(crate) arguments: String,
    pub(crate) queue: Option<QueueName>,
    pub(crate) priority: Option<Priority>,
    pub(crate) start: Start,
    pub(crate) ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) identity: Identity,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Where a job's id comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Made here.
    #[default]
    Fresh,
    /// Given.
    Id(JobId),
    /// Made from a key and the task's name.
    Key(String),
}

/// The tasks that workers have announced.
#[derive(Debug)]
pub(crate) struct Catalogue {
    tasks: BTreeMap<TaskName, TaskInfo>,
    strangers: Strangers,
}

/// What happens to a task that no worker has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// Its arguments are taken as they are.
    Allow,
    /// It is an error.
    Refuse,
}

impl JobRequest {
    /// A plain job of `task`.
    pub(crate) fn new(task: TaskName, arguments: impl Into<String>) -> Self {
        Self {
            task,
            arguments: arguments.into(),
            queue: None,
            priority: None,
            start: Start::Now,
            ttl: None,
            timeout: None,
            max_attempts: None,
            retry: None,
            identity: Identity::Fresh,
            headers: BTreeMap::new(),
        }
    }

    /// The job to store, if its task is known and takes these arguments.
    pub(crate) fn into_job(self, catalogue: &Catalogue) -> Result<NewJob, Failure> {
        let mut spec = TaskSpec::new(self.task.clone());
        if let Some(info) = catalogue.look_up(&self.task)? {
            spec.queue = info.queue.clone();
            spec.priority = info.priority;
            spec.ttl = info.ttl;
            // Text that is no JSON is reported by the call below, with the place.
            if let Ok(arguments) = serde_json::from_str(&self.arguments) {
                info.check_arguments(&arguments)?;
            }
        }
        let mut call = Call::from_json(spec, &self.arguments);
        if let Some(queue) = &self.queue {
            call = call.queue(queue.as_str());
        }
        if let Some(priority) = self.priority {
            call = call.priority(priority.get());
        }
        call = match self.start {
            Start::After(delay) => call.delay(delay),
            Start::At(instant) => call.run_at(instant),
            _ => call,
        };
        if let Some(ttl) = self.ttl {
            call = call.ttl(ttl);
        }
        if let Some(timeout) = self.timeout {
            call = call.timeout(timeout);
        }
        if let Some(attempts) = self.max_attempts {
            call = call.max_attempts(attempts);
        }
        if let Some(retry) = self.retry {
            call = call.retry(retry);
        }
        call = match self.identity {
            Identity::Fresh => call,
            Identity::Id(id) => call.id(id),
            Identity::Key(key) => call.idempotency_key(key),
        };
        for (name, value) in self.headers {
            call = call.header(name, value);
        }
        Ok(call.into_job(JobId::from_uuid(Uuid::now_v7()))?)
    }
}

impl Catalogue {
    /// Asks the store once.
    pub(crate) async fn read(broker: &dyn Broker, strangers: Strangers) -> Result<Self, Error> {
        let tasks = broker.tasks().await?;
        Ok(Self { tasks: tasks.into_iter().map(|task| (task.name.clone(), task)).collect(), strangers })
    }

    fn look_up(&self, task: &TaskName) -> Result<Option<&TaskInfo>, Failure> {
        let known = self.tasks.get(task);
        if known.is_none() && self.strangers == Strangers::Refuse {
            let names = self.tasks.keys().map(TaskName::as_str);
            let meant = nearest(task.as_str(), names)
                .map(|name| format!(" (did you mean {name}?)"))
                .unwrap_or_default();
            return Err(Failure::failed(
                "unknown_task",
                format!(
                    "no worker has announced a task {task}{meant}; see `celeriac tasks`, start a worker that has it, \
                     or pass --allow-unknown"
                ),
            ));
        }
        Ok(known)
    }
}
