use std::time::Duration;

use celeriac::core::{
    Broker, BulkAct, Declared, Filter, InvalidDuration, OnExpire, Overflow, Paused, QueueChange, QueueName,
    QueueStats, Room, format_duration, nearest, parse_duration,
};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::age::short;
use crate::bulk::{Acted, act_on_all};
use crate::command_line::{Setting, bounded, parsed, setting};
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::store::{Missing, Store};
use crate::table::{Align, Cell, Table, grouped};

/// Queues: list, declare, pause, resume, purge.
#[derive(Debug, Args)]
pub(crate) struct QueuesCommand {
    #[command(subcommand)]
    act: QueuesAct,
}

#[derive(Debug, Subcommand)]
enum QueuesAct {
    /// List all queues with their figures and settings
    List,
    Declare(DeclareCommand),
    /// Stop handing out jobs; jobs are accepted and wait, what runs goes on
    Pause {
        /// The queues
        #[arg(value_name = "QUEUE", required = true, value_parser = parsed::<QueueName>)]
        queues: Vec<QueueName>,
    },
    /// Hand out jobs again
    Resume {
        /// The queues
        #[arg(value_name = "QUEUE", required = true, value_parser = parsed::<QueueName>)]
        queues: Vec<QueueName>,
    },
    Purge(PurgeCommand),
}

/// Create a queue, or change the settings of one that exists.
///
/// A setting that is not named stays as it is. The value none takes a limit away.
#[derive(Debug, Args)]
struct DeclareCommand {
    /// The queue
    #[arg(value_name = "QUEUE", value_parser = parsed::<QueueName>)]
    queue: QueueName,
    /// After how many lost workers a job goes to the bin [new queues: 3]
    #[arg(long, value_name = "N", value_parser = bounded(1..=1_000_000_u32))]
    delivery_limit: Option<u32>,
    /// How long jobs that name no time to live may wait for their start
    #[arg(long, value_name = "DURATION|none", value_parser = duration_setting, allow_hyphen_values = true)]
    ttl: Option<Setting<Duration>>,
    /// What becomes of a job whose time to live passes: bury or drop [new queues: bury]
    #[arg(long, value_name = "ACT", value_parser = on_expire)]
    on_expire: Option<OnExpire>,
    /// The most jobs that may wait to run
    #[arg(long, value_name = "N|none", value_parser = length_setting, allow_hyphen_values = true)]
    max_length: Option<Setting<u64>>,
    /// What happens to a job over the length: refuse or drop-oldest [new queues: refuse]
    #[arg(long, value_name = "ACT", value_parser = overflow)]
    overflow: Option<Overflow>,
    /// How long dead jobs are kept [new queues: none, for ever]
    #[arg(long, value_name = "DURATION|none", value_parser = duration_setting, allow_hyphen_values = true)]
    dead_retention: Option<Setting<Duration>>,
}

/// Remove all waiting jobs of a queue for good: those that are ready, scheduled or parked.
///
/// Jobs that run go on, and the bin has its own command, `celeriac dead purge`.
#[derive(Debug, Args)]
struct PurgeCommand {
    /// The queue
    #[arg(value_name = "QUEUE", value_parser = parsed::<QueueName>)]
    queue: QueueName,
    /// Yes, remove them
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Change nothing; count what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// A queue in JSON. The names are stable; fields may be added.
#[derive(Debug, Serialize)]
pub(crate) struct QueueView {
    name: String,
    paused: bool,
    ready: u64,
    held: u64,
    scheduled: u64,
    parked: u64,
    dead: u64,
    oldest_due_seconds: Option<f64>,
    enqueued: u64,
    done: u64,
    retried: u64,
    buried: u64,
    redelivered: u64,
    cancelled: u64,
    dropped: u64,
    settings: SettingsView,
}

#[derive(Debug, Serialize)]
struct SettingsView {
    delivery_limit: u32,
    ttl_seconds: Option<f64>,
    on_expire: OnExpire,
    max_length: Option<u64>,
    overflow: Overflow,
    dead_retention_seconds: Option<f64>,
}

pub(crate) async fn run(command: QueuesCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    match command.act {
        QueuesAct::List => {
            let broker = store.open(Missing::Refuse).await?;
            let stats = broker.stats().await?;
            if output.is_json() {
                let queues: Vec<QueueView> = stats.queues.iter().map(QueueView::from).collect();
                output.json(&serde_json::json!({ "queues": queues }))?;
            } else {
                output.table(&queues_table(&stats.queues))?;
            }
        }
        QueuesAct::Declare(command) => declare(command, store, output).await?,
        QueuesAct::Pause { queues } => set_paused(&queues, Paused::Yes, store, output).await?,
        QueuesAct::Resume { queues } => set_paused(&queues, Paused::No, store, output).await?,
        QueuesAct::Purge(command) => purge(&command, store, output).await?,
    }
    Ok(Exit::Done)
}

/// Queues with their figures, one a line.
pub(crate) fn queues_table(queues: &[QueueStats]) -> Table {
    let mut table = Table::new([
        ("QUEUE", Align::Left),
        ("READY", Align::Right),
        ("HELD", Align::Right),
        ("SCHEDULED", Align::Right),
        ("PARKED", Align::Right),
        ("DEAD", Align::Right),
        ("OLDEST", Align::Right),
        ("ENQUEUED", Align::Right),
        ("DONE", Align::Right),
        ("RETRIED", Align::Right),
        ("NOTES", Align::Left),
    ]);
    for queue in queues {
        let notes = notes(queue);
        let tone = if queue.paused == Paused::Yes { Tone::Warning } else { Tone::Plain };
        table.row([
            Cell::from(&queue.name),
            Cell::count(queue.ready, Tone::Plain),
            Cell::count(queue.held, Tone::Plain),
            Cell::count(queue.scheduled, Tone::Plain),
            Cell::count(queue.parked, Tone::Warning),
            Cell::count(queue.dead, Tone::Bad),
            Cell::from(queue.oldest_due.map_or_else(|| "-".to_owned(), short)),
            Cell::count(queue.enqueued, Tone::Plain),
            Cell::count(queue.done, Tone::Plain),
            Cell::count(queue.retried, Tone::Plain),
            Cell::toned(notes, tone),
        ]);
    }
    table
}

/// A queue that must exist.
pub(crate) fn find<'a>(queues: &'a [QueueStats], name: &QueueName) -> Result<&'a QueueStats, Failure> {
    queues.iter().find(|queue| queue.name == *name).ok_or_else(|| {
        let names = queues.iter().map(|queue| queue.name.as_str());
        let meant =
            nearest(name.as_str(), names).map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
        Failure::failed("no_such_queue", format!("no such queue: {name}{meant}; see `celeriac queues list`"))
    })
}

impl From<&QueueStats> for QueueView {
    fn from(queue: &QueueStats) -> Self {
        let settings = &queue.settings;
        Self {
            name: queue.name.to_string(),
            paused: queue.paused == Paused::Yes,
            ready: queue.ready,
            held: queue.held,
            scheduled: queue.scheduled,
            parked: queue.parked,
            dead: queue.dead,
            oldest_due_seconds: queue.oldest_due.map(|age| age.as_secs_f64()),
            enqueued: queue.enqueued,
            done: queue.done,
            retried: queue.retried,
            buried: queue.buried,
            redelivered: queue.redelivered,
            cancelled: queue.cancelled,
            dropped: queue.dropped,
            settings: SettingsView {
                delivery_limit: settings.delivery_limit,
                ttl_seconds: settings.ttl.map(|ttl| ttl.as_secs_f64()),
                on_expire: settings.on_expire,
                max_length: settings.max_length,
                overflow: settings.overflow,
                dead_retention_seconds: settings.dead_retention.map(|kept| kept.as_secs_f64()),
            },
        }
    }
}

/// What is out of the ordinary about a queue.
fn notes(queue: &QueueStats) -> String {
    let settings = &queue.settings;
    let mut notes = Vec::new();
    if queue.paused == Paused::Yes {
        notes.push("paused".to_owned());
    }
    if let Some(limit) = settings.max_length {
        let act = if settings.overflow == Overflow::DropOldest { "drop oldest" } else { "refuse" };
        notes.push(format!("length {} ({act})", grouped(limit)));
    }
    if let Some(ttl) = settings.ttl {
        let act = if settings.on_expire == OnExpire::Drop { "drop" } else { "bury" };
        notes.push(format!("ttl {} ({act})", format_duration(ttl)));
    }
    if settings.delivery_limit != celeriac::core::QueueSettings::default().delivery_limit {
        notes.push(format!("delivery limit {}", settings.delivery_limit));
    }
    if let Some(kept) = settings.dead_retention {
        notes.push(format!("dead kept {}", format_duration(kept)));
    }
    notes.join(", ")
}

async fn declare(command: DeclareCommand, store: &Store, output: &mut Output) -> Result<(), Failure> {
    let mut change = QueueChange::default();
    change.delivery_limit = command.delivery_limit;
    change.ttl = command.ttl.map(Setting::into_option);
    change.on_expire = command.on_expire;
    change.max_length = command.max_length.map(Setting::into_option);
    change.overflow = command.overflow;
    change.dead_retention = command.dead_retention.map(Setting::into_option);
    let changed = change != QueueChange::default();
    let broker = store.open(Missing::Create).await?;
    let declared = broker.declare(command.queue.clone(), change).await?;
    let created = declared == Declared::Created;
    if output.is_json() {
        return output.json(&serde_json::json!({ "queue": command.queue, "created": created }));
    }
    let what = match (created, changed) {
        (true, _) => "created",
        (false, true) => "changed",
        (false, false) => "is there already",
    };
    output.line(format_args!("queue {} {what}", command.queue))
}

async fn set_paused(
    queues: &[QueueName],
    paused: Paused,
    store: &Store,
    output: &mut Output,
) -> Result<(), Failure> {
    let broker = store.open(Missing::Refuse).await?;
    let stats = broker.stats().await?;
    // All names are checked before anything is changed; declaring would create a mistyped one.
    for queue in queues {
        find(&stats.queues, queue)?;
    }
    for queue in queues {
        let mut change = QueueChange::default();
        change.paused = Some(paused);
        broker.declare(queue.clone(), change).await?;
    }
    if output.is_json() {
        return output.json(&serde_json::json!({ "queues": queues, "paused": paused == Paused::Yes }));
    }
    let word = if paused == Paused::Yes { "paused" } else { "resumed" };
    for queue in queues {
        output.line(format_args!("queue {queue} {word}"))?;
    }
    Ok(())
}

async fn purge(command: &PurgeCommand, store: &Store, output: &mut Output) -> Result<(), Failure> {
    if !command.yes && !command.dry_run {
        return Err(Failure::usage(
            "this removes jobs for good: confirm it with --yes, or see with --dry-run how many there are",
        ));
    }
    let broker = store.open(Missing::Refuse).await?;
    find(&broker.stats().await?.queues, &command.queue)?;
    let act = if command.dry_run { BulkAct::Nothing } else { BulkAct::Purge };
    let acted = purge_waiting(&*broker, &command.queue, act).await?;
    if output.is_json() {
        return output.json(&serde_json::json!({
            "queue": command.queue,
            "dry_run": command.dry_run,
            "jobs": acted.jobs,
        }));
    }
    let word = if command.dry_run { "would purge" } else { "purged" };
    let jobs = if acted.jobs == 1 { "job" } else { "jobs" };
    output.line(format_args!("{word} {} {jobs} of queue {}", grouped(acted.jobs), command.queue))
}

/// Acts on every waiting job of a queue, in all rooms but the bin.
pub(crate) async fn purge_waiting(
    broker: &dyn Broker,
    queue: &QueueName,
    act: BulkAct,
) -> Result<Acted, Failure> {
    let mut acted = Acted::default();
    for room in [Room::Jobs, Room::Scheduled, Room::Parked] {
        let mut filter = Filter::room(room);
        filter.queue = Some(queue.clone());
        acted.add(act_on_all(broker, filter, act.clone()).await?);
    }
    Ok(acted)
}

fn duration_setting(text: &str) -> Result<Setting<Duration>, InvalidDuration> {
    setting(text, parse_duration)
}

fn length_setting(text: &str) -> Result<Setting<u64>, String> {
    setting(text, |text| {
        text.parse::<u64>()
            .ok()
            .filter(|length| *length > 0)
            .ok_or_else(|| "write a number of at least 1, or none".to_owned())
    })
}

fn on_expire(text: &str) -> Result<OnExpire, String> {
    match text {
        "bury" => Ok(OnExpire::Bury),
        "drop" => Ok(OnExpire::Drop),
        _ => Err("known are bury and drop".to_owned()),
    }
}

fn overflow(text: &str) -> Result<Overflow, String> {
    match text {
        "refuse" => Ok(Overflow::Refuse),
        "drop-oldest" | "drop_oldest" => Ok(Overflow::DropOldest),
        _ => Err("known are refuse and drop-oldest".to_owned()),
    }
}
