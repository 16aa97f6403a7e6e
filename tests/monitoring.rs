//! Metrics, dashboards and alerts as an operator meets them: real workers, a real Prometheus server, real faults.

#![expect(clippy::unwrap_used, reason = "what breaks here is a failure of the test that asked for it")]

use std::collections::BTreeSet;
use std::time::Duration;

use celeriac::core::{Paused, QueueChange, QueueName};
use celeriac::{Call, Client};
use celeriac_tests::{Site, call, eventually, site};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[path = "monitoring/http.rs"]
mod http;
#[path = "monitoring/watch.rs"]
mod watch;

use watch::{dashboards, start_prometheus, start_worker};

const WORKER: &str = "--queues default,held --lease 2s --concurrency 4 --log warn,celeriac_monitor=info";

/// Jobs of every kind, again and again, until it is dropped.
fn load(client: &Client) -> JoinSet<()> {
    let client = client.clone();
    let mut load = JoinSet::new();
    load.spawn(async move {
        for round in 0_u64.. {
            let mut calls: Vec<Call> = (0..5).map(|_| call("record", &json!({"millis": 2}))).collect();
            calls.push(call("record", &json!({"millis": 1})).delay(Duration::from_millis(200)));
            if round.is_multiple_of(5) {
                calls.push(call("fail", &json!({"times": 4})));
                calls.push(call("reject", &json!({})));
                calls.push(call("panic", &json!({})));
                calls.push(call("overrun", &json!({})));
                calls.push(call("snooze", &json!({})));
                calls.push(call("record", &json!({"millis": 1})).queue("lonely"));
            }
            // The store may be away: that is one of the faults.
            let _ = client.enqueue_all(calls).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    load
}

async fn declare(client: &Client, queue: &str, paused: Paused) {
    let mut change = QueueChange::default();
    change.paused = Some(paused);
    client.broker().declare(QueueName::new(queue).unwrap(), change).await.unwrap();
}

/// Title and query of every panel.
fn panels() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dashboards().join("grafana")).unwrap() {
        let path = entry.unwrap().path();
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let title = format!("{}: {}", board["title"], panel["title"]);
                found.push((title, target["expr"].as_str().unwrap().to_owned()));
            }
        }
    }
    assert!(found.len() > 60, "{}", found.len());
    found
}

fn has_value(result: &Value) -> bool {
    result["value"][1].as_str().is_some_and(|value| value != "NaN")
}

/// Every query of every panel has data while workers are at work; each alert fires when its fault is there.
#[tokio::test(flavor = "multi_thread")]
async fn dashboards_are_filled_and_every_alert_fires() {
    let site = site!();
    let client = site.client().await;
    for (queue, paused) in [("held", Paused::Yes), ("lonely", Paused::No)] {
        declare(&client, queue, paused).await;
    }
    client.enqueue(call("record", &json!({"millis": 1})).queue("held")).await.unwrap();
    client.enqueue(call("nobody_knows_it", &json!({}))).await.unwrap();
    let load = load(&client);
    let first = start_worker(&site, WORKER).await;
    let second = start_worker(&site, WORKER).await;
    let (_server, prometheus) = start_prometheus(&site, &[&first.address, &second.address]).await;

    let mut only_postgres = 0;
    for (title, expression) in panels() {
        if title.contains("(PostgreSQL)") {
            only_postgres += 1;
            continue;
        }
        let expression = expression
            .replace("$job", "celeriac")
            .replace("$queue", ".*")
            .replace("$task", ".*")
            .replace("$__rate_interval", "15s");
        eventually(&format!("data in {title}: {expression}"), || async {
            http::query(&prometheus, &expression).await.filter(|results| results.iter().any(has_value))
        })
        .await;
    }
    assert_eq!(only_postgres, 3);

    let mut fired = BTreeSet::new();
    until_fired(
        &prometheus,
        &mut fired,
        &[
            "CeleriacBacklogGrows",
            "CeleriacDeadLetters",
            "CeleriacQueueLate",
            "CeleriacQueuePaused",
            "CeleriacQueueWithoutWorkers",
            "CeleriacRetries",
            "CeleriacUnknownTask",
        ],
    )
    .await;

    // Silent for longer than its lease, then back.
    second.process.signal(Signal::STOP);
    until_fired(&prometheus, &mut fired, &["CeleriacWorkerDown"]).await;
    second.process.signal(Signal::CONT);
    until_fired(&prometheus, &mut fired, &["CeleriacLeaseLost", "CeleriacWorkersDie"]).await;

    // Another program holds the store's lock nearly all the time.
    let holding = hold_the_lock(&site);
    until_fired(&prometheus, &mut fired, &["CeleriacStoreSlow"]).await;
    drop(holding);

    // The store's file is taken away, and comes back.
    let away = site.folder().join("away.db");
    std::fs::rename(site.store(), &away).unwrap();
    until_fired(&prometheus, &mut fired, &["CeleriacStoreUnreachable", "CeleriacWorkerNotReady"]).await;
    let (status, text) = http::get(&first.address, "/readyz").await.unwrap();
    assert_eq!(status, 503, "{text}");
    std::fs::rename(&away, site.store()).unwrap();
    eventually("a worker that is ready again", || async {
        http::get(&first.address, "/readyz").await.filter(|(status, _)| *status == 200)
    })
    .await;

    drop(load);
    first.process.kill().await;
    second.process.kill().await;
    until_fired(&prometheus, &mut fired, &["CeleriacNoWorkerAtAll"]).await;

    let rules = std::fs::read_to_string(dashboards().join("prometheus/rules.yml")).unwrap();
    let all: BTreeSet<String> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned)).collect();
    // A server is needed for these; their rules have unit tests.
    let postgres: BTreeSet<String> =
        ["CeleriacConnectionsUsedUp", "CeleriacOldSnapshot"].map(str::to_owned).into();
    assert_eq!(all.difference(&fired).cloned().collect::<BTreeSet<_>>(), postgres);
}

async fn until_fired(prometheus: &str, fired: &mut BTreeSet<String>, wanted: &[&str]) {
    for name in wanted {
        eventually(&format!("the alert {name}"), || async {
            http::firing(prometheus).await.iter().any(|firing| firing == name).then_some(())
        })
        .await;
        fired.insert((*name).to_owned());
    }
}

/// Takes the write lock for more than a second again and again, until the answer is dropped.
fn hold_the_lock(site: &Site) -> std::sync::mpsc::Sender<()> {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let connection = rusqlite::Connection::open(site.store()).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    std::thread::spawn(move || {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        loop {
            connection.execute_batch("begin immediate").unwrap();
            let more = stopped.recv_timeout(Duration::from_millis(1_500)) == Err(Timeout);
            connection.execute_batch("rollback").unwrap();
            if !more || stopped.recv_timeout(Duration::from_millis(20)) != Err(Timeout) {
                return;
            }
        }
    });
    stop
}

/// The rules' own tests.
#[test]
fn the_alert_rules_pass_their_unit_tests() {
    let folder = dashboards().join("prometheus");
    for words in [["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]] {
        let output =
            std::process::Command::new("promtool").current_dir(&folder).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {}:\n{text}", words.join(" "));
    }
}

/// Every alert has a unit test, and the page says what to do about it.
#[test]
fn every_alert_and_panel_is_explained() {
    let read = |name: &str| std::fs::read_to_string(dashboards().join(name)).unwrap();
    let (rules, tests, page) =
        (read("prometheus/rules.yml"), read("prometheus/rules_test.yml"), read("README.md"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert} has no test");
        assert!(page.contains(&format!("`{alert}`")), "{alert} is not in dashboards/README.md");
    }
    for (title, _) in panels() {
        let panel = title.rsplit(": ").next().unwrap().trim_matches('"');
        assert!(page.contains(panel), "{title} is not in dashboards/README.md");
    }
}

/// Health and figures for autoscalers, and what bad requests get.
#[tokio::test]
async fn a_worker_answers_who_asks_how_it_is() {
    let site = site!();
    let client = site.client().await;
    let worker = start_worker(&site, "--concurrency 2").await;
    let ask = async |path: &str| http::get(&worker.address, path).await.unwrap();
    eventually("a ready worker", || async { (ask("/readyz").await.0 == 200).then_some(()) }).await;
    let (status, text) = ask("/livez").await;
    assert_eq!(status, 200, "{text}");
    for _ in 0..5 {
        client.enqueue(call("record", &json!({"millis": 60_000}))).await.unwrap();
    }
    let scale: Value = eventually("the backlog in /scale", || async {
        let (status, body) = ask("/scale?target=10s&most=7").await;
        let scale: Value = serde_json::from_str(&body).ok()?;
        (status == 200 && scale["held"] == 2 && scale["backlog"] == 3).then_some(scale)
    })
    .await;
    assert_eq!(
        (&scale["workers"], &scale["slots"], &scale["wanted_workers"]),
        (&json!(1), &json!(2), &json!(1))
    );
    assert_eq!(scale["queues"], json!(["default"]));
    assert_eq!(ask("/scale?target=soon").await.0, 400);
    assert_eq!(ask("/nothing").await.0, 404);
    let (_, metrics) = ask("/metrics").await;
    for part in ["# HELP celeriac_ready ", "celeriac_slots_busy 2\n", "celeriac_queue_jobs{queue=\"default\""]
    {
        assert!(metrics.contains(part), "{part} is not in:\n{metrics}");
    }
    // It still answers while it stops, and says that it takes no more.
    worker.process.signal(Signal::TERM);
    eventually("a worker that is no longer ready", || async {
        (ask("/readyz").await.0 == 503).then_some(())
    })
    .await;
    assert_eq!(ask("/livez").await.0, 200);
}

/// As many scrapes as two hours have, with jobs in between: the memory of the worker stays where it was.
#[tokio::test]
async fn a_scraped_worker_does_not_grow() {
    let site = site!();
    let client = site.client().await;
    let worker = start_worker(&site, "--concurrency 4").await;
    let mut memory = Vec::new();
    for scrape in 0..480_usize {
        let calls = (0..20).map(|_| call("record", &json!({"millis": 0})));
        client.enqueue_all(calls).await.unwrap();
        let (status, text) = http::get(&worker.address, "/metrics").await.unwrap();
        assert_eq!(status, 200);
        if scrape % 120 == 119 {
            let line =
                text.lines().find(|line| line.starts_with("celeriac_process_resident_bytes ")).unwrap();
            memory.push(line.split(' ').nth(1).unwrap().parse::<f64>().unwrap() / 1_048_576.0);
        }
    }
    assert!(memory[3] < memory[0] + 16.0, "MiB after each half hour's scrapes: {memory:?}");
}
