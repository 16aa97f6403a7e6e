//! A job as programs and people see it.

use celeriac::core::{Attempt, Details, Headers, JobId, Page, Room, Timestamp, format_duration};
use serde::Serialize;

use crate::age::{ago, ahead, now};
use crate::failure::Failure;
use crate::output::{Lines, Output, Tone, printable, shortened};
use crate::table::{Align, Cell, Table};

/// One job in JSON. The names are stable; fields may be added.
#[derive(Debug, Serialize)]
pub(crate) struct JobView {
    id: JobId,
    task: String,
    queue: String,
    priority: u8,
    room: Room,
    /// `ready`, `held`, `scheduled`, `parked` or `dead`.
    state: &'static str,
    since: String,
    enqueued_at: String,
    due_at: String,
    expires_at: Option<String>,
    attempt: u32,
    deliveries: u32,
    held_by: Option<String>,
    waits_for: Option<String>,
    reason: Option<&'static str>,
    last_error: Option<String>,
    /// The arguments; null when the bytes cannot be decoded.
    args: Option<serde_json::Value>,
    args_error: Option<String>,
    payload_bytes: usize,
    max_attempts: Option<u32>,
    retry: Option<String>,
    timeout_seconds: Option<f64>,
    headers: Headers,
    history: Vec<AttemptView>,
}

#[derive(Debug, Serialize)]
struct AttemptView {
    at: String,
    number: u32,
    worker: String,
    kind: &'static str,
    error: String,
}

/// A page of jobs in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct JobsView {
    jobs: Vec<JobView>,
    /// What `--after` takes for the next page; null after the last.
    next: Option<String>,
}

impl From<&Details> for JobView {
    fn from(details: &Details) -> Self {
        let job = &details.job;
        let (args, args_error) = match job.payload.to_json() {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            id: job.id,
            task: job.task.to_string(),
            queue: job.queue.to_string(),
            priority: job.priority.get(),
            room: details.room,
            state: state(details),
            since: details.since.to_string(),
            enqueued_at: job.enqueued_at.to_string(),
            due_at: job.due_at.to_string(),
            expires_at: job.expires_at.map(|at| at.to_string()),
            attempt: job.attempt,
            deliveries: job.deliveries,
            held_by: details.held_by.clone(),
            waits_for: details.waits_for.clone(),
            reason: details.reason.map(|reason| reason.as_str()),
            last_error: details.last_error().map(str::to_owned),
            args,
            args_error,
            payload_bytes: job.payload.len(),
            max_attempts: job.extras.policy.max_attempts,
            retry: job.extras.policy.retry.as_ref().map(ToString::to_string),
            timeout_seconds: job.extras.policy.timeout.map(|timeout| timeout.as_secs_f64()),
            headers: job.extras.headers.clone(),
            history: job.extras.history.iter().map(AttemptView::from).collect(),
        }
    }
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at.to_string(),
            number: attempt.number,
            worker: attempt.worker.clone(),
            kind: attempt.kind.as_str(),
            error: attempt.error.clone(),
        }
    }
}

impl JobsView {
    pub(crate) fn new(page: &Page) -> Self {
        Self { jobs: page.jobs.iter().map(JobView::from).collect(), next: page.next.clone() }
    }
}

const fn state(details: &Details) -> &'static str {
    match details.room {
        Room::Jobs if details.held_by.is_some() => "held",
        Room::Jobs => "ready",
        room => room.as_str(),
    }
}

/// The jobs that have not ended, one a line.
pub(crate) fn jobs_table(jobs: &[Details]) -> Table {
    let now = now();
    let mut table = Table::new([
        ("ID", Align::Left),
        ("TASK", Align::Left),
        ("QUEUE", Align::Left),
        ("PRIO", Align::Right),
        ("STATE", Align::Left),
        ("WHEN", Align::Left),
        ("FAILED", Align::Right),
        ("ARGUMENTS", Align::Left),
    ]);
    for details in jobs {
        let job = &details.job;
        table.row([
            Cell::from(job.id),
            Cell::from(&job.task),
            Cell::from(&job.queue),
            Cell::from(job.priority),
            Cell::from(state(details)),
            Cell::from(when(details, now)),
            Cell::count(u64::from(job.attempt), Tone::Warning),
            Cell::from(arguments(details, 60)),
        ]);
    }
    table
}

/// The dead jobs, one a line.
pub(crate) fn dead_table(jobs: &[Details]) -> Table {
    let now = now();
    let mut table = Table::new([
        ("ID", Align::Left),
        ("TASK", Align::Left),
        ("QUEUE", Align::Left),
        ("REASON", Align::Left),
        ("DIED", Align::Left),
        ("ERROR", Align::Left),
        ("ARGUMENTS", Align::Left),
    ]);
    for details in jobs {
        let job = &details.job;
        table.row([
            Cell::from(job.id),
            Cell::from(&job.task),
            Cell::from(&job.queue),
            Cell::toned(details.reason.map_or("-", |reason| reason.as_str()), Tone::Bad),
            Cell::from(ago(details.since, now)),
            Cell::from(shortened(details.last_error().unwrap_or("-"), 50)),
            Cell::from(arguments(details, 40)),
        ]);
    }
    table
}

/// Everything about one job, for a person.
pub(crate) fn show(details: &Details, output: &mut Output) -> Result<(), Failure> {
    let now = now();
    let job = &details.job;
    let mut facts: Vec<(&str, String)> = vec![
        ("id", job.id.to_string()),
        ("task", job.task.to_string()),
        ("queue", job.queue.to_string()),
        ("priority", job.priority.to_string()),
        ("state", format!("{} ({})", state(details), when(details, now))),
    ];
    if let Some(reason) = details.reason {
        facts.push(("reason", reason.to_string()));
    }
    if let Some(task) = &details.waits_for {
        facts.push(("waits for", format!("a worker that knows task {task}")));
    }
    facts.push(("enqueued", instant(job.enqueued_at, now)));
    facts.push(("due", instant(job.due_at, now)));
    if let Some(at) = job.expires_at {
        facts.push(("expires", instant(at, now)));
    }
    facts.push(("failed", times(job.attempt)));
    if job.deliveries > 0 {
        facts.push(("worker lost", times(job.deliveries)));
    }
    let policy = &job.extras.policy;
    if let Some(attempts) = policy.max_attempts {
        facts.push(("attempts", format!("at most {attempts}")));
    }
    if let Some(retry) = &policy.retry {
        facts.push(("retry", retry.to_string()));
    }
    if let Some(timeout) = policy.timeout {
        facts.push(("timeout", format_duration(timeout)));
    }
    for (name, value) in &job.extras.headers {
        facts.push(("header", format!("{name} = {value}")));
    }
    for (name, value) in facts {
        output.line(format_args!("{name:<12}{}", printable(&value, Lines::Join)))?;
    }
    output.line("")?;
    output.heading("ARGUMENTS")?;
    match job.payload.to_json() {
        Ok(value) => {
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            output.line(printable(&text, Lines::Keep))?;
        }
        Err(error) => output.line(format_args!("{error}\nbytes: {}", hex(job.payload.as_bytes())))?,
    }
    if job.extras.history.is_empty() {
        return Ok(());
    }
    output.line("")?;
    output.heading("HISTORY")?;
    for attempt in &job.extras.history {
        let head = format!(
            "{} ({})  {} {}  {}",
            attempt.at,
            ago(attempt.at, now),
            attempt.kind,
            attempt.number,
            attempt.worker
        );
        output.line(printable(head.trim_end(), Lines::Join))?;
        for line in printable(&attempt.error, Lines::Keep).lines() {
            output.line(format_args!("    {line}"))?;
        }
    }
    Ok(())
}

fn when(details: &Details, now: Timestamp) -> String {
    match details.room {
        Room::Jobs => match &details.held_by {
            Some(worker) => format!("by {worker}"),
            None => format!("due {}", ago(details.job.due_at, now)),
        },
        Room::Scheduled => format!("due {}", ahead(details.job.due_at, now)),
        _ => ago(details.since, now),
    }
}

fn instant(at: Timestamp, now: Timestamp) -> String {
    let distance = if at > now { ahead(at, now) } else { ago(at, now) };
    format!("{at} ({distance})")
}

fn times(count: u32) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn arguments(details: &Details, width: usize) -> String {
    match details.job.payload.to_json() {
        Ok(value) => shortened(&value.to_string(), width),
        Err(_) => format!("undecodable, {} bytes", details.job.payload.len()),
    }
}

/// The first bytes of a damaged payload.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let mut text: Vec<String> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN {
        text.push(format!("… ({} bytes)", bytes.len()));
    }
    text.join(" ")
}
