use std::time::Duration;

use celeriac::core::{QueueName, WorkerId, WorkerInfo};

use crate::program::Program;

#[test]
fn a_healthy_store_passes_the_doctor() {
    let program = Program::with_task();
    program.ok(&["enqueue", "thumbnail", r#"{"path": "a", "width": 1}"#]);
    let report = program.json(&["doctor"]);
    assert_eq!((report["healthy"].as_bool(), report["jobs"].as_u64()), (Some(true), Some(1)));
    let text = program.ok(&["doctor", "--repair"]);
    assert!(text.ends_with("looked at 1 jobs: every invariant holds\n"), "{text}");
}

#[test]
fn a_broken_store_fails_the_doctor_until_it_is_mended() {
    let program = Program::with_task();
    program.ok(&["enqueue", "thumbnail", r#"{"path": "a", "width": 1}"#]);
    // A row that vanishes behind the store's back leaves its counters wrong.
    let store = rusqlite::Connection::open(program.path("jobs.db")).unwrap();
    store.execute("delete from jobs", []).unwrap();
    drop(store);
    let broken = program.run(&["doctor"]);
    assert_eq!(broken.code, 1, "{broken:?}");
    assert!(broken.out.contains("broken") && broken.out.contains("--repair"), "{}", broken.out);
    let mended = program.run(&["doctor", "--repair"]);
    assert_eq!(mended.code, 0, "{mended:?}");
    assert_eq!(program.json(&["doctor"])["healthy"], true);
}

#[test]
fn stats_show_queues_workers_and_parked_tasks() {
    let program = Program::with_task();
    let text = program.ok(&["stats"]);
    assert!(text.contains("media") && text.contains("no workers"), "{text}");
    let id = WorkerId::from_uuid(uuid::Uuid::now_v7());
    program.on_the_broker(async |broker| {
        let info = WorkerInfo::new(id, "host:4711", [QueueName::default_queue()], Duration::from_secs(3600));
        broker.register(info).await.unwrap();
    });
    let stats = program.json(&["stats"]);
    assert_eq!(stats["workers"][0]["label"], "host:4711");
    assert_eq!(stats["workers"][0]["queues"], serde_json::json!(["default"]));
    assert!(stats["workers"][0]["lease_left_seconds"].as_f64().unwrap() > 3000.0);
    assert_eq!(stats["parked"], serde_json::json!([]));
    assert!(program.ok(&["stats"]).contains("host:4711"));
}

#[test]
fn tasks_are_listed_with_their_parameters() {
    let program = Program::with_task();
    let tasks = program.json(&["tasks"]);
    assert_eq!(tasks["tasks"][0]["name"], "thumbnail");
    assert_eq!(
        tasks["tasks"][0]["parameters"][2],
        serde_json::json!({"name": "height", "ty": "Option<u32>"})
    );
    let text = program.ok(&["tasks"]);
    assert!(text.contains("path: PathBuf, width: u32, height: Option<u32>"), "{text}");
    let none = Program::with_empty_store().run(&["tasks"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("no worker has announced a task yet"), "{none:?}");
}

#[test]
fn migrate_says_whether_it_made_the_store() {
    let program = Program::without_store();
    assert!(program.ok(&["migrate"]).ends_with("created\n"));
    assert!(program.ok(&["migrate"]).contains("has the schema of this program"));
    assert_eq!(program.json(&["migrate"])["created"], false);
}

#[test]
fn control_characters_of_a_job_do_not_reach_the_terminal() {
    let program = Program::with_task();
    let id = program.ok(&[
        "enqueue",
        "thumbnail",
        r#"{"path": "a", "width": 1}"#,
        "--header",
        "note=\u{1b}]0;gotcha\u{7}",
    ]);
    let shown = program.ok(&["jobs", "show", id.trim()]);
    assert!(shown.contains("gotcha") && !shown.contains('\u{1b}'), "{shown:?}");
}
