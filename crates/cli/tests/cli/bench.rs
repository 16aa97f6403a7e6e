use std::fs;

use serde_json::Value;

use crate::program::Program;

/// Runs a small benchmark and checks that its document is whole. Rates are not looked at: they are of the machine.
fn measure(program: &Program, words: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(words);
    all.extend(["--rounds", "2"]);
    let report = program.json(&all);
    assert!(report["floor_jobs_per_s"].as_f64().unwrap() > 0.0, "{report}");
    for field in ["jobs_per_s", "ratio_to_floor"] {
        let figure = report[field].as_f64().unwrap();
        // In the time of such a short run a busy machine may finish nothing.
        let timed = matches!(words[0], "steady" | "snapshot");
        assert!(figure > 0.0 || timed, "{field} in {report}");
    }
    for field in ["jobs", "seconds", "p50_ms", "p95_ms", "p99_ms", "peak_rss_mib", "cpu_seconds"] {
        assert!(report.get(field).is_some(), "{field} in {report}");
    }
    assert_eq!(report["workload"], words[0]);
    assert_eq!(report["engine"], program.url().split(':').next().unwrap());
    assert_eq!(report["rounds"].as_array().unwrap().len(), 2);
    let queues = program.json(&["queues", "list"]);
    for queue in queues["queues"].as_array().unwrap() {
        for room in ["ready", "held", "scheduled", "parked", "dead"] {
            assert_eq!(queue[room], 0, "{queue} after {words:?}");
        }
    }
    let left: Vec<_> = fs::read_dir(program.folder())
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains("floor"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    report
}

#[test]
fn drain_finishes_every_job_with_two_processes() {
    let report = measure(&Program::with_empty_store(), &["drain", "--jobs", "2000", "--processes", "2"]);
    assert_eq!(report["jobs"], 2_000);
    assert_eq!(report["handler_runs"], 2_000);
    assert_eq!(report["p50_ms"], Value::Null, "waiting in a full queue says nothing");
}

#[test]
fn drain_leaves_a_backlog_for_the_end() {
    let report = measure(&Program::with_empty_store(), &["drain", "--jobs", "500", "--backlog", "3000"]);
    assert_eq!(report["jobs"], 500);
}

#[test]
fn enqueue_compares_many_callers_with_one() {
    let words = ["enqueue", "--jobs", "300", "--seconds", "2", "--batch", "1", "--concurrency", "16"];
    let report = measure(&Program::with_empty_store(), &words);
    assert!(report["single_caller_jobs_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["p99_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn steady_balances_its_books() {
    let report = measure(&Program::with_empty_store(), &["steady", "--seconds", "1", "--backlog", "200"]);
    assert!(report["jobs"].as_u64().unwrap() > 0);
    assert!(report["p50_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn latency_is_from_one_process_to_another() {
    let report = measure(&Program::with_empty_store(), &["latency", "--jobs", "20"]);
    assert_eq!(report["jobs"], 20);
    assert_eq!(report["handler_runs"], 20);
    assert!(report["p50_ms"].as_f64().unwrap() > 0.0);
    assert!(report["floor_p50_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_floor_has_three_parts() {
    let report = measure(&Program::with_empty_store(), &["floor", "--jobs", "5000"]);
    assert!(report["insert_jobs_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["read_and_delete_jobs_per_s"].as_f64().unwrap() > 0.0);
}

/// A workload on PostgreSQL, with what is measured beside it.
fn measure_on_postgres(words: &[&str]) -> Value {
    let program = Program::on_postgres();
    program.ok(&["migrate"]);
    let report = measure(&program, words);
    let compared = matches!(words[0], "enqueue" | "drain" | "steady" | "snapshot");
    let steady = matches!(words[0], "steady" | "snapshot");
    assert_eq!(report.get("usual_jobs_per_s").is_some(), compared, "{report}");
    if compared {
        for field in ["wal_bytes_per_job", "floor_wal_bytes_per_job", "usual_wal_bytes_per_job"] {
            assert!(report[field].as_f64().unwrap() > 0.0, "{field} in {report}");
        }
        for field in
            ["ratio_to_usual", "db_cpu_us_per_job", "floor_db_cpu_us_per_job", "usual_db_cpu_us_per_job"]
        {
            assert!(report[field].is_f64(), "the server runs on this machine: {field} in {report}");
        }
    }
    for field in ["first_jobs_per_s", "last_jobs_per_s", "usual_first_jobs_per_s", "usual_last_jobs_per_s"] {
        assert_eq!(report.get(field).is_some(), steady, "{field} in {report}");
    }
    assert_eq!(program.json(&["doctor"])["healthy"], true);
    // Beside the store nothing is left.
    program.on_postgres_itself(&format!("create schema {}_bench", program.schema()));
    report
}

#[test]
fn postgres_enqueues_beside_its_floor_and_the_usual_way() {
    let words = ["enqueue", "--jobs", "400", "--batch", "1", "--concurrency", "8", "--seconds", "1"];
    let report = measure_on_postgres(&words);
    assert!(report["single_caller_jobs_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn postgres_drains() {
    assert_eq!(measure_on_postgres(&["drain", "--jobs", "1000"])["handler_runs"], 1_000);
}

#[test]
fn postgres_is_steady() {
    measure_on_postgres(&["steady", "--seconds", "1"]);
}

#[test]
fn postgres_works_under_an_old_snapshot() {
    measure_on_postgres(&["snapshot", "--seconds", "1", "--processes", "2"]);
}

#[test]
fn postgres_has_a_backlog() {
    let report = measure_on_postgres(&["backlog", "--jobs", "300", "--backlog", "1500"]);
    assert!(report["ratio_to_small_backlog"].as_f64().unwrap() > 0.0);
}

#[test]
fn postgres_answers_and_idles() {
    let report = measure_on_postgres(&["latency", "--jobs", "20"]);
    assert!(report["idle_statements_per_s"].as_f64().unwrap() >= 0.0);
}

#[test]
fn the_floor_of_postgres_has_three_parts() {
    let report = measure_on_postgres(&["floor", "--jobs", "2000"]);
    assert!(report["read_and_delete_jobs_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn snapshot_and_backlog_are_for_files_too() {
    let program = Program::with_empty_store();
    let snapshot = measure(&program, &["snapshot", "--seconds", "1"]);
    assert!(snapshot["last_jobs_per_s"].as_f64().unwrap() >= 0.0);
    let backlog = measure(&program, &["backlog", "--jobs", "500", "--backlog", "2000"]);
    assert!(backlog["small_backlog_jobs_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn jobs_of_others_are_not_measured_away() {
    let program = Program::with_task();
    program.ok(&["queues", "declare", "celeriac-bench"]);
    program.ok(&["enqueue", "thumbnail", r#"{"path": "a", "width": 1}"#, "--queue", "celeriac-bench"]);
    let run = program.run(&["bench", "drain", "--json"]);
    assert_eq!((run.code, run.error().0.as_str()), (1, "bench_queue_in_use"));
    assert_eq!(program.json(&["jobs", "list"])["jobs"].as_array().unwrap().len(), 1);
    let memory = program.run(&["bench", "drain", "--broker", "sqlite::memory:"]);
    assert_eq!(memory.code, 2, "{memory:?}");
}
