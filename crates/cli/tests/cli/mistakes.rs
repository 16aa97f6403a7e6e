use std::fs;

use crate::program::{Program, bare, run};

#[test]
fn a_missing_broker_is_a_usage_error_with_an_example() {
    let run = run(&mut bare(&["stats"]));
    assert_eq!(run.code, 2);
    insta::assert_snapshot!("no_broker", run.shown(None));
}

#[test]
fn odd_values_are_refused_before_anything_starts() {
    let program = Program::without_store();
    let long = "x".repeat(300);
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("priority_10", vec!["enqueue", "thumbnail", "{}", "--priority", "10"]),
        ("priority_negative", vec!["enqueue", "thumbnail", "{}", "--priority", "-1"]),
        ("delay_negative", vec!["enqueue", "thumbnail", "{}", "--delay", "-5s"]),
        ("delay_without_unit", vec!["enqueue", "thumbnail", "{}", "--delay", "5"]),
        ("delay_wrong_unit", vec!["enqueue", "thumbnail", "{}", "--delay", "5parsecs"]),
        (
            "delay_and_run_at",
            vec!["enqueue", "thumbnail", "{}", "--delay", "5s", "--run-at", "2027-01-31T08:30:00Z"],
        ),
        ("run_at_malformed", vec!["enqueue", "thumbnail", "{}", "--run-at", "tomorrow"]),
        ("retry_malformed", vec!["enqueue", "thumbnail", "{}", "--retry", "exponential(speed=1s)"]),
        ("max_attempts_0", vec!["enqueue", "thumbnail", "{}", "--max-attempts", "0"]),
        ("header_malformed", vec!["enqueue", "thumbnail", "{}", "--header", "tenant"]),
        ("id_malformed", vec!["enqueue", "thumbnail", "{}", "--id", "7"]),
        ("task_name_malformed", vec!["enqueue", "two words", "{}"]),
        ("task_and_from", vec!["enqueue", "thumbnail", "--from", "jobs.jsonl"]),
        ("no_task", vec!["enqueue"]),
        ("queue_name_with_space", vec!["queues", "declare", "two words"]),
        ("queue_name_too_long", vec!["queues", "declare", &long]),
        ("delivery_limit_0", vec!["queues", "declare", "media", "--delivery-limit", "0"]),
        ("max_length_0", vec!["queues", "declare", "media", "--max-length", "0"]),
        ("overflow_unknown", vec!["queues", "declare", "media", "--overflow", "explode"]),
        ("purge_without_yes", vec!["queues", "purge", "media"]),
        ("limit_0", vec!["jobs", "list", "--limit", "0"]),
        ("room_unknown", vec!["jobs", "list", "--room", "cellar"]),
        ("reason_unknown", vec!["dead", "list", "--reason", "boredom"]),
        ("replay_of_nothing", vec!["dead", "replay"]),
        ("replay_ids_and_all", vec!["dead", "replay", "--all", "0191e7a0-0000-7000-8000-000000000000"]),
        ("command_unknown", vec!["queue", "list"]),
        ("bench_processes_0", vec!["bench", "drain", "--processes", "0"]),
        ("bench_concurrency_absurd", vec!["bench", "enqueue", "--concurrency", "1000000"]),
        ("bench_workload_unknown", vec!["bench", "dream"]),
        ("bench_backlog_of_enqueue", vec!["bench", "enqueue", "--backlog", "5"]),
    ];
    for (name, words) in cases {
        let run = program.run(&words);
        assert_eq!(run.code, 2, "{name}: {run:?}");
        assert_eq!(run.out, "", "{name}");
        insta::assert_snapshot!(name, run.shown(None));
    }
    assert_eq!(fs::read_dir(program.folder()).unwrap().count(), 0, "no store was made");
}

#[test]
fn urls_that_lead_nowhere_are_refused() {
    for (name, url, code) in [
        ("url_unknown_kind", "mysql://me:s3cret@host/db", 2),
        ("url_no_kind", "jobs.db", 2),
        ("url_unknown_option", "sqlite:jobs.db?cache=1", 2),
        ("url_no_path", "sqlite:", 2),
        ("url_no_store", "sqlite:/nowhere/at/all/jobs.db", 1),
    ] {
        let run = run(&mut bare(&["--broker", url, "stats"]));
        assert_eq!(run.code, code, "{run:?}");
        assert!(!run.err.contains("s3cret"));
        insta::assert_snapshot!(name, run.shown(None));
    }
}

#[test]
fn files_that_are_no_store_are_refused_and_left_alone() {
    let program = Program::without_store();
    fs::write(program.path("jobs.db"), "Dear diary, today I wrote a long text into a file.\n").unwrap();
    let run = program.run(&["stats"]);
    assert_eq!(run.code, 1, "{run:?}");
    insta::assert_snapshot!("file_is_text", run.shown(Some(program.folder())));
    assert!(fs::read_to_string(program.path("jobs.db")).unwrap().starts_with("Dear diary"));

    let other = rusqlite::Connection::open(program.path("other.db")).unwrap();
    other.execute_batch("create table notes (text)").unwrap();
    let url = format!("sqlite:{}", program.path("other.db").display());
    let run = crate::program::run(&mut bare(&["--broker", &url, "migrate"]));
    assert_eq!(run.code, 1, "{run:?}");
    insta::assert_snapshot!("file_of_another_program", run.shown(Some(program.folder())));
}

#[test]
fn looking_into_a_mistyped_path_makes_no_store() {
    let program = Program::without_store();
    for words in [vec!["stats"], vec!["jobs", "list"], vec!["enqueue", "thumbnail"], vec!["doctor"]] {
        let run = program.run(&words);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.err.contains("there is no store at"), "{run:?}");
    }
    assert_eq!(fs::read_dir(program.folder()).unwrap().count(), 0);
}

#[test]
fn errors_are_documents_for_programs() {
    let program = Program::without_store();
    let usage = program.run(&["enqueue", "thumbnail", "--priority", "10", "--json"]);
    assert_eq!(usage.code, 2);
    let (code, message) = usage.error();
    assert_eq!(code, "usage");
    assert!(message.contains("0 to 9") && !message.contains("Usage:"), "{message}");

    let missing = program.run(&["--json", "stats"]);
    assert_eq!((missing.code, missing.error().0.as_str()), (1, "no_such_store"));

    let broker = run(&mut bare(&["stats", "--json"]));
    assert_eq!((broker.code, broker.error().0.as_str()), (2, "usage"));

    let kind = run(&mut bare(&["stats", "--json", "--broker", "mysql:x"]));
    assert_eq!((kind.code, kind.error().0.as_str()), (2, "unsupported_url"));
}
