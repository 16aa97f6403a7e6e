use std::fs;

use crate::program::Program;

fn lines(count: usize) -> String {
    (0..count)
        .map(|n| {
            format!("{{\"task\": \"thumbnail\", \"args\": {{\"path\": \"{n}.png\", \"width\": {n}}}}}\n")
        })
        .collect()
}

#[test]
fn a_file_is_stored_in_batches() {
    let program = Program::with_task();
    fs::write(program.path("jobs.jsonl"), lines(1_234)).unwrap();
    let file = program.path("jobs.jsonl").display().to_string();
    assert_eq!(program.ok(&["enqueue", "--from", &file]), "enqueued 1,234 jobs\n");
    let queues = program.json(&["queues", "list"]);
    let media = queues["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == "media").unwrap();
    assert_eq!(media["ready"], 1_234);
    let first = &program.json(&["jobs", "list", "--limit", "1"])["jobs"][0];
    assert_eq!(first["args"]["path"], "0.png", "in the order of the file");
}

#[test]
fn a_bad_line_is_named_and_the_others_go_on() {
    let program = Program::with_task();
    let mut input = lines(600);
    input.push_str("\n{\"task\": \"thumbnail\", \"args\": {\"path\": \"a\"}}\n");
    input.push_str("not json\n");
    input.push_str(
        "{\"task\": \"thumbnail\", \"args\": {\"path\": \"a\", \"width\": 1}, \"queue\": \"meida\"}\n",
    );
    input
        .push_str("{\"task\": \"thumbnail\", \"args\": {\"path\": \"a\", \"width\": 1}, \"prioritty\": 1}\n");
    input.push_str("{\"task\": \"thumbnial\"}\n");
    input
        .push_str("{\"task\": \"thumbnail\", \"args\": {\"path\": \"a\", \"width\": 1}, \"priority\": 10}\n");
    input.push_str(&lines(600));
    let run = program.run_with_input(&["enqueue", "--from", "-"], input.as_bytes());
    assert_eq!(run.code, 1);
    insta::assert_snapshot!("import_with_bad_lines", run.shown(None));
    assert_eq!(program.json(&["stats"])["queues"][1]["ready"], 1_200);
}

#[test]
fn programs_read_the_summary_and_each_error() {
    let program = Program::with_task();
    let input = format!("{}nonsense\n{{\"task\": \"nobody\"}}\n", lines(2));
    let run = program.run_with_input(&["enqueue", "--from", "-", "--json"], input.as_bytes());
    assert_eq!(run.code, 1);
    let summary: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(summary, serde_json::json!({"lines": 4, "enqueued": 2, "existed": 0, "refused": 2}));
    let errors: Vec<serde_json::Value> =
        run.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(errors[0]["error"]["line"], 3);
    assert_eq!(errors[1]["error"]["code"], "unknown_task");
}

#[test]
fn a_file_sent_twice_stores_nothing_new_when_lines_have_ids() {
    let program = Program::with_task();
    let input: String = (0..50)
        .map(|n| {
            format!(
                "{{\"task\": \"thumbnail\", \"args\": {{\"path\": \"a\", \"width\": 1}}, \"idempotency_key\": \
                 \"k{n}\"}}\n"
            )
        })
        .collect();
    assert_eq!(
        program.run_with_input(&["enqueue", "--from", "-"], input.as_bytes()).out,
        "enqueued 50 jobs\n"
    );
    let again = program.run_with_input(&["enqueue", "--from", "-"], input.as_bytes());
    assert_eq!((again.code, again.out.as_str()), (0, "enqueued 0 jobs, 50 were there already\n"));
}

#[test]
fn a_full_queue_takes_what_fits() {
    let program = Program::with_task();
    program.ok(&["queues", "declare", "media", "--max-length", "30"]);
    let run = program.run_with_input(&["enqueue", "--from", "-"], lines(32).as_bytes());
    assert_eq!((run.code, run.out.as_str()), (1, "enqueued 30 jobs, refused 2\n"));
    assert!(run.err.contains("line 31: queue media is full"), "{}", run.err);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let program = Program::with_task();
    let run = program.run(&["enqueue", "--from", "/nowhere/jobs.jsonl"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("cannot read /nowhere/jobs.jsonl"), "{run:?}");
    let run = program.run_with_input(&["enqueue", "--from", "-"], b"");
    assert_eq!((run.code, run.out.as_str()), (0, "enqueued 0 jobs\n"));
}
