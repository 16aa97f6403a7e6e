use std::fmt::Write;

use celeriac_core::{Delivery, TaskSpec, format_duration};
use celeriac_worker::{Registry, TaskDefinition};
use serde::Serialize;

/// The tasks of a registry, for people and programs.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct TaskList(Vec<Listed>);

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    queue: String,
    priority: u8,
    parameters: Vec<ListedParameter>,
    states: Vec<&'static str>,
    timeout: Option<String>,
    retry: String,
    max_attempts: u32,
    ttl: Option<String>,
    delivery: &'static str,
    file: &'static str,
    line: u32,
}

#[derive(Debug, Serialize)]
struct ListedParameter {
    name: &'static str,
    #[serde(rename = "type")]
    ty: &'static str,
}

impl TaskList {
    /// All tasks, by name.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(registry.iter().map(|(definition, spec)| Listed::new(definition, spec)).collect())
    }

    /// A JSON array with one object for each task.
    pub(crate) fn json(&self) -> String {
        // Strings and numbers only: this cannot fail, and an empty text would be seen.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// A table with one line for each task.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<[String; 4]> =
            std::iter::once(["TASK", "QUEUE", "PARAMETERS", "DEFINED AT"].map(str::to_owned))
                .chain(self.0.iter().map(Listed::row))
                .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        let mut text = String::new();
        for [name, queue, parameters, place] in &rows {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{name:<0$}  {queue:<1$}  {parameters:<2$}  {place}",
                widths[0], widths[1], widths[2]
            );
        }
        text
    }
}

impl Listed {
    fn new(definition: &TaskDefinition, spec: &TaskSpec) -> Self {
        Self {
            name: definition.name,
            queue: spec.queue.to_string(),
            priority: spec.priority.get(),
            parameters: definition
                .parameters
                .iter()
                .map(|parameter| ListedParameter { name: parameter.name, ty: parameter.ty })
                .collect(),
            states: (definition.states)().iter().map(|key| key.name()).collect(),
            timeout: spec.timeout.map(format_duration),
            retry: spec.retry.to_string(),
            max_attempts: spec.max_attempts,
            ttl: spec.ttl.map(format_duration),
            delivery: match spec.delivery {
                Delivery::AtMostOnce => "at_most_once",
                _ => "at_least_once",
            },
            file: definition.file,
            line: definition.line,
        }
    }

    fn row(&self) -> [String; 4] {
        let parameters: Vec<String> =
            self.parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.ty)).collect();
        let parameters = if parameters.is_empty() { "-".to_owned() } else { parameters.join(", ") };
        [self.name.to_owned(), self.queue.clone(), parameters, format!("{}:{}", self.file, self.line)]
    }
}
