use crate::program::Program;

#[test]
fn the_bin_is_listed_shown_replayed_and_purged() {
    let program = Program::with_task();
    program.bury(5);
    let page = program.json(&["dead", "list"]);
    let jobs = page["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 5);
    assert!(jobs.iter().all(|job| job["reason"] == "max_length" && job["state"] == "dead"));
    let id = jobs[0]["id"].as_str().unwrap();

    let table = program.run(&["dead", "list", "--limit", "1", "--reason", "max_length"]);
    assert!(table.out.contains(id) && table.out.contains("max_length"), "{table:?}");
    assert!(table.err.starts_with("more: --after dead/"), "{table:?}");
    let shown = program.ok(&["dead", "show", id]);
    assert!(shown.contains("reason      max_length") && shown.contains("\"path\": \"0.png\""), "{shown}");

    assert_eq!(program.ok(&["dead", "replay", id]), "replayed 1 job\n");
    assert_eq!(program.json(&["jobs", "show", id])["state"], "ready");
    let again = program.run(&["dead", "replay", id]);
    assert_eq!(again.code, 1);
    assert!(again.err.contains("is not in the bin"), "{again:?}");
    assert_eq!(program.run(&["dead", "show", id, "--json"]).error().0, "not_dead");

    let dry = program.ok(&["dead", "purge", "--all", "--dry-run"]);
    assert!(dry.ends_with("would purge 4 jobs\n"), "{dry}");
    assert_eq!(program.json(&["dead", "list"])["jobs"].as_array().unwrap().len(), 4, "nothing was changed");

    let moved = program.json(&["dead", "replay", "--task", "thumbnail", "--into", "default"]);
    assert_eq!((moved["jobs"].as_u64(), moved["dry_run"].as_bool()), (Some(4), Some(false)));
    assert_eq!(program.json(&["jobs", "list", "--queue", "default"])["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(program.ok(&["dead", "purge", "--all"]), "purged 0 jobs\n");
}

#[test]
fn filters_narrow_down() {
    let program = Program::with_task();
    program.bury(3);
    let count = |words: &[&str]| {
        let words: Vec<&str> = ["dead", "purge", "--dry-run"].iter().chain(words).copied().collect();
        program.json(&words)["jobs"].as_u64().unwrap()
    };
    assert_eq!(count(&["--queue", "media"]), 3);
    assert_eq!(count(&["--queue", "default"]), 0);
    assert_eq!(count(&["--reason", "rejected"]), 0);
    assert_eq!(count(&["--older-than", "1h"]), 0);
    assert_eq!(count(&["--older-than", "0"]), 3);
    assert_eq!(count(&["--error", "no such text"]), 0);
    assert_eq!(program.ok(&["dead", "purge", "--reason", "max_length"]), "purged 3 jobs\n");
    let empty = program.run(&["dead", "list"]);
    assert_eq!((empty.out.as_str(), empty.err.as_str()), ("", "no dead jobs\n"));
}

#[test]
fn more_jobs_than_one_step_takes_are_replayed_once_each() {
    let program = Program::with_task();
    program.ok(&["queues", "declare", "media", "--max-length", "1", "--overflow", "drop-oldest"]);
    let input: String = (0..1_300)
        .map(|n| format!("{{\"task\": \"thumbnail\", \"args\": {{\"path\": \"{n}\", \"width\": {n}}}}}\n"))
        .collect();
    let run = program.run_with_input(&["enqueue", "--from", "-"], input.as_bytes());
    assert_eq!(run.code, 0, "{run:?}");
    // The queue still has its length limit, so replaying pushes others out again; that must end.
    let replayed = program.json(&["dead", "replay", "--all", "--into", "default"]);
    assert_eq!(replayed["jobs"], 1_299);
    assert_eq!(program.json(&["dead", "list"])["jobs"].as_array().unwrap().len(), 0);
}
