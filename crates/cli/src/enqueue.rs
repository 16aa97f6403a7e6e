use std::time::Duration;

use celeriac::core::{
    EnqueueOptions, Enqueued, JobId, Priority, QueueName, RetryPolicy, Start, TaskName, Timestamp,
    parse_duration,
};
use clap::Args;
use serde::Serialize;

use crate::command_line::{bounded, job_id, parsed};
use crate::failure::{Exit, Failure};
use crate::import::{self, Source};
use crate::job_request::{Catalogue, Identity, JobRequest, Strangers};
use crate::output::Output;
use crate::store::{Missing, Store};

/// Store a job and print its id, or store one for each line of a file
///
/// The job is on disk when the command returns. Its arguments are checked against the
/// parameters that the task's worker has announced; see `celeriac tasks`.
///
///     celeriac enqueue thumbnail '{"path": "a.png", "width": 200}' --delay 10m
///
/// With --from, each line of the file is a JSON object with the fields task, args, queue,
/// priority, delay, run_at, ttl, timeout, max_attempts, retry, id, idempotency_key and
/// headers; only task is required. A bad line is reported with its number and the others go
/// on; the exit code is 1 then.
///
///     {"task": "thumbnail", "args": {"path": "a.png", "width": 200}, "delay": "10m"}
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct EnqueueCommand {
    /// The task's name
    #[arg(required_unless_present = "from", value_parser = parsed::<TaskName>)]
    task: Option<TaskName>,
    /// The arguments as one JSON object
    #[arg(value_name = "JSON", default_value = "{}", conflicts_with = "from")]
    arguments: String,
    /// Read jobs from a file, one JSON object a line; - is the standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "task")]
    from: Option<Source>,
    /// Another queue than the task's own
    #[arg(long, value_parser = parsed::<QueueName>, conflicts_with = "from")]
    queue: Option<QueueName>,
    /// 0 to 9, higher first
    #[arg(long, value_name = "N", value_parser = parsed::<Priority>, allow_hyphen_values = true, conflicts_with = "from")]
    priority: Option<Priority>,
    /// Start after this long at the earliest, such as 90s or 1h 30m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with_all = ["run_at", "from"])]
    delay: Option<Duration>,
    /// Start at this instant at the earliest, such as 2027-01-31T08:30:00Z
    #[arg(long, value_name = "INSTANT", value_parser = Timestamp::parse_rfc3339, conflicts_with = "from")]
    run_at: Option<Timestamp>,
    /// Give up if it has not started this long after it was due
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "from")]
    ttl: Option<Duration>,
    /// The longest run of one attempt
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "from")]
    timeout: Option<Duration>,
    /// How many times it may fail before it goes to the bin
    #[arg(long, value_name = "N", value_parser = bounded(1..=1_000_000_u32), conflicts_with = "from")]
    max_attempts: Option<u32>,
    /// Delays between attempts: "5s, 1m, 10m" or "exponential(base=1s, factor=2, max=1h)"
    #[arg(long, value_name = "POLICY", value_parser = parsed::<RetryPolicy>, allow_hyphen_values = true, conflicts_with = "from")]
    retry: Option<RetryPolicy>,
    /// Use this UUID; a second job of the same id is not stored
    #[arg(long, value_name = "UUID", value_parser = job_id, conflicts_with_all = ["idempotency_key", "from"])]
    id: Option<JobId>,
    /// One job for one key of a task, however often it is enqueued
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    idempotency_key: Option<String>,
    /// Text that travels with the job; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, conflicts_with = "from")]
    headers: Vec<(String, String)>,
    /// Accept a task that no worker has announced, and do not check its arguments
    #[arg(long)]
    allow_unknown: bool,
    /// Declare queues that do not exist instead of refusing
    #[arg(long)]
    declare_queue: bool,
}

#[derive(Serialize)]
struct Answer {
    id: JobId,
    existed: bool,
}

pub(crate) async fn run(
    command: EnqueueCommand,
    store: &Store,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let (strangers, missing) = if command.allow_unknown {
        (Strangers::Allow, Missing::Create)
    } else {
        // A store that is not there knows no task.
        (Strangers::Refuse, Missing::Refuse)
    };
    let broker = store.open(missing).await?;
    let catalogue = Catalogue::read(&*broker, strangers).await?;
    let mut options = EnqueueOptions::default();
    options.declare_missing = command.declare_queue;
    if let Some(source) = &command.from {
        return import::run(source, &*broker, &catalogue, &options, output).await;
    }
    let job = command.request()?.into_job(&catalogue)?;
    let enqueued = broker.enqueue(vec![job], options).await?;
    for enqueued in enqueued {
        let existed = matches!(enqueued, Enqueued::Existed(_));
        if output.is_json() {
            output.json(&Answer { id: enqueued.id(), existed })?;
        } else {
            output.line(enqueued.id())?;
            if existed {
                output.remark("a job of this id was enqueued before; nothing was stored");
            }
        }
    }
    Ok(Exit::Done)
}

impl EnqueueCommand {
    fn request(self) -> Result<JobRequest, Failure> {
        // The parser demands a task unless --from is there.
        let task = self.task.ok_or_else(|| Failure::usage("the task's name is missing"))?;
        let mut request = JobRequest::new(task, self.arguments);
        request.queue = self.queue;
        request.priority = self.priority;
        request.start = match (self.delay, self.run_at) {
            (Some(delay), _) => Start::After(delay),
            (None, Some(instant)) => Start::At(instant),
            (None, None) => Start::Now,
        };
        request.ttl = self.ttl;
        request.timeout = self.timeout;
        request.max_attempts = self.max_attempts;
        request.retry = self.retry;
        request.identity = match (self.id, self.idempotency_key) {
            (Some(id), _) => Identity::Id(id),
            (None, Some(key)) => Identity::Key(key),
            (None, None) => Identity::Fresh,
        };
        request.headers = self.headers.into_iter().collect();
        Ok(request)
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as name=value, such as tenant=acme".to_owned()),
    }
}
