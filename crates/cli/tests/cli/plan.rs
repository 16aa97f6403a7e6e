use std::time::Duration;

use celeriac::core::{EnqueueOptions, JobId, NewJob, Payload, QueueName, TaskName};

use crate::program::{Program, bare, run};

#[test]
fn a_plan_names_the_workers_and_shows_the_waits() {
    let example = ["--rate", "100/h", "--run-time", "300s", "--within", "20s", "--share", "80%"];
    for (name, more) in [
        ("plan", vec![]),
        ("plan_constant", vec!["--spread", "0"]),
        ("plan_concurrent", vec!["--concurrency", "4"]),
        ("plan_json", vec!["--json"]),
    ] {
        let words = [&["plan"], &example[..], &more].concat();
        let run = run(&mut bare(&words));
        assert_eq!(run.code, 0, "{run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
    let quick = ["plan", "--rate", "2000/s", "--run-time", "5ms", "--within", "1ms"];
    insta::assert_snapshot!("plan_quick_jobs", run(&mut bare(&quick)).shown(None));
}

#[test]
fn mistakes_are_usage_errors() {
    for (name, words) in [
        ("plan_without_rate", vec!["--run-time", "1s", "--within", "1s"]),
        ("plan_rate_without_unit", vec!["--rate", "5", "--run-time", "1s", "--within", "1s"]),
        (
            "plan_share_without_unit",
            vec!["--rate", "5/s", "--run-time", "1s", "--within", "1s", "--share", "0.8"],
        ),
        ("plan_too_large", vec!["--rate", "1000000/s", "--run-time", "1h", "--within", "1s"]),
        (
            "plan_spread_too_large",
            vec!["--rate", "1/s", "--run-time", "1s", "--spread", "1m", "--within", "1s"],
        ),
        ("plan_live_without_queue", vec!["--live", "--within", "1s"]),
        ("plan_live_and_rate", vec!["--live", "--queue", "media", "--rate", "5/s", "--within", "1s"]),
    ] {
        let run = run(&mut bare(&[&["plan"], &words[..]].concat()));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{name}: {run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
}

#[test]
fn a_live_plan_takes_the_rate_from_the_store() {
    let program = Program::with_task();
    let words = [
        "plan",
        "--live",
        "--queue",
        "media",
        "--run-time",
        "10ms",
        "--within",
        "1s",
        "--window",
        "2s",
        "--json",
    ];
    let mut child = program.command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Jobs come for as long as it looks.
    program.on_the_broker(async |broker| {
        while child.try_wait().unwrap().is_none() {
            let (queue, task) = (QueueName::new("media").unwrap(), TaskName::new("thumbnail").unwrap());
            let id = JobId::from_uuid(uuid::Uuid::now_v7());
            let job = NewJob::new(id, queue, task, Payload::from_json("{}").unwrap());
            broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let output = child.wait_with_output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(plan["rate_per_second"].as_f64().unwrap() > 0.0, "{plan}");
    assert!(plan["workers"].as_u64().unwrap() >= 1, "{plan}");
}

#[test]
fn a_live_plan_of_nothing_says_so() {
    let program = Program::with_task();
    let live = |queue| ["plan", "--live", "--queue", queue, "--within", "1s", "--window", "1s", "--json"];
    assert_eq!(program.run(&live("media")).error().0, "no_rate");
    assert_eq!(program.run(&live("medio")).error().0, "no_such_queue");
}
