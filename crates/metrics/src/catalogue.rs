use std::fmt::Write as _;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit};

/// One metric: everything that is recorded is one of [`CATALOGUE`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, `celeriac_…`, with its unit at the end.
    pub name: &'static str,
    /// What can be done with it.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Who records it.
    pub source: Source,
    /// What it counts.
    pub help: &'static str,
}

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size, with these upper bounds.
    Histogram(&'static [f64]),
}

/// Who records a metric, and so what it means to add it up over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The client of each process, about its own calls: add them up.
    Client,
    /// Each worker, about itself: add them up.
    Worker,
    /// The store, as every process read it: the same everywhere, so take the maximum over processes.
    Store,
}

impl Source {
    /// The word in the documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Worker => "worker",
            Self::Store => "store",
        }
    }
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        source: Source,
        help: &'static str,
    ) -> Self {
        Self { name, kind, labels, source, help }
    }

    /// The unit that its name ends in.
    pub fn unit(&self) -> Unit {
        let name = self.name.trim_end_matches("_total");
        if name.ends_with("_seconds") {
            Unit::Seconds
        } else if name.ends_with("_bytes") {
            Unit::Bytes
        } else if name.ends_with("_per_second") {
            Unit::CountPerSecond
        } else {
            Unit::Count
        }
    }

    /// A handle in the recorder that is installed now. One value for each label, in their order.
    pub(crate) fn counter(&self, values: &[&str]) -> Counter {
        metrics::with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    /// As [`Metric::counter`].
    pub(crate) fn gauge(&self, values: &[&str]) -> Gauge {
        metrics::with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    /// As [`Metric::counter`].
    pub(crate) fn histogram(&self, values: &[&str]) -> Histogram {
        metrics::with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }

    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "labels of {}", self.name);
        let labels: Vec<Label> = self
            .labels
            .iter()
            .zip(values)
            .map(|(name, value)| Label::new(*name, (*value).to_owned()))
            .collect();
        Key::from_parts(self.name, labels)
    }
}

static METADATA: Metadata<'static> = Metadata::new("celeriac", Level::INFO, Some(module_path!()));

/// Tells the recorder that is installed now what every metric means. Call it once, after installing one.
pub fn describe() {
    metrics::with_recorder(|recorder| {
        for metric in CATALOGUE {
            let (name, unit, help) = (metric.name.into(), Some(metric.unit()), metric.help.into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, unit, help),
                Kind::Gauge => recorder.describe_gauge(name, unit, help),
                Kind::Histogram(_) => recorder.describe_histogram(name, unit, help),
            }
        }
    });
}

/// The catalogue as the table of `docs/metrics.md`.
pub fn table() -> String {
    let mut text =
        String::from("| metric | kind | labels | source | meaning |\n| --- | --- | --- | --- | --- |\n");
    for metric in CATALOGUE {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{}` | {kind} | {} | {} | {} |",
            metric.name,
            labels.join(" "),
            metric.source.as_str(),
            metric.help
        );
    }
    text
}

macro_rules! catalogue {
    ($($constant:ident = $name:literal $kind:expr, [$($label:literal),*], $source:ident, $help:literal;)*) => {
        $(pub(crate) const $constant: Metric =
            Metric::new($name, $kind, &[$($label),*], Source::$source, $help);)*

        /// Every metric, in the order of the documentation.
        pub const CATALOGUE: &[Metric] = &[$($constant),*];
    };
}

use Kind::{Counter as C, Gauge as G, Histogram as H};

catalogue! {
    ENQUEUED = "celeriac_enqueued_total" C, ["queue", "task"], Client, "Jobs that this process stored. A repeated enqueue that stored nothing does not count.";
    ENQUEUE_SECONDS = "celeriac_enqueue_seconds" H(CALL_SECONDS), [], Client, "Time of one enqueue call, until its jobs are on disk.";
    ENQUEUE_JOBS = "celeriac_enqueue_batch_jobs" H(BATCH_JOBS), [], Client, "Jobs in one enqueue call.";
    ENQUEUE_ERRORS = "celeriac_enqueue_errors_total" C, ["code"], Client, "Enqueue calls that failed, by the error's code.";
    STARTED = "celeriac_started_total" C, ["queue", "task"], Worker, "Runs of handlers that began.";
    FINISHED = "celeriac_finished_total" C, ["queue", "task", "outcome"], Worker, "Verdicts that the store applied: `done`, `retried`, `snoozed`, `dead`, `cancelled`, `parked`, `released`.";
    RETRIES = "celeriac_retries_total" C, ["queue", "task", "reason"], Worker, "Runs to be repeated, by what went wrong: `failed`, `panicked`, `timed_out`.";
    DEAD = "celeriac_dead_total" C, ["queue", "task", "reason"], Worker, "Jobs that a verdict of this worker sent to the bin, by reason.";
    WAIT_SECONDS = "celeriac_wait_seconds" H(JOB_SECONDS), ["queue", "task"], Worker, "From when a job was due to the start of its handler.";
    RUN_SECONDS = "celeriac_run_seconds" H(JOB_SECONDS), ["queue", "task"], Worker, "Time of one run of a handler.";
    TOTAL_SECONDS = "celeriac_total_seconds" H(JOB_SECONDS), ["queue", "task"], Worker, "From a job's enqueue to its verdict `done`, retries included.";
    STALE_VERDICTS = "celeriac_stale_verdicts_total" C, [], Worker, "Verdicts that changed nothing: their jobs had been handed to another worker.";
    LEASES_LOST = "celeriac_leases_lost_total" C, [], Worker, "Times that this process lost a lease and stopped its handlers.";
    CLAIM_SECONDS = "celeriac_claim_seconds" H(CALL_SECONDS), [], Worker, "Time of one claim call.";
    CLAIM_JOBS = "celeriac_claim_batch_jobs" H(BATCH_JOBS), [], Worker, "Jobs that one claim call brought; empty claims do not count.";
    SETTLE_SECONDS = "celeriac_settle_seconds" H(CALL_SECONDS), [], Worker, "Time of one settle call.";
    SETTLE_JOBS = "celeriac_settle_batch_jobs" H(BATCH_JOBS), [], Worker, "Verdicts in one settle call.";
    STORE_ERRORS = "celeriac_store_errors_total" C, ["operation", "code"], Worker, "Calls of a worker to the store that failed: `claim`, `settle`, `renew`, `maintain`, `register`, `acknowledge`, `sample`.";
    PROMOTED = "celeriac_promoted_total" C, [], Worker, "Due jobs that the maintenance of this process moved to their queues.";
    RESCUED_WORKERS = "celeriac_rescued_workers_total" C, [], Worker, "Dead workers that the maintenance of this process found.";
    RESCUED_JOBS = "celeriac_rescued_jobs_total" C, ["outcome"], Worker, "Jobs that the maintenance of this process took back from dead workers: `redelivered`, or `dead` at their delivery limit.";
    EXPIRED = "celeriac_expired_total" C, [], Worker, "Jobs whose time to live the maintenance of this process found over.";
    PRUNED = "celeriac_pruned_total" C, [], Worker, "Dead jobs that the maintenance of this process removed after their queue's retention.";
    MAINTAIN_SECONDS = "celeriac_maintain_seconds" H(CALL_SECONDS), [], Worker, "Time of one round of maintenance.";
    SLOTS_BUSY = "celeriac_slots_busy" G, [], Worker, "Handlers at work.";
    SLOTS_FREE = "celeriac_slots_free" G, [], Worker, "Handlers without a job.";
    BUFFER_JOBS = "celeriac_buffer_jobs" G, [], Worker, "Claimed jobs that wait in this process for a handler.";
    IN_HAND_JOBS = "celeriac_in_hand_jobs" G, [], Worker, "Claimed jobs without a written verdict.";
    LEASE_AGE_SECONDS = "celeriac_lease_age_seconds" G, [], Worker, "Time since the lease was renewed last. Lost at the length of the lease.";
    CLAIM_AGE_SECONDS = "celeriac_claim_age_seconds" G, [], Worker, "Time since the claim loop succeeded last.";
    READY = "celeriac_ready" G, [], Worker, "1 while the worker takes jobs, else 0. What `/readyz` says.";
    RESIDENT_BYTES = "celeriac_process_resident_bytes" G, [], Worker, "Memory of the process (Linux).";
    STORE_UP = "celeriac_store_up" G, [], Worker, "1 if this process reached the store when it last asked for the sample, else 0.";
    QUEUE_JOBS = "celeriac_queue_jobs" G, ["queue", "state"], Store, "Jobs by where they are: `ready`, `held`, `scheduled`, `parked`, `dead`.";
    QUEUE_OLDEST_DUE = "celeriac_queue_oldest_due_seconds" G, ["queue"], Store, "How long the oldest ready job has been due; 0 without one.";
    QUEUE_PAUSED = "celeriac_queue_paused" G, ["queue"], Store, "1 while the queue is paused, else 0.";
    QUEUE_WORKERS = "celeriac_queue_workers" G, ["queue"], Store, "Live workers that serve the queue.";
    QUEUE_SLOTS = "celeriac_queue_slots" G, ["queue"], Store, "Handlers that these workers run at once.";
    QUEUE_ENQUEUED = "celeriac_queue_enqueued_total" C, ["queue"], Store, "Jobs ever stored.";
    QUEUE_DONE = "celeriac_queue_done_total" C, ["queue"], Store, "Verdicts `done` ever.";
    QUEUE_RETRIED = "celeriac_queue_retried_total" C, ["queue"], Store, "Verdicts `retry` ever.";
    QUEUE_DEAD = "celeriac_queue_dead_total" C, ["queue"], Store, "Jobs ever moved to the bin, for whatever reason.";
    QUEUE_REDELIVERED = "celeriac_queue_redelivered_total" C, ["queue"], Store, "Jobs ever delivered again after the loss of their worker.";
    QUEUE_CANCELLED = "celeriac_queue_cancelled_total" C, ["queue"], Store, "Jobs ever cancelled.";
    QUEUE_DROPPED = "celeriac_queue_dropped_total" C, ["queue"], Store, "Jobs ever dropped or purged.";
    QUEUE_ARRIVALS = "celeriac_queue_arrivals_per_second" G, ["queue"], Store, "Jobs stored a second, over about a minute.";
    QUEUE_DEPARTURES = "celeriac_queue_departures_per_second" G, ["queue"], Store, "Jobs that left for good a second, over about a minute.";
    ORPHAN_JOBS = "celeriac_orphan_jobs" G, ["task"], Store, "Parked jobs of a task that no live worker knows.";
    WORKERS = "celeriac_workers" G, ["state"], Store, "Registered workers: `live`, or `lapsed` until their jobs are rescued.";
    STORE_BYTES = "celeriac_store_bytes" G, ["part"], Store, "Size of the store: `file`, `free` in it and `log` for SQLite, tables with their indexes for PostgreSQL.";
    STORE_DEAD_ROWS = "celeriac_store_dead_rows" G, ["part"], Store, "Deleted rows that take up room still (PostgreSQL).";
    STORE_SNAPSHOT = "celeriac_store_oldest_snapshot_seconds" G, [], Store, "How long the oldest transaction has kept deleted rows alive (PostgreSQL).";
    STORE_CONNECTIONS = "celeriac_store_connections" G, ["state"], Store, "Connections to the server, of all its users: `used`, and its limit `most` (PostgreSQL).";
    SAMPLE_AGE = "celeriac_sample_age_seconds" G, [], Store, "How old the figures of the source `store` were when they were read.";
}

/// For calls to the store: from a loopback round trip to the deadline.
pub(crate) const CALL_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// For jobs: from a millisecond to a day.
pub(crate) const JOB_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    3600.0, 14_400.0, 86_400.0,
];

/// For batches: a claim brings 1,000 at most, an enqueue as many as it likes.
pub(crate) const BATCH_JOBS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 10_000.0];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_and_are_given_once() {
        let mut seen = HashSet::new();
        for metric in CATALOGUE {
            assert!(seen.insert(metric.name), "{} twice", metric.name);
            let name = metric.name.strip_prefix("celeriac_").expect(metric.name);
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            for label in metric.labels {
                let known = ["queue", "task", "outcome", "reason", "state", "code", "operation", "part"]
                    .contains(label);
                assert!(known, "{name} has the label {label}");
            }
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
                assert_ne!(metric.source, Source::Store, "a sample has no histograms");
            }
        }
    }

    #[test]
    fn the_documentation_has_exactly_this_table() {
        let page = include_str!("../../../docs/metrics.md");
        assert!(page.contains(&table()), "put this table into docs/metrics.md:\n\n{}", table());
    }
}
