//! `celeriac bench`: what this store does on this machine, beside what its database could do at best.
//!
//! `workload` has one function for each workload, `crew` the worker processes, `consumer` what runs inside
//! them, `producer` the callers, `floor` the bare database, `usual` the way of other queues, `server` what the
//! database's processes did, `report` the figures.

mod comparison;
mod consumer;
mod crew;
mod floor;
mod job;
mod process;
mod producer;
mod report;
mod scratch;
mod series;
mod server;
mod snapshot;
mod usual;
mod workload;

use std::time::Duration;

use celeriac::core::{Broker, BulkAct, MaintainOptions, QueueChange, QueueName};
use celeriac::{Client, Prefetch};
use clap::{Args, ValueEnum};

pub(crate) use self::consumer::{ConsumerCommand, consume};

use self::floor::{Floor, Load, Part};
use self::report::{Report, Round};
use self::server::Server;
use self::snapshot::Snapshot;
use self::usual::{Usual, Work};
use self::workload::Bench;
use crate::command_line::{bounded, parsed};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::queues::purge_waiting;
use crate::store::{Missing, Store};
use crate::table::grouped;

/// Measure this store on this machine
///
/// Jobs go through the public interface: callers are tasks of this process, consumers are
/// worker processes with every default of a worker, and a job is a no-op with two integers
/// and a string as arguments. Every enqueue and every verdict is as durable as the URL says;
/// the default of SQLite is FULL.
///
/// Each round measures the floor first and the workload after it: the floor is what the same
/// database driver does at best with the same payload and durability and --batch rows a
/// transaction, in a table with nothing but a key and the payload: on SQLite one thread and a
/// file beside the store, on PostgreSQL as many connections as there are callers (drain: as
/// worker processes) in a schema beside it. Workers choose larger batches when many jobs
/// wait, and callers share a commit, so a ratio can pass 1; --batch 1000 is about what a
/// worker takes.
///
/// On PostgreSQL each round of enqueue, drain, steady and snapshot measures the usual way too:
/// one table with a state column, SKIP LOCKED, batched, well indexed, without handlers. And
/// the server's log and processor time (of a server on this machine) for each job.
///
/// Compare ratios, not rates: machines are noisy. Quoted are the medians of the rounds; --json
/// gives each.
///
/// Workloads:
///   enqueue  Callers store jobs until --jobs are stored or --seconds are over. Percentiles:
///            one call. Floor: insert. With --batch 1 a single caller is measured too.
///   drain    --jobs wait; then worker processes start. The clock runs from the moment they
///            may claim, when all are connected, to the last verdict. Floor: read and delete.
///   steady   Callers store and workers finish at the same time, for --seconds. Callers wait
///            when workers are far behind. Percentiles: from the call to the start of the
///            handler. Floor: insert and delete.
///   snapshot As steady, while another session keeps an old snapshot of the database, as a
///            report or a backup does. Compare the first ten seconds with the last.
///   backlog  As drain, twice: with little behind the jobs, then with --backlog jobs behind
///            them and as many that wait for their time.
///   latency  Nothing else to do; one job each 20 ms, --jobs times. Percentiles: from the call
///            to the start of the handler in another process. Floor: one insert a commit; the
///            ratio is of the medians.
///   floor    The floor alone: insert and delete; the other parts are in the JSON.
///
/// The queue celeriac-bench is declared. It must be empty and have no worker, and is emptied
/// at the end.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct BenchCommand {
    /// What to measure
    #[arg(value_name = "WORKLOAD", hide_possible_values = true)]
    workload: Workload,
    /// Jobs a round [enqueue, drain: 100000; latency: 300]
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(1..=100_000_000))]
    jobs: Option<u64>,
    /// Bytes of the string in a job's arguments
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = bounded::<usize>(0..=1_000_000))]
    payload: usize,
    /// Worker processes (drain, steady, latency)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = bounded::<usize>(1..=64))]
    processes: usize,
    /// Callers at once [enqueue, steady: 4]; in drain and latency the handlers of a worker [a worker's default]
    #[arg(long, value_name = "N", value_parser = bounded::<usize>(1..=4_096))]
    concurrency: Option<usize>,
    /// Jobs in one call, and in one transaction of the floor
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = bounded::<usize>(1..=10_000))]
    batch: usize,
    /// How long a round of enqueue, steady or snapshot takes, at the most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = bounded::<u64>(1..=3_600))]
    seconds: u64,
    /// Jobs that wait behind those that are drained (drain, backlog [1000000]), or before any is stored (steady,
    /// snapshot)
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(0..=100_000_000))]
    backlog: Option<u64>,
    /// How often floor and workload take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = bounded::<usize>(1..=50))]
    rounds: usize,
    /// How many jobs a worker may hold: auto or a number
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parsed::<Prefetch>)]
    prefetch: Prefetch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    Backlog,
    Drain,
    Enqueue,
    Floor,
    Latency,
    Snapshot,
    Steady,
}

/// Measures as the command says, and prints the report.
pub(crate) async fn run(command: BenchCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let url = store.url()?;
    if store.engine()? == "sqlite" && store.file()?.is_none() {
        return Err(Failure::usage(
            "a store in memory has no other processes to measure; name a file, for example:\n\n    \
             celeriac --broker sqlite:bench.db bench drain",
        ));
    }
    let backlogged = [Workload::Backlog, Workload::Drain, Workload::Snapshot, Workload::Steady];
    if command.backlog() > 0 && !backlogged.contains(&command.workload) {
        return Err(Failure::usage("--backlog means something for backlog, drain, snapshot and steady only"));
    }
    let floor = Floor::beside(store)?;
    if command.workload == Workload::Floor {
        return floor_alone(&command, &floor, store, output).await;
    }
    let broker = store.open(Missing::Create).await?;
    let queue = job::queue()?;
    broker.declare(queue.clone(), QueueChange::default()).await?;
    refuse_others(&*broker, &queue).await?;
    let postgres = store.postgres()?;
    let server = match &postgres {
        Some(options) => Some(Server::connect(options).await?),
        None => None,
    };
    let bench = Bench::new(Client::new(broker), queue, url.to_owned(), &command, server)?;
    let mut report = Report::new(&command, store)?;
    let usual = postgres.map(Usual::new);
    let result = rounds(&command, store, &bench, &floor, usual.as_ref(), &mut report, output).await;
    // What a failed round left must not stand in the way of the next run.
    let cleaned = purge_waiting(&**bench.client.broker(), &bench.queue, BulkAct::Purge).await;
    result?;
    cleaned?;
    report.write(output)?;
    Ok(Exit::Done)
}

async fn rounds(
    command: &BenchCommand,
    store: &Store,
    bench: &Bench,
    floor: &Floor,
    usual: Option<&Usual>,
    report: &mut Report,
    output: &mut Output,
) -> Result<(), Failure> {
    let load = Load::of(command, &job::payload(command.payload)?);
    for number in 1..=command.rounds {
        let rate = floor.measure(command.floor_part(), load.clone()).await?;
        let hold = async || match command.workload {
            Workload::Snapshot => Snapshot::hold(store).await.map(Some),
            _ => Ok(None),
        };
        let release = async |held: Option<Snapshot>| match held {
            Some(held) => held.release().await,
            None => Ok(()),
        };
        let usual_rate = match (usual, command.usual_work()) {
            (Some(usual), Some(work)) => {
                let held = hold().await?;
                let load = Load { jobs: command.jobs(), ..load.clone() };
                let rate = usual.measure(work, load).await?;
                release(held).await?;
                Some(rate)
            }
            _ => None,
        };
        let held = hold().await?;
        let mut round = match command.workload {
            Workload::Backlog => bench.backlog().await?,
            Workload::Drain => bench.drain().await?,
            Workload::Enqueue => bench.enqueue().await?,
            // The floor alone was dealt with by the caller.
            Workload::Latency | Workload::Floor => bench.latency().await?,
            Workload::Snapshot | Workload::Steady => bench.steady().await?,
        };
        release(held).await?;
        round.compare(command.workload, &rate, usual_rate.as_ref());
        output.remark(format_args!("round {number} of {}: {}", command.rounds, round.line()));
        report.rounds.push(round);
    }
    Ok(())
}

async fn floor_alone(
    command: &BenchCommand,
    floor: &Floor,
    store: &Store,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let mut report = Report::new(command, store)?;
    for number in 1..=command.rounds {
        let mut rates = Vec::new();
        for part in [Part::InsertAndDelete, Part::Insert, Part::ReadAndDelete] {
            let load = Load::of(command, &job::payload(command.payload)?);
            rates.push(floor.measure(part, load).await?);
        }
        let [both, insert, read] = rates.as_slice() else {
            return Err(Failure::failed("bench", "the floor has three parts"));
        };
        let round = Round::of_floor(both, insert, read);
        output.remark(format_args!("round {number} of {}: {}", command.rounds, round.line()));
        report.rounds.push(round);
    }
    report.write(output)?;
    Ok(Exit::Done)
}

/// Jobs or workers of others would be measured too, or be lost in the clean-up.
async fn refuse_others(broker: &dyn Broker, queue: &QueueName) -> Result<(), Failure> {
    // Of an earlier run that was killed there may be dead workers that nobody has buried yet.
    while broker.maintain(MaintainOptions::default()).await?.more {}
    let stats = broker.stats().await?;
    let found = crate::queues::find(&stats.queues, queue)?;
    let jobs = found.ready + found.held + found.scheduled + found.parked + found.dead;
    if jobs > 0 {
        return Err(Failure::failed(
            "bench_queue_in_use",
            format!(
                "queue {queue} holds {} jobs, perhaps of a run that was interrupted; if nothing else uses it, empty \
                 it with `celeriac queues purge {queue} --yes` and `celeriac dead purge --queue {queue}`",
                grouped(jobs)
            ),
        ));
    }
    if let Some(worker) = stats.workers.iter().find(|worker| worker.queues.contains(queue)) {
        return Err(Failure::failed(
            "bench_queue_in_use",
            format!("worker {} serves queue {queue}; stop it, or wait until its lease lapses", worker.label),
        ));
    }
    Ok(())
}

impl BenchCommand {
    const fn floor_part(&self) -> Part {
        match self.workload {
            Workload::Backlog | Workload::Drain => Part::ReadAndDelete,
            Workload::Enqueue => Part::Insert,
            Workload::Latency => Part::InsertSingly,
            Workload::Floor | Workload::Snapshot | Workload::Steady => Part::InsertAndDelete,
        }
    }

    /// What the usual way does to be compared; `None` where it would say nothing.
    const fn usual_work(&self) -> Option<Work> {
        match self.workload {
            Workload::Drain => Some(Work::Drain),
            Workload::Enqueue => Some(Work::Enqueue(self.duration())),
            Workload::Snapshot | Workload::Steady => Some(Work::Steady(self.duration())),
            Workload::Backlog | Workload::Floor | Workload::Latency => None,
        }
    }

    fn backlog(&self) -> u64 {
        self.backlog.unwrap_or(if self.workload == Workload::Backlog { 1_000_000 } else { 0 })
    }

    fn jobs(&self) -> u64 {
        self.jobs.unwrap_or(match self.workload {
            Workload::Latency => 300,
            _ => 100_000,
        })
    }

    const fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Workload {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::Drain => "drain",
            Self::Enqueue => "enqueue",
            Self::Floor => "floor",
            Self::Latency => "latency",
            Self::Snapshot => "snapshot",
            Self::Steady => "steady",
        }
    }
}
