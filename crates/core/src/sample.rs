//! The figures of a store, taken once for all who look at it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::inspect::{QueueStats, Stats, WorkerStats};
use crate::name::{QueueName, TaskName};
use crate::queue::Paused;
use crate::time::Timestamp;

/// The figures of a store at one moment, kept in the store itself.
///
/// Whoever first finds it too old takes it anew, and all others read that: however many workers are looked at, the
/// store counts once. Its size is bounded whatever the number of queues, tasks and workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Sample {
    /// When it was taken, by the store's clock. `None` before the first.
    pub taken_at: Option<Timestamp>,
    /// At most [`Sample::MAX_QUEUES`] queues, by name. Once named here, a queue stays for as long as it exists.
    pub queues: Vec<QueueSample>,
    /// All further queues together; `None` if there is none.
    pub other_queues: Option<QueueFigures>,
    /// Tasks that parked jobs wait for and no live worker knows, with the number of jobs: those with most jobs, at
    /// most [`Sample::MAX_TASKS`].
    pub orphans: Vec<(TaskName, u64)>,
    /// Jobs that wait for further such tasks.
    pub other_orphans: u64,
    /// Workers whose lease holds.
    pub workers: u64,
    /// Workers whose lease lapsed and whose jobs wait for their rescue.
    pub lapsed_workers: u64,
    /// What the store itself is like.
    pub storage: StorageFigures,
}

/// One queue in a [`Sample`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueSample {
    /// Which queue.
    pub name: QueueName,
    /// Its figures.
    #[serde(flatten)]
    pub figures: QueueFigures,
}

/// The figures of one queue, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueFigures {
    /// How many queues are paused: 0 or 1 for one queue.
    pub paused: u64,
    /// Jobs that could be claimed now.
    pub ready: u64,
    /// Jobs that workers hold.
    pub held: u64,
    /// Jobs that wait for a time.
    pub scheduled: u64,
    /// Jobs that wait for another job or a worker.
    pub parked: u64,
    /// Jobs in the bin.
    pub dead: u64,
    /// How long the oldest ready job has been due.
    pub oldest_due: Option<Duration>,
    /// Jobs ever stored.
    pub enqueued: u64,
    /// Verdicts `done` ever.
    pub done: u64,
    /// Verdicts `retry` ever.
    pub retried: u64,
    /// Jobs ever moved to the bin.
    pub buried: u64,
    /// Jobs ever redelivered after the loss of a worker.
    pub redelivered: u64,
    /// Jobs ever cancelled.
    pub cancelled: u64,
    /// Jobs ever dropped or purged.
    pub dropped: u64,
    /// Live workers that serve it.
    pub workers: u64,
    /// How many handlers they run at once, in all.
    pub slots: u64,
    /// Jobs stored a second, as an average over about a minute; `None` until two samples were taken.
    pub arrivals_per_second: Option<f64>,
    /// Jobs that left for good a second (done, to the bin, cancelled, dropped), likewise.
    pub departures_per_second: Option<f64>,
}

/// What an engine knows of its own state. What it does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StorageFigures {
    /// Sizes in bytes, by part: `file` and `log`, or a table's name. A fixed set for each engine.
    pub bytes: BTreeMap<String, u64>,
    /// Rows that are deleted and take up room still, by part.
    pub dead_rows: BTreeMap<String, u64>,
    /// How long the oldest transaction has kept such rows from being removed.
    pub oldest_snapshot: Option<Duration>,
    /// Connections to the server, of all its users.
    pub connections: Option<u64>,
    /// The most connections that the server allows.
    pub max_connections: Option<u64>,
}

/// How fresh a sample must be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleOptions {
    /// An older one is taken anew. Default 10 s: shorter than the usual 15 s between two scrapes.
    pub max_age: Duration,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self { max_age: Duration::from_secs(10) }
    }
}

/// A sample and how old it is by the store's clock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampled {
    /// The figures.
    pub sample: Sample,
    /// Time since they were taken.
    pub age: Duration,
}

impl Sampled {
    /// For engines.
    pub fn new(sample: Sample, now: Timestamp) -> Self {
        let age = sample.taken_at.map_or(Duration::ZERO, |taken| now.since(taken));
        Self { sample, age }
    }
}

impl Sample {
    /// More queues than a person looks at, few enough for any scrape.
    pub const MAX_QUEUES: usize = 200;
    /// As [`Sample::MAX_QUEUES`], for tasks.
    pub const MAX_TASKS: usize = 100;

    /// Makes a sample of `stats` as they were at `now`. `before` is the sample that it replaces.
    pub fn take(stats: &Stats, storage: StorageFigures, before: &Self, now: Timestamp) -> Self {
        let live: Vec<&WorkerStats> =
            stats.workers.iter().filter(|worker| !worker.lease_left.is_zero()).collect();
        let mut sample = Self {
            taken_at: Some(now),
            workers: count(live.len()),
            lapsed_workers: count(stats.workers.len() - live.len()),
            storage,
            ..Self::default()
        };
        let passed = before.taken_at.map(|taken| now.since(taken));
        let chosen = choose(stats, before, &live);
        for queue in &stats.queues {
            let mut figures = QueueFigures::of(queue, &live);
            if chosen.contains(&queue.name) {
                let known = before.queues.iter().find(|known| known.name == queue.name);
                figures.measure(known.map(|known| &known.figures), passed);
                sample.queues.push(QueueSample { name: queue.name.clone(), figures });
            } else {
                sample.other_queues.get_or_insert_default().add(&figures);
            }
        }
        if let Some(others) = &mut sample.other_queues {
            others.measure(before.other_queues.as_ref(), passed);
        }
        let known: HashSet<&TaskName> = live.iter().flat_map(|worker| &worker.tasks).collect();
        let mut orphans: Vec<(TaskName, u64)> =
            stats.parked.iter().filter(|(task, _)| !known.contains(task)).cloned().collect();
        orphans.sort_by(|(a, more), (b, less)| (Reverse(more), a).cmp(&(Reverse(less), b)));
        let rest = orphans.split_off(orphans.len().min(Self::MAX_TASKS));
        sample.other_orphans = rest.iter().map(|(_, jobs)| jobs).sum();
        sample.orphans = orphans;
        sample
    }

    /// From the text that a store keeps. A text of another version that cannot be read is as good as none.
    pub fn from_text(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// As text for a store.
    pub fn to_text(&self) -> String {
        // Strings and finite numbers always encode; an empty text reads as no sample.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The figures of these queues together. Queues that are not named in the sample are left out.
    pub fn total<'a>(&self, names: impl IntoIterator<Item = &'a QueueName>) -> QueueFigures {
        let names: HashSet<&QueueName> = names.into_iter().collect();
        let mut total = QueueFigures::default();
        for queue in self.queues.iter().filter(|queue| names.contains(&queue.name)) {
            total.add(&queue.figures);
        }
        total
    }
}

/// The queues that are named: those that were, then those that workers serve, then by name. A flood of new queues
/// pushes none out that somebody watches.
fn choose(stats: &Stats, before: &Sample, live: &[&WorkerStats]) -> HashSet<QueueName> {
    let known: HashSet<&QueueName> = before.queues.iter().map(|queue| &queue.name).collect();
    let served: HashSet<&QueueName> = live.iter().flat_map(|worker| &worker.queues).collect();
    let mut names: Vec<&QueueName> = stats.queues.iter().map(|queue| &queue.name).collect();
    names.sort_by_key(|name| (!known.contains(name), !served.contains(name), *name));
    names.into_iter().take(Sample::MAX_QUEUES).cloned().collect()
}

impl QueueFigures {
    fn of(queue: &QueueStats, live: &[&WorkerStats]) -> Self {
        let serving = || live.iter().filter(|worker| worker.queues.contains(&queue.name));
        Self {
            paused: u64::from(queue.paused == Paused::Yes),
            ready: queue.ready,
            held: queue.held,
            scheduled: queue.scheduled,
            parked: queue.parked,
            dead: queue.dead,
            oldest_due: queue.oldest_due,
            enqueued: queue.enqueued,
            done: queue.done,
            retried: queue.retried,
            buried: queue.buried,
            redelivered: queue.redelivered,
            cancelled: queue.cancelled,
            dropped: queue.dropped,
            workers: count(serving().count()),
            slots: serving().map(|worker| u64::from(worker.concurrency)).sum(),
            arrivals_per_second: None,
            departures_per_second: None,
        }
    }

    fn add(&mut self, other: &Self) {
        let sum = |mine: &mut u64, other: u64| *mine = mine.saturating_add(other);
        sum(&mut self.paused, other.paused);
        sum(&mut self.ready, other.ready);
        sum(&mut self.held, other.held);
        sum(&mut self.scheduled, other.scheduled);
        sum(&mut self.parked, other.parked);
        sum(&mut self.dead, other.dead);
        sum(&mut self.enqueued, other.enqueued);
        sum(&mut self.done, other.done);
        sum(&mut self.retried, other.retried);
        sum(&mut self.buried, other.buried);
        sum(&mut self.redelivered, other.redelivered);
        sum(&mut self.cancelled, other.cancelled);
        sum(&mut self.dropped, other.dropped);
        // A worker that serves two of the queues is one worker.
        self.workers = self.workers.max(other.workers);
        self.slots = self.slots.max(other.slots);
        self.oldest_due = self.oldest_due.max(other.oldest_due);
        let rate = |mine: &mut Option<f64>, other: Option<f64>| {
            *mine = match (*mine, other) {
                (Some(mine), Some(other)) => Some(exact(mine + other)),
                (mine, other) => mine.or(other),
            };
        };
        rate(&mut self.arrivals_per_second, other.arrivals_per_second);
        rate(&mut self.departures_per_second, other.departures_per_second);
    }

    /// Takes what happened since `before`, `passed` ago, into the averages.
    fn measure(&mut self, before: Option<&Self>, passed: Option<Duration>) {
        let Some((before, passed)) = before.zip(passed.filter(|passed| !passed.is_zero())) else { return };
        let weight = 1.0 - (-passed.as_secs_f64() / AVERAGED.as_secs_f64()).exp();
        let follow = |average: Option<f64>, now: u64, then: u64| {
            let rate = now.saturating_sub(then) as f64 / passed.as_secs_f64();
            Some(exact(average.map_or(rate, |average| average + (rate - average) * weight)))
        };
        self.arrivals_per_second = follow(before.arrivals_per_second, self.enqueued, before.enqueued);
        self.departures_per_second = follow(before.departures_per_second, self.left(), before.left());
    }

    /// Jobs that ever left for good.
    const fn left(&self) -> u64 {
        self.done.saturating_add(self.buried).saturating_add(self.cancelled).saturating_add(self.dropped)
    }
}

/// A millionth more or less means nothing, and such a number is the same after it was written as text and read again.
fn exact(rate: f64) -> f64 {
    (rate * 1e6).round() / 1e6
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What rates are averaged over: long enough to be calm, short enough to follow a rush.
const AVERAGED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueueSettings, WorkerId};

    fn queue(name: &str, change: impl FnOnce(&mut QueueStats)) -> QueueStats {
        let mut queue = QueueStats::new(QueueName::new(name).unwrap(), QueueSettings::default(), Paused::No);
        change(&mut queue);
        queue
    }

    fn worker(queues: &[&str], tasks: &[&str], lease_left: Duration) -> WorkerStats {
        let id = WorkerId::from_uuid(uuid::Uuid::from_u128(7));
        let mut worker = WorkerStats::new(id, "w".to_owned(), Timestamp::from_micros(0), lease_left);
        worker.queues = queues.iter().map(|name| QueueName::new(name).unwrap()).collect();
        worker.tasks = tasks.iter().map(|name| TaskName::new(name).unwrap()).collect();
        worker.concurrency = 4;
        worker
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn take(stats: &Stats, before: &Sample, seconds: i64) -> Sample {
        Sample::take(stats, StorageFigures::default(), before, at(seconds))
    }

    #[test]
    fn rates_follow_the_counters() {
        let mut stats = Stats { queues: vec![queue("a", |queue| queue.enqueued = 100)], ..Stats::default() };
        let first = take(&stats, &Sample::default(), 10);
        assert_eq!(first.queues[0].figures.arrivals_per_second, None);
        stats.queues[0].enqueued = 150;
        stats.queues[0].done = 20;
        let second = take(&stats, &first, 20);
        assert_eq!(second.queues[0].figures.arrivals_per_second, Some(5.0));
        assert_eq!(second.queues[0].figures.departures_per_second, Some(2.0));
        let mut last = second;
        for step in 3..40 {
            last = take(&stats, &last, step * 10);
        }
        assert!(last.queues[0].figures.arrivals_per_second.unwrap() < 0.1, "it forgets");
        // A store that was made anew counts from zero.
        stats.queues[0].enqueued = 0;
        let anew = take(&stats, &last, 1_000);
        assert!(anew.queues[0].figures.arrivals_per_second.unwrap() >= 0.0);
    }

    #[test]
    fn only_live_workers_count_and_orphans_are_what_they_do_not_know() {
        let name = |name: &str| TaskName::new(name).unwrap();
        let stats = Stats {
            queues: vec![queue("a", |_| ()), queue("b", |queue| queue.paused = Paused::Yes)],
            workers: vec![
                worker(&["a", "b"], &["known"], Duration::from_secs(5)),
                worker(&["a"], &["lost"], Duration::ZERO),
            ],
            parked: vec![(name("known"), 3), (name("lost"), 1), (name("never"), 9)],
        };
        let sample = take(&stats, &Sample::default(), 1);
        assert_eq!((sample.workers, sample.lapsed_workers), (1, 1));
        assert_eq!((sample.queues[0].figures.workers, sample.queues[0].figures.slots), (1, 4));
        assert_eq!(sample.queues[1].figures.paused, 1);
        assert_eq!(sample.orphans, [(name("never"), 9), (name("lost"), 1)]);
    }

    #[test]
    fn a_flood_of_names_stays_bounded_and_pushes_nobody_out() {
        let mut stats = Stats { queues: vec![queue("watched", |queue| queue.ready = 1)], ..Stats::default() };
        let before = take(&stats, &Sample::default(), 1);
        for number in 0..5_000 {
            stats.queues.push(queue(&format!("a{number:04}"), |queue| {
                queue.ready = 1;
                queue.oldest_due = Some(Duration::from_secs(number));
            }));
            stats.parked.push((TaskName::new(format!("t{number}")).unwrap(), 2));
        }
        stats.workers.push(worker(&["a4999"], &[], Duration::from_secs(1)));
        let sample = take(&stats, &before, 2);
        assert_eq!(sample.queues.len(), Sample::MAX_QUEUES);
        for name in ["watched", "a4999", "a0000"] {
            assert!(sample.queues.iter().any(|queue| queue.name.as_str() == name), "{name}");
        }
        let others = sample.other_queues.as_ref().unwrap();
        assert_eq!(others.ready, 5_001 - 200);
        assert_eq!(others.oldest_due, Some(Duration::from_secs(4_998)));
        assert_eq!(sample.orphans.len(), Sample::MAX_TASKS);
        assert_eq!(sample.other_orphans, (5_000 - 100) * 2);
        assert!(sample.to_text().len() < 200_000, "{}", sample.to_text().len());
        // Who is named stays named.
        let again = take(&stats, &sample, 3);
        let names =
            |sample: &Sample| sample.queues.iter().map(|queue| queue.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&again), names(&sample));
    }

    #[test]
    fn a_sample_survives_the_round_and_damage_reads_as_none() {
        let stats = Stats { queues: vec![queue("a", |queue| queue.ready = 5)], ..Stats::default() };
        let mut storage = StorageFigures::default();
        storage.bytes.insert("file".to_owned(), 4_096);
        let sample = Sample::take(&stats, storage, &Sample::default(), at(3));
        assert_eq!(Sample::from_text(&sample.to_text()), sample);
        for text in ["", "{", "[]", "{\"queues\":[{\"name\":\"two words\"}]}"] {
            assert_eq!(Sample::from_text(text), Sample::default(), "{text}");
        }
        let now = at(10);
        assert_eq!(Sampled::new(sample, now).age, Duration::from_secs(7));
    }
}
