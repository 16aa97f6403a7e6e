use serde_json::Value;

use crate::program::Program;

fn queue(program: &Program, name: &str) -> Value {
    let list = program.json(&["queues", "list"]);
    let found = list["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("{name} is not in {list}"))
}

#[test]
fn settings_come_and_go() {
    let program = Program::without_store();
    let created = program.ok(&[
        "queues",
        "declare",
        "media",
        "--delivery-limit",
        "5",
        "--ttl",
        "1h 30m",
        "--on-expire",
        "drop",
        "--max-length",
        "1000",
        "--overflow",
        "drop-oldest",
        "--dead-retention",
        "30d",
    ]);
    assert_eq!(created, "queue media created\n");
    let settings = queue(&program, "media")["settings"].clone();
    assert_eq!(
        settings,
        serde_json::json!({
            "delivery_limit": 5,
            "ttl_seconds": 5400.0,
            "on_expire": "drop",
            "max_length": 1000,
            "overflow": "drop_oldest",
            "dead_retention_seconds": 2_592_000.0,
        })
    );
    let table = program.ok(&["queues", "list"]);
    assert!(table.contains("length 1,000 (drop oldest), ttl 1h 30m (drop), delivery limit 5"), "{table}");

    assert_eq!(program.ok(&["queues", "declare", "media"]), "queue media is there already\n");
    let words =
        ["queues", "declare", "media", "--ttl", "none", "--max-length", "none", "--dead-retention", "none"];
    assert_eq!(program.ok(&words), "queue media changed\n");
    let settings = queue(&program, "media")["settings"].clone();
    assert_eq!(settings["ttl_seconds"], Value::Null);
    assert_eq!(settings["max_length"], Value::Null);
    assert_eq!(settings["delivery_limit"], 5, "what is not named stays");
}

#[test]
fn queues_pause_and_resume_and_typing_errors_create_none() {
    let program = Program::with_task();
    assert_eq!(
        program.ok(&["queues", "pause", "media", "default"]),
        "queue media paused\nqueue default paused\n"
    );
    assert_eq!(queue(&program, "media")["paused"], true);
    assert_eq!(program.ok(&["queues", "resume", "media"]), "queue media resumed\n");
    assert_eq!(queue(&program, "media")["paused"], false);
    let run = program.run(&["queues", "pause", "default", "meida"]);
    assert_eq!(run.code, 1);
    insta::assert_snapshot!("pause_unknown", run.shown(None));
    assert_eq!(program.json(&["queues", "list"])["queues"].as_array().unwrap().len(), 2);
}

#[test]
fn purge_removes_what_waits() {
    let program = Program::with_task();
    let arguments = r#"{"path": "a", "width": 1}"#;
    for delay in ["0", "0", "1h"] {
        program.ok(&["enqueue", "thumbnail", arguments, "--delay", delay]);
    }
    program.ok(&["enqueue", "thumbnail", arguments, "--queue", "default"]);
    assert_eq!(program.ok(&["queues", "purge", "media", "--dry-run"]), "would purge 3 jobs of queue media\n");
    assert_eq!(program.ok(&["queues", "purge", "media", "--yes"]), "purged 3 jobs of queue media\n");
    let media = queue(&program, "media");
    assert_eq!((media["ready"].as_u64(), media["scheduled"].as_u64()), (Some(0), Some(0)));
    assert_eq!(queue(&program, "default")["ready"], 1, "other queues are left alone");
    let unknown = program.run(&["queues", "purge", "meida", "--yes", "--json"]);
    assert_eq!(unknown.error().0, "no_such_queue");
}
