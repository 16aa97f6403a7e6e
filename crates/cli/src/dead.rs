use std::time::Duration;

use celeriac::core::{
    Broker, BulkAct, DeadReason, Details, Filter, JobId, QueueName, Room, TaskName, parse_duration,
};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::bulk::{Acted, act_on_all};
use crate::command_line::{job_id, parsed};
use crate::failure::{Exit, Failure};
use crate::job_view::{self, JobView, JobsView};
use crate::jobs::{PageArguments, no_such_job, pages};
use crate::output::Output;
use crate::store::{Missing, Store};
use crate::table::grouped;

/// The dead-letter bin: list, show, replay, purge.
///
/// In it are the jobs that will not be tried again by themselves, each with its reason and its history.
#[derive(Debug, Args)]
pub(crate) struct DeadCommand {
    #[command(subcommand)]
    act: DeadAct,
}

#[derive(Debug, Subcommand)]
enum DeadAct {
    /// List dead jobs, oldest first
    List {
        #[command(flatten)]
        filter: FilterArguments,
        #[command(flatten)]
        page: PageArguments,
    },
    /// Show one dead job with its arguments and its history
    Show {
        /// The job
        #[arg(value_name = "ID", value_parser = job_id)]
        id: JobId,
    },
    /// Send dead jobs back to their queues, with all attempts before them again
    Replay {
        #[command(flatten)]
        selection: Selection,
        /// Into this queue instead of their own
        #[arg(long, value_name = "QUEUE", value_parser = parsed::<QueueName>)]
        into: Option<QueueName>,
    },
    /// Remove dead jobs for good
    Purge {
        #[command(flatten)]
        selection: Selection,
    },
}

/// Which dead jobs; every part that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
struct FilterArguments {
    /// Only jobs of this queue
    #[arg(long, value_parser = parsed::<QueueName>)]
    queue: Option<QueueName>,
    /// Only jobs of this task
    #[arg(long, value_parser = parsed::<TaskName>)]
    task: Option<TaskName>,
    /// Only jobs with this reason: delivery_limit, expired, interrupted, max_length, rejected,
    /// retries_exhausted or undecodable
    #[arg(long, value_parser = parsed::<DeadReason>)]
    reason: Option<DeadReason>,
    /// Only jobs whose last error contains this text
    // An empty text, such as an unset variable, would select everything where a filter was meant.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    error: Option<String>,
    /// Only jobs that died longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    older_than: Option<Duration>,
}

/// Dead jobs to act on: by id, by filter, or all.
#[derive(Clone, Debug, Args)]
struct Selection {
    /// These jobs
    #[arg(value_name = "ID", value_parser = job_id, conflicts_with_all = ["queue", "task", "reason", "error", "older_than", "all"])]
    ids: Vec<JobId>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Everything in the bin
    #[arg(long, conflicts_with_all = ["queue", "task", "reason", "error", "older_than"])]
    all: bool,
    /// Change nothing; show what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct ActView {
    dry_run: bool,
    jobs: u64,
    /// Ids that were asked for and are not in the bin.
    missing: Vec<JobId>,
}

pub(crate) async fn run(command: DeadCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    match command.act {
        DeadAct::List { filter, page } => {
            let broker = store.open(Missing::Refuse).await?;
            let page = pages(&*broker, &[Room::Dead], |_| filter.clone().into_filter(), &page).await?;
            if output.is_json() {
                output.json(&JobsView::new(&page))?;
                return Ok(Exit::Done);
            }
            if page.jobs.is_empty() {
                output.remark("no dead jobs");
                return Ok(Exit::Done);
            }
            output.table(&job_view::dead_table(&page.jobs))?;
            if let Some(next) = &page.next {
                output.remark(format_args!("more: --after {next}"));
            }
            Ok(Exit::Done)
        }
        DeadAct::Show { id } => {
            let broker = store.open(Missing::Refuse).await?;
            let details = find_dead(&*broker, id).await?;
            if output.is_json() {
                output.json(&JobView::from(&details))?;
            } else {
                job_view::show(&details, output)?;
            }
            Ok(Exit::Done)
        }
        DeadAct::Replay { selection, into } => {
            act(&selection, BulkAct::Replay { queue: into }, "replay", store, output).await
        }
        DeadAct::Purge { selection } => act(&selection, BulkAct::Purge, "purge", store, output).await,
    }
}

async fn find_dead(broker: &dyn Broker, id: JobId) -> Result<Details, Failure> {
    let details = broker.find(id).await?.ok_or_else(|| no_such_job(id))?;
    if details.room == Room::Dead {
        return Ok(details);
    }
    Err(Failure::failed(
        "not_dead",
        format!("job {id} is not in the bin but in {}; see `celeriac jobs show {id}`", details.room),
    ))
}

async fn act(
    selection: &Selection,
    act: BulkAct,
    word: &str,
    store: &Store,
    output: &mut Output,
) -> Result<Exit, Failure> {
    if selection.is_empty() {
        return Err(Failure::usage(format!(
            "nothing is selected; name ids, a filter such as --task or --reason, or --all, for example:\n\n    \
             celeriac dead {word} --reason rejected --dry-run"
        )));
    }
    let broker = store.open(Missing::Refuse).await?;
    let act = if selection.dry_run { BulkAct::Nothing } else { act };
    let mut acted = Acted::default();
    let mut missing = Vec::new();
    if selection.ids.is_empty() {
        acted = act_on_all(&*broker, selection.filter.clone().into_filter(), act).await?;
    } else {
        for &id in &selection.ids {
            let mut filter = Filter::room(Room::Dead);
            filter.id = Some(id);
            let one = act_on_all(&*broker, filter, act.clone()).await?;
            if one.jobs == 0 {
                missing.push(id);
            }
            acted.add(one);
        }
    }
    let exit = if missing.is_empty() { Exit::Done } else { Exit::Failed };
    if output.is_json() {
        output.json(&ActView { dry_run: selection.dry_run, jobs: acted.jobs, missing })?;
        return Ok(exit);
    }
    for id in missing {
        output.complain(&Failure::failed("not_dead", format!("job {id} is not in the bin")));
    }
    let jobs = if acted.jobs == 1 { "job".to_owned() } else { "jobs".to_owned() };
    if !selection.dry_run {
        let done = if word == "replay" { "replayed" } else { "purged" };
        output.line(format_args!("{done} {} {jobs}", grouped(acted.jobs)))?;
        return Ok(exit);
    }
    if !acted.first.is_empty() {
        output.table(&job_view::dead_table(&acted.first))?;
    }
    if acted.jobs > acted.first.len() as u64 {
        output.line(format_args!("… and {} more", grouped(acted.jobs - acted.first.len() as u64)))?;
    }
    output.line(format_args!("would {word} {} {jobs}", grouped(acted.jobs)))?;
    Ok(exit)
}

impl FilterArguments {
    fn into_filter(self) -> Filter {
        let mut filter = Filter::room(Room::Dead);
        filter.queue = self.queue;
        filter.task = self.task;
        filter.reason = self.reason;
        filter.error = self.error;
        filter.older_than = self.older_than;
        filter
    }
}

impl Selection {
    fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.all && self.filter == FilterArguments::default()
    }
}
