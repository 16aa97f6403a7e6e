use celeriac::core::{ParameterInfo, TaskInfo, format_duration};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::store::{Missing, Store};
use crate::table::{Align, Cell, Table};

#[derive(Serialize)]
struct TaskView {
    name: String,
    queue: String,
    priority: u8,
    ttl_seconds: Option<f64>,
    parameters: Vec<ParameterInfo>,
}

pub(crate) async fn run(store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let broker = store.open(Missing::Refuse).await?;
    let tasks = broker.tasks().await?;
    if output.is_json() {
        let tasks: Vec<TaskView> = tasks.into_iter().map(TaskView::from).collect();
        output.json(&serde_json::json!({ "tasks": tasks }))?;
        return Ok(Exit::Done);
    }
    if tasks.is_empty() {
        output.remark("no worker has announced a task yet; start one on this store");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("TASK", Align::Left),
        ("QUEUE", Align::Left),
        ("PRIO", Align::Right),
        ("TTL", Align::Left),
        ("PARAMETERS", Align::Left),
    ]);
    for task in tasks {
        let parameters: Vec<String> = (task.parameters.iter())
            .map(|parameter| format!("{}: {}", parameter.name, parameter.ty))
            .collect();
        table.row([
            Cell::from(&task.name),
            Cell::from(&task.queue),
            Cell::from(task.priority),
            Cell::from(task.ttl.map_or_else(|| "-".to_owned(), format_duration)),
            Cell::from(if parameters.is_empty() { "-".to_owned() } else { parameters.join(", ") }),
        ]);
    }
    output.table(&table)?;
    Ok(Exit::Done)
}

impl From<TaskInfo> for TaskView {
    fn from(task: TaskInfo) -> Self {
        Self {
            name: task.name.to_string(),
            queue: task.queue.to_string(),
            priority: task.priority.get(),
            ttl_seconds: task.ttl.map(|ttl| ttl.as_secs_f64()),
            parameters: task.parameters,
        }
    }
}
