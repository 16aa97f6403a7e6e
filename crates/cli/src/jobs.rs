use celeriac::core::{Broker, Cancelled, Error, Filter, JobId, Page, PageOptions, QueueName, Room, TaskName};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::command_line::{bounded, job_id, parsed};
use crate::failure::{Exit, Failure};
use crate::job_view::{self, JobView, JobsView};
use crate::output::Output;
use crate::store::{Missing, Store};

/// Jobs that are not finished: list, show, cancel.
#[derive(Debug, Args)]
pub(crate) struct JobsCommand {
    #[command(subcommand)]
    act: JobsAct,
}

#[derive(Debug, Subcommand)]
enum JobsAct {
    List(ListCommand),
    /// Show one job with its arguments and its history
    Show {
        /// The job
        #[arg(value_name = "ID", value_parser = job_id)]
        id: JobId,
    },
    /// Remove jobs that wait; ask those that run to stop
    Cancel {
        /// The jobs
        #[arg(value_name = "ID", required = true, value_parser = job_id)]
        ids: Vec<JobId>,
    },
}

/// List jobs that wait or run, oldest first.
///
/// Without --room, those that are ready or held come first, then the scheduled, then the parked. The bin has
/// its own command: `celeriac dead list`.
#[derive(Debug, Args)]
struct ListCommand {
    /// Only this room: jobs, scheduled, parked or dead
    #[arg(long, value_parser = parsed::<Room>)]
    room: Option<Room>,
    /// Only this queue
    #[arg(long, value_parser = parsed::<QueueName>)]
    queue: Option<QueueName>,
    /// Only this task
    #[arg(long, value_parser = parsed::<TaskName>)]
    task: Option<TaskName>,
    #[command(flatten)]
    page: PageArguments,
}

/// Which page of a list.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArguments {
    /// At most this many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = bounded(1..=PageOptions::MAX_LIMIT))]
    limit: usize,
    /// Go on where a list ended, with the value that it printed
    #[arg(long, value_name = "MARK")]
    after: Option<String>,
}

#[derive(Serialize)]
struct CancelView {
    id: JobId,
    /// `removed`, `requested` or `not_found`.
    result: &'static str,
}

pub(crate) async fn run(command: JobsCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let broker = store.open(Missing::Refuse).await?;
    match command.act {
        JobsAct::List(command) => list(command, &*broker, output).await,
        JobsAct::Show { id } => {
            let details = broker.find(id).await?.ok_or_else(|| no_such_job(id))?;
            if output.is_json() {
                output.json(&JobView::from(&details))?;
            } else {
                job_view::show(&details, output)?;
            }
            Ok(Exit::Done)
        }
        JobsAct::Cancel { ids } => cancel(&ids, &*broker, output).await,
    }
}

/// A job that no room has.
pub(crate) fn no_such_job(id: JobId) -> Failure {
    Failure::failed("no_such_job", format!("no such job: {id}; it is finished, was removed, or never was"))
}

async fn list(command: ListCommand, broker: &dyn Broker, output: &mut Output) -> Result<Exit, Failure> {
    let rooms = match command.room {
        Some(room) => vec![room],
        None => vec![Room::Jobs, Room::Scheduled, Room::Parked],
    };
    let filter = |room| {
        let mut filter = Filter::room(room);
        filter.queue.clone_from(&command.queue);
        filter.task.clone_from(&command.task);
        filter
    };
    let page = pages(broker, &rooms, filter, &command.page).await?;
    if output.is_json() {
        output.json(&JobsView::new(&page))?;
        return Ok(Exit::Done);
    }
    let only_dead = command.room == Some(Room::Dead);
    let table = if only_dead { job_view::dead_table(&page.jobs) } else { job_view::jobs_table(&page.jobs) };
    if table.is_empty() {
        output.remark("no jobs");
        return Ok(Exit::Done);
    }
    output.table(&table)?;
    if let Some(next) = &page.next {
        output.remark(format_args!("more: --after {next}"));
    }
    Ok(Exit::Done)
}

/// A page of the rooms' jobs, one room after the other. A mark is the room's name, a slash, and the place in
/// that room.
pub(crate) async fn pages(
    broker: &dyn Broker,
    rooms: &[Room],
    filter: impl Fn(Room) -> Filter,
    arguments: &PageArguments,
) -> Result<Page, Failure> {
    let (first, mut after) = match &arguments.after {
        Some(mark) => read_mark(mark, rooms)?,
        None => (0, None),
    };
    let mut jobs = Vec::new();
    for (index, room) in rooms.iter().enumerate().skip(first) {
        let mut options = PageOptions::default();
        options.limit = arguments.limit - jobs.len();
        options.after = after.take();
        let page = broker.list(filter(*room), options).await?;
        jobs.extend(page.jobs);
        if let Some(next) = page.next {
            return Ok(Page::new(jobs, Some(format!("{room}/{next}"))));
        }
        if jobs.len() >= arguments.limit {
            let next = rooms.get(index + 1).map(|room| format!("{room}/"));
            return Ok(Page::new(jobs, next));
        }
    }
    Ok(Page::new(jobs, None))
}

fn read_mark(mark: &str, rooms: &[Room]) -> Result<(usize, Option<String>), Failure> {
    mark.split_once('/')
        .and_then(|(room, place)| {
            let index = rooms.iter().position(|known| known.as_str() == room)?;
            Some((index, Some(place.to_owned()).filter(|place| !place.is_empty())))
        })
        .ok_or_else(|| {
            Failure::from(Error::invalid(
                "mark",
                mark,
                "pass the value of --after that the list before printed",
            ))
        })
}

async fn cancel(ids: &[JobId], broker: &dyn Broker, output: &mut Output) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    let mut views = Vec::new();
    for &id in ids {
        let (result, text) = match broker.cancel(id).await? {
            Cancelled::Removed(room) => ("removed", format!("{id} removed from {room}")),
            Cancelled::Requested => ("requested", format!("{id} is running; it was asked to stop")),
            // An answer of a later version is no success that this one could vouch for.
            _ => {
                exit = Exit::Failed;
                if !output.is_json() {
                    output.complain(&no_such_job(id));
                }
                views.push(CancelView { id, result: "not_found" });
                continue;
            }
        };
        if !output.is_json() {
            output.line(text)?;
        }
        views.push(CancelView { id, result });
    }
    if output.is_json() {
        output.json(&serde_json::json!({ "jobs": views }))?;
    }
    Ok(exit)
}
