use celeriac::core::{Stats, WorkerId, WorkerStats};
use serde::Serialize;

use crate::age::{ago, now, short};
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::queues::{QueueView, queues_table};
use crate::store::{Missing, Store};
use crate::table::{Align, Cell, Table, grouped};

#[derive(Serialize)]
struct StatsView {
    queues: Vec<QueueView>,
    workers: Vec<WorkerView>,
    /// Tasks that parked jobs wait for.
    parked: Vec<ParkedView>,
}

#[derive(Serialize)]
struct WorkerView {
    id: WorkerId,
    label: String,
    queues: Vec<String>,
    tasks: Vec<String>,
    concurrency: u32,
    started_at: String,
    lease_left_seconds: f64,
}

#[derive(Serialize)]
struct ParkedView {
    task: String,
    jobs: u64,
}

pub(crate) async fn run(store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let broker = store.open(Missing::Refuse).await?;
    let stats = broker.stats().await?;
    if output.is_json() {
        output.json(&StatsView::from(&stats))?;
        return Ok(Exit::Done);
    }
    output.table(&queues_table(&stats.queues))?;
    output.line("")?;
    if stats.workers.is_empty() {
        let text = output.painted(Tone::Warning, "no workers");
        output.line(text)?;
    } else {
        output.table(&workers_table(&stats.workers))?;
    }
    for (task, jobs) in &stats.parked {
        let are = if *jobs == 1 { "job is parked" } else { "jobs are parked" };
        let text = format!("{} {are}: no worker that was there knew task {task}", grouped(*jobs));
        let text = output.painted(Tone::Warning, &text);
        output.line("")?;
        output.line(text)?;
    }
    Ok(Exit::Done)
}

fn workers_table(workers: &[WorkerStats]) -> Table {
    let now = now();
    let mut table = Table::new([
        ("WORKER", Align::Left),
        ("QUEUES", Align::Left),
        ("TASKS", Align::Right),
        ("HANDLERS", Align::Right),
        ("STARTED", Align::Left),
        ("LEASE", Align::Left),
    ]);
    for worker in workers {
        let queues: Vec<&str> = worker.queues.iter().map(|queue| queue.as_str()).collect();
        let lease = if worker.lease_left.is_zero() {
            Cell::toned("lapsed", Tone::Bad)
        } else {
            Cell::from(format!("{} left", short(worker.lease_left)))
        };
        table.row([
            Cell::from(&worker.label),
            Cell::from(queues.join(", ")),
            Cell::from(worker.tasks.len()),
            Cell::from(worker.concurrency),
            Cell::from(ago(worker.started_at, now)),
            lease,
        ]);
    }
    table
}

impl From<&Stats> for StatsView {
    fn from(stats: &Stats) -> Self {
        Self {
            queues: stats.queues.iter().map(QueueView::from).collect(),
            workers: stats.workers.iter().map(WorkerView::from).collect(),
            parked: (stats.parked.iter())
                .map(|(task, jobs)| ParkedView { task: task.to_string(), jobs: *jobs })
                .collect(),
        }
    }
}

impl From<&WorkerStats> for WorkerView {
    fn from(worker: &WorkerStats) -> Self {
        Self {
            id: worker.id,
            label: worker.label.clone(),
            queues: worker.queues.iter().map(ToString::to_string).collect(),
            tasks: worker.tasks.iter().map(ToString::to_string).collect(),
            concurrency: worker.concurrency,
            started_at: worker.started_at.to_string(),
            lease_left_seconds: worker.lease_left.as_secs_f64(),
        }
    }
}
