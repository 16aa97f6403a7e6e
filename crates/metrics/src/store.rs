use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use celeriac_core::{QueueFigures, Sampled};
use metrics::{Counter, Gauge};

use crate::catalogue::{
    ORPHAN_JOBS, QUEUE_ARRIVALS, QUEUE_CANCELLED, QUEUE_DEAD, QUEUE_DEPARTURES, QUEUE_DONE, QUEUE_DROPPED,
    QUEUE_ENQUEUED, QUEUE_JOBS, QUEUE_OLDEST_DUE, QUEUE_PAUSED, QUEUE_REDELIVERED, QUEUE_RETRIED,
    QUEUE_SLOTS, QUEUE_WORKERS, RESIDENT_BYTES, SAMPLE_AGE, STORE_BYTES, STORE_CONNECTIONS, STORE_DEAD_ROWS,
    STORE_ERRORS, STORE_SNAPSHOT, STORE_UP, WORKERS,
};
use crate::pairs::OTHER;

/// Shows the samples of a store in the recorder that is installed: what [`Source::Store`](crate::Source::Store)
/// marks in the catalogue.
pub struct StoreMeters {
    up: Gauge,
    age: Gauge,
    live: Gauge,
    lapsed: Gauge,
    queues: HashMap<String, QueueMeters>,
    orphans: HashMap<String, Gauge>,
}

impl StoreMeters {
    /// Handles in the recorder that is installed now.
    pub fn new() -> Self {
        Self {
            up: STORE_UP.gauge(&[]),
            age: SAMPLE_AGE.gauge(&[]),
            live: WORKERS.gauge(&["live"]),
            lapsed: WORKERS.gauge(&["lapsed"]),
            queues: HashMap::new(),
            orphans: HashMap::new(),
        }
    }

    /// Shows what the store said.
    pub fn show(&mut self, sampled: &Sampled) {
        let sample = &sampled.sample;
        self.up.set(1.0);
        self.age.set(sampled.age.as_secs_f64());
        self.live.set(sample.workers as f64);
        self.lapsed.set(sample.lapsed_workers as f64);
        let named = sample.queues.iter().map(|queue| (queue.name.as_str(), &queue.figures));
        let others = sample.other_queues.as_ref().map(|figures| (OTHER, figures));
        let mut seen = HashSet::new();
        for (name, figures) in named.chain(others) {
            // A queue that is really named so wins over the rest.
            if seen.insert(name) {
                self.queues.entry(name.to_owned()).or_insert_with(|| QueueMeters::new(name)).show(figures);
            }
        }
        self.queues.retain(|name, meters| {
            let stays = seen.contains(name.as_str());
            if !stays {
                meters.clear();
            }
            stays
        });
        let mut orphans: BTreeMap<&str, u64> =
            sample.orphans.iter().map(|(task, jobs)| (task.as_str(), *jobs)).collect();
        if sample.other_orphans > 0 {
            *orphans.entry(OTHER).or_default() += sample.other_orphans;
        }
        for (task, jobs) in &orphans {
            let gauge = self.orphans.entry((*task).to_owned()).or_insert_with(|| ORPHAN_JOBS.gauge(&[task]));
            gauge.set(*jobs as f64);
        }
        self.orphans.retain(|task, gauge| {
            let stays = orphans.contains_key(task.as_str());
            if !stays {
                gauge.set(0.0);
            }
            stays
        });
        let storage = &sample.storage;
        for (part, bytes) in &storage.bytes {
            STORE_BYTES.gauge(&[part]).set(*bytes as f64);
        }
        for (part, rows) in &storage.dead_rows {
            STORE_DEAD_ROWS.gauge(&[part]).set(*rows as f64);
        }
        if let Some(used) = storage.connections {
            STORE_CONNECTIONS.gauge(&["used"]).set(used as f64);
            // Only a server has them, and only there is the absence of a snapshot a figure.
            STORE_SNAPSHOT.gauge(&[]).set(storage.oldest_snapshot.unwrap_or_default().as_secs_f64());
        }
        if let Some(most) = storage.max_connections {
            STORE_CONNECTIONS.gauge(&["most"]).set(most as f64);
        }
    }

    /// The store could not be asked. Its figures stay as they were, and `celeriac_store_up` says so.
    pub fn unreachable(&self, error: &celeriac_core::Error) {
        self.up.set(0.0);
        STORE_ERRORS.counter(&["sample", error.code().as_str()]).increment(1);
    }
}

impl Default for StoreMeters {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StoreMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreMeters({} queues)", self.queues.len())
    }
}

/// Shows how old the figures of the store are by now.
pub fn show_age(age: Duration) {
    SAMPLE_AGE.gauge(&[]).set(age.as_secs_f64());
}

/// Shows how much memory this process uses. Does nothing where the system does not say it in `/proc`.
pub fn show_process() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    if let Some(kibibytes) = resident {
        RESIDENT_BYTES.gauge(&[]).set(kibibytes as f64 * 1024.0);
    }
}

/// A handle and the figure that it shows.
type Shown<H, N> = (H, fn(&QueueFigures) -> N);

struct QueueMeters {
    gauges: Vec<Shown<Gauge, f64>>,
    counters: Vec<Shown<Counter, u64>>,
}

impl QueueMeters {
    fn new(queue: &str) -> Self {
        let jobs = |state: &str| QUEUE_JOBS.gauge(&[queue, state]);
        let one = [queue];
        Self {
            gauges: vec![
                (jobs("ready"), |figures| figures.ready as f64),
                (jobs("held"), |figures| figures.held as f64),
                (jobs("scheduled"), |figures| figures.scheduled as f64),
                (jobs("parked"), |figures| figures.parked as f64),
                (jobs("dead"), |figures| figures.dead as f64),
                (QUEUE_OLDEST_DUE.gauge(&one), |figures| {
                    figures.oldest_due.unwrap_or_default().as_secs_f64()
                }),
                (QUEUE_PAUSED.gauge(&one), |figures| figures.paused as f64),
                (QUEUE_WORKERS.gauge(&one), |figures| figures.workers as f64),
                (QUEUE_SLOTS.gauge(&one), |figures| figures.slots as f64),
                (QUEUE_ARRIVALS.gauge(&one), |figures| figures.arrivals_per_second.unwrap_or(0.0)),
                (QUEUE_DEPARTURES.gauge(&one), |figures| figures.departures_per_second.unwrap_or(0.0)),
            ],
            counters: vec![
                (QUEUE_ENQUEUED.counter(&one), |figures| figures.enqueued),
                (QUEUE_DONE.counter(&one), |figures| figures.done),
                (QUEUE_RETRIED.counter(&one), |figures| figures.retried),
                (QUEUE_DEAD.counter(&one), |figures| figures.buried),
                (QUEUE_REDELIVERED.counter(&one), |figures| figures.redelivered),
                (QUEUE_CANCELLED.counter(&one), |figures| figures.cancelled),
                (QUEUE_DROPPED.counter(&one), |figures| figures.dropped),
            ],
        }
    }

    fn show(&self, figures: &QueueFigures) {
        for (gauge, read) in &self.gauges {
            gauge.set(read(figures));
        }
        for (counter, read) in &self.counters {
            counter.absolute(read(figures));
        }
    }

    fn clear(&self) {
        self.gauges.iter().for_each(|(gauge, _)| gauge.set(0.0));
    }
}
