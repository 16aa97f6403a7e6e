use std::fs;

use serde_json::Value;

use crate::program::Program;

/// Runs a small benchmark and checks that its document is whole. Rates are not looked at: they are of the machine.
fn measure(program: &Program, words: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(words);
    all.extend(["--rounds", "2"]);
    let report = program.json(&all);
    for field in ["jobs_per_s", "floor_jobs_per_s", "ratio_to_floor"] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field} in {report}");
    }
    for field in ["jobs", "seconds", "p50_ms", "p95_ms", "p99_ms", "peak_rss_mib", "cpu_seconds"] {
        assert!(report.get(field).is_some(), "{field} in {report}");
    }
    assert_eq!(report["workload"], words[0]);
    assert_eq!(report["engine"], "sqlite");
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
