use crate::program::Program;

const ARGUMENTS: &str = r#"{"path": "a.png", "width": 200}"#;

#[test]
fn a_job_gets_the_defaults_of_its_task() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS]);
    let job = program.json(&["jobs", "show", id.trim()]);
    assert_eq!(job["id"], id.trim());
    assert_eq!(job["queue"], "media");
    assert_eq!(job["priority"], 3);
    assert_eq!(job["state"], "ready");
    assert_eq!(job["args"], serde_json::json!({"path": "a.png", "width": 200}));
}

#[test]
fn every_flag_reaches_the_job() {
    let program = Program::with_task();
    let words = [
        "enqueue",
        "thumbnail",
        ARGUMENTS,
        "--queue",
        "default",
        "--priority",
        "9",
        "--delay",
        "1h",
        "--ttl",
        "2h",
        "--timeout",
        "30s",
        "--max-attempts",
        "7",
        "--retry",
        "1s, 2s",
        "--header",
        "tenant=acme",
        "--header",
        "note=a=b",
        "--idempotency-key",
        "order-1",
    ];
    let answer = program.json(&words);
    assert_eq!(answer["existed"], false);
    let id = answer["id"].as_str().unwrap();
    let job = program.json(&["jobs", "show", id]);
    assert_eq!(job["queue"], "default");
    assert_eq!(job["priority"], 9);
    assert_eq!(job["room"], "scheduled");
    assert_eq!(job["max_attempts"], 7);
    assert_eq!(job["retry"], "1s, 2s");
    assert_eq!(job["timeout_seconds"], 30.0);
    assert_eq!(job["headers"], serde_json::json!({"tenant": "acme", "note": "a=b"}));
    assert!(job["expires_at"].is_string());

    let again = program.json(&words);
    assert_eq!((again["existed"].as_bool(), again["id"].as_str()), (Some(true), Some(id)));
    let told = program.run(&words);
    assert_eq!((told.code, told.out.trim()), (0, id));
    assert!(told.err.contains("nothing was stored"), "{told:?}");
}

#[test]
fn a_due_time_in_the_past_is_now() {
    let program = Program::with_task();
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS, "--run-at", "2001-01-01T00:00:00Z"]);
    assert_eq!(program.json(&["jobs", "show", id.trim()])["state"], "ready");
    let id = program.ok(&["enqueue", "thumbnail", ARGUMENTS, "--run-at", "2999-01-01T00:00:00Z"]);
    let job = program.json(&["jobs", "show", id.trim()]);
    assert_eq!(
        (job["state"].as_str(), job["due_at"].as_str()),
        (Some("scheduled"), Some("2999-01-01T00:00:00.000Z"))
    );
}

#[test]
fn what_does_not_fit_the_task_is_refused() {
    let program = Program::with_task();
    for (name, words) in [
        ("unknown_task", vec!["enqueue", "thumbnial", ARGUMENTS]),
        ("argument_missing", vec!["enqueue", "thumbnail", r#"{"path": "a.png"}"#]),
        ("argument_type", vec!["enqueue", "thumbnail", r#"{"path": "a.png", "width": "200"}"#]),
        ("argument_unknown", vec!["enqueue", "thumbnail", r#"{"path": "a", "width": 1, "heigth": 2}"#]),
        ("queue_unknown", vec!["enqueue", "thumbnail", ARGUMENTS, "--queue", "meida"]),
    ] {
        let run = program.run(&words);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{name}: {run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
    for (name, arguments) in [("arguments_no_json", "{path: 1}"), ("arguments_no_object", "[1]")] {
        let run = program.run(&["enqueue", "thumbnail", arguments]);
        assert_ne!(run.code, 0, "{name}: {run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
    let (code, _) = program.run(&["--json", "enqueue", "thumbnail", "{}"]).error();
    assert_eq!(code, "arguments");
    assert_eq!(program.json(&["jobs", "list"])["jobs"].as_array().unwrap().len(), 0);
}

#[test]
fn strangers_and_missing_queues_are_taken_when_asked_for() {
    let program = Program::without_store();
    let id = program.ok(&[
        "enqueue",
        "elsewhere",
        r#"{"n": 12345678901234567890123}"#,
        "--allow-unknown",
        "--queue",
        "new",
        "--declare-queue",
    ]);
    let shown = program.ok(&["jobs", "show", id.trim()]);
    assert!(shown.contains("elsewhere") && shown.contains("new"), "{shown}");
    assert_eq!(program.json(&["queues", "list"])["queues"].as_array().unwrap().len(), 2);
}

#[test]
fn a_payload_over_the_limit_is_refused_with_its_size() {
    let program = Program::with_task();
    let line = format!(
        "{{\"task\": \"thumbnail\", \"args\": {{\"path\": \"{}\", \"width\": 1}}}}",
        "x".repeat(1 << 20)
    );
    let run = program.run_with_input(&["enqueue", "--from", "-"], line.as_bytes());
    assert_eq!(run.code, 1);
    assert!(run.err.contains("line 1: payload of task thumbnail has 10486"), "{}", run.err);
    assert!(run.err.contains("the limit is 1048576"), "{}", run.err);
}
