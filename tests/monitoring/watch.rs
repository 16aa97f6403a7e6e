//! Workers that are watched, and the Prometheus server that watches them.

use std::path::{Path, PathBuf};

use celeriac_tests::{Process, Site, eventually};
use tokio::process::Command;

use crate::http;

/// A worker with metrics, and where they are.
pub(crate) struct Watched {
    pub(crate) process: Process,
    pub(crate) address: String,
}

pub(crate) async fn start_worker(site: &Site, words: &str) -> Watched {
    let process = site.start_worker(&format!("--metrics 0 --metrics-sample 300ms {words}"));
    let address = eventually("the address of the metrics", || async {
        let log = process.errors();
        let (_, rest) = log.split_once("metrics and health on http://")?;
        Some(rest.split_once('/')?.0.to_owned())
    })
    .await;
    Watched { process, address }
}

/// A Prometheus server with the product's rules, in a hurry. Gives it and its address.
pub(crate) async fn start_prometheus(site: &Site, targets: &[&str]) -> (Process, String) {
    let rules = std::fs::read_to_string(dashboards().join("prometheus/rules.yml")).unwrap();
    std::fs::write(site.folder().join("rules.yml"), hurried(&rules)).unwrap();
    let targets: Vec<String> = targets.iter().map(|target| format!("{target:?}")).collect();
    let config = format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: celeriac\n    static_configs: [{{ targets: [{}] }}]\n",
        targets.join(", ")
    );
    std::fs::write(site.folder().join("prometheus.yml"), config).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", site.folder().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", site.folder().join("series").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=warn");
    let process = site.start(command);
    eventually("the Prometheus server", || async {
        http::get(&address, "/-/ready").await.filter(|(status, _)| *status == 200)
    })
    .await;
    (process, address)
}

pub(crate) fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

/// The rules with shorter times and lower limits, and nothing else changed.
fn hurried(rules: &str) -> String {
    let mut done = String::new();
    let mut limit = "";
    for line in rules.lines() {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        if text.starts_with("for: ") {
            done.push_str(&format!("{indent}for: 1s"));
        } else if let (Some(_), Some(value)) = (text.strip_prefix("expr: "), lower(limit)) {
            done.push_str(&format!("{indent}expr: {value}"));
        } else {
            let line = ["[5m]", "[10m]", "[15m]"]
                .iter()
                .fold(line.to_owned(), |line, range| line.replace(range, "[15s]"));
            done.push_str(&line);
        }
        limit = text.strip_prefix("- record: celeriac:limit_").unwrap_or_default();
        done.push('\n');
    }
    done
}

fn lower(limit: &str) -> Option<&'static str> {
    match limit {
        "oldest_due_seconds" => Some("2"),
        "backlog_jobs" => Some("3"),
        "claim_seconds" => Some("0.5"),
        _ => None,
    }
}
