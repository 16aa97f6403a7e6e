use std::collections::BTreeSet;
use std::time::Duration;

use celeriac::core::{
    Broker, ClaimOptions, Claimed, Failure, QueueName, Settlement, Verdict, WorkerId, WorkerInfo,
};

use crate::program::Program;

const ARGUMENTS: &str = r#"{"path": "a.png", "width": 200}"#;

#[test]
fn pages_go_through_all_rooms_and_show_each_job_once() {
    let program = Program::with_task();
    let mut stored = BTreeSet::new();
    for number in 0..7 {
        let delay = if number % 2 == 0 { "0" } else { "1h" };
        let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS, "--delay", delay]);
        stored.insert(id.trim().to_owned());
    }
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut words = vec!["jobs", "list", "--limit", "2"];
        if let Some(mark) = &after {
            words.extend(["--after", mark]);
        }
        let page = program.json(&words);
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 2);
        seen.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 7, "none twice: {seen:?}");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), stored);

    let scheduled = program.json(&["jobs", "list", "--room", "scheduled"]);
    assert_eq!(scheduled["jobs"].as_array().unwrap().len(), 3);
    let other = program.json(&["jobs", "list", "--queue", "default"]);
    assert_eq!(other["jobs"].as_array().unwrap().len(), 0);
    let wrong = program.run(&["jobs", "list", "--after", "cellar/7"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

#[test]
fn people_see_a_table() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS, "--delay", "90m"]);
    let table = program.ok(&["jobs", "list"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("ID "), "{table}");
    let row = lines.next().unwrap();
    for part in
        [id.trim(), "thumbnail", "media", "scheduled", "due in 1h 2", r#"{"path":"a.png","width":200}"#]
    {
        assert!(row.contains(part), "{part} is not in {row}");
    }
    assert!(!table.contains('\u{1b}'), "no colours without a terminal");
    let empty = program.run(&["jobs", "list", "--task", "other"]);
    assert_eq!((empty.code, empty.out.as_str(), empty.err.as_str()), (0, "", "no jobs\n"));
}

#[test]
fn cancelled_jobs_are_gone() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS]);
    let id = id.trim();
    assert_eq!(program.ok(&["jobs", "cancel", id]), format!("{id} removed from jobs\n"));
    let again = program.run(&["jobs", "cancel", id]);
    assert_eq!(again.code, 1);
    assert!(again.err.contains("no such job"), "{again:?}");
    let json = program.run(&["jobs", "cancel", id, "--json"]);
    assert_eq!(json.code, 1);
    assert_eq!(json.out.trim(), format!(r#"{{"jobs":[{{"id":"{id}","result":"not_found"}}]}}"#));
    let shown = program.run(&["jobs", "show", id]);
    assert_eq!(shown.code, 1);
    assert_eq!(program.run(&["--json", "jobs", "show", id]).error().0, "no_such_job");
}

/// Takes all jobs of `media` as a worker that will not come back.
async fn claim(broker: &dyn Broker) -> (WorkerId, Vec<Claimed>) {
    let id = WorkerId::from_uuid(uuid::Uuid::now_v7());
    let media = QueueName::new("media").unwrap();
    broker
        .register(WorkerInfo::new(id, "host:7", [media.clone()], Duration::from_secs(3_600)))
        .await
        .unwrap();
    (id, broker.claim(ClaimOptions::new(id, [media], 10)).await.unwrap())
}

#[test]
fn held_jobs_name_their_worker_and_are_asked_to_stop() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS]);
    let id = id.trim();
    program.on_the_broker(async |broker| assert_eq!(claim(&*broker).await.1.len(), 1));
    let job = program.json(&["jobs", "show", id]);
    assert_eq!((job["state"].as_str(), job["held_by"].as_str()), (Some("held"), Some("host:7")));
    assert!(program.ok(&["jobs", "list"]).contains("by host:7"));
    let run = program.run(&["queues", "purge", "media", "--yes"]);
    assert_eq!(run.out, "purged 0 jobs of queue media\n", "held jobs are left alone");
    assert_eq!(program.ok(&["jobs", "cancel", id]), format!("{id} is running; it was asked to stop\n"));
}

#[test]
fn the_history_is_shown_whole() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS]);
    let id = id.trim();
    program.on_the_broker(async |broker| {
        let (worker, claimed) = claim(&*broker).await;
        let failure = Failure::failed("upload failed:\nconnection refused \u{1b}[31m");
        let verdict = Verdict::Retry { after: Duration::from_secs(3_600), failure };
        let receipt = claimed[0].receipt;
        broker.settle(worker, vec![Settlement { receipt, verdict }]).await.unwrap();
    });
    let job = program.json(&["jobs", "show", id]);
    assert_eq!((job["state"].as_str(), job["attempt"].as_u64()), (Some("scheduled"), Some(1)));
    assert_eq!(job["history"][0]["kind"], "failed");
    assert_eq!(job["history"][0]["worker"], "host:7");
    let shown = program.ok(&["jobs", "show", id]);
    assert!(shown.contains("failed 1  host:7\n    upload failed:\n    connection refused"), "{shown}");
    assert!(shown.contains("failed      once") && !shown.contains('\u{1b}'), "{shown}");
    assert!(program.ok(&["jobs", "list"]).contains("due in 5"));
}
