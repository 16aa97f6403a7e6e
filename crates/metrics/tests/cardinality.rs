//! What a scrape is like when names come from somebody who means harm.

#![expect(clippy::unwrap_used, reason = "what breaks here is a failure of the test")]

use std::collections::HashSet;
use std::time::Duration;

use celeriac_core::{
    Enqueued, JobId, Paused, QueueName, QueueSettings, QueueStats, Sample, Sampled, Stats, StorageFigures,
    TaskName, Timestamp, Verdict,
};
use celeriac_metrics::{CATALOGUE, ClientMeters, JobMeters, StoreMeters, WorkerMeters, describe};
use metrics_exporter_prometheus::PrometheusBuilder;

fn recorded(act: impl FnOnce()) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        describe();
        act();
    });
    handle.render()
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count()
}

/// The longest names that are allowed, all different.
fn hostile(number: usize) -> (QueueName, TaskName) {
    let queue = QueueName::new(format!("{number:0>100}")).unwrap();
    (queue, TaskName::new(format!("{number:_>200}")).unwrap())
}

#[test]
fn jobs_of_ten_thousand_queues_and_tasks_stay_within_the_bound() {
    let text = recorded(|| {
        let (client, jobs) = (ClientMeters::new(), JobMeters::new());
        for number in 0..10_000 {
            let (queue, task) = hostile(number);
            let answer = Ok(vec![Enqueued::New(JobId::from_key("a", "b"))]);
            client.one(&queue, &task, &answer, Duration::from_millis(1));
            let meter = jobs.of(&queue, &task);
            meter.started(Duration::from_millis(1));
            meter.ran(Duration::from_millis(1));
            meter.settled(&Verdict::Done, Duration::from_millis(1));
        }
    });
    let of = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
    assert_eq!(of("celeriac_enqueued_total"), 201);
    assert_eq!(of("celeriac_started_total"), 201);
    assert_eq!(of("celeriac_finished_total"), 201);
    let other = "celeriac_started_total{queue=\"other\",task=\"other\"} 9800\n";
    assert!(text.contains(other), "what is over the bound is counted all the same");
    assert!(series(&text) < 20_000, "{}", series(&text));
}

#[test]
fn a_store_with_ten_thousand_queues_stays_within_the_bound_and_gone_ones_show_zero() {
    let stats = |count: usize| {
        let mut stats = Stats::default();
        for number in 0..count {
            let mut queue = QueueStats::new(hostile(number).0, QueueSettings::default(), Paused::No);
            queue.ready = 2;
            stats.queues.push(queue);
            stats.parked.push((hostile(number).1, 1));
        }
        stats
    };
    let sampled = |stats: &Stats, before: &Sample| {
        let now = Timestamp::from_micros(1);
        Sampled::new(Sample::take(stats, StorageFigures::default(), before, now), now)
    };
    let text = recorded(|| {
        let mut meters = StoreMeters::new();
        let many = sampled(&stats(10_000), &Sample::default());
        meters.show(&many);
        meters.show(&sampled(&stats(10), &many.sample));
    });
    let ready: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("celeriac_queue_jobs") && line.contains("ready"))
        .collect();
    assert_eq!(ready.len(), 201);
    assert_eq!(ready.iter().filter(|line| line.ends_with(" 2")).count(), 10, "those that are there");
    assert_eq!(ready.iter().filter(|line| line.ends_with(" 0")).count(), 191, "those that are gone");
    assert!(series(&text) < 5_000, "{}", series(&text));
}

/// Nothing is recorded under a name that the catalogue, and with it the documentation, does not have.
#[test]
fn what_is_recorded_is_described() {
    let text = recorded(|| {
        let _worker = WorkerMeters::new();
        let (queue, task) = hostile(1);
        JobMeters::new().of(&queue, &task).settled(&Verdict::Done, Duration::ZERO);
        StoreMeters::new().show(&Sampled::new(Sample::default(), Timestamp::from_micros(0)));
    });
    let known: HashSet<&str> = CATALOGUE.iter().map(|metric| metric.name).collect();
    let typed: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(typed.len() > 20, "{typed:?}");
    for name in typed {
        assert!(known.contains(name), "{name}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} is not described");
    }
}
