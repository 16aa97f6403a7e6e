//! The ready-made worker program: its command line, its exit codes, its signals. Each test runs this test binary
//! again as a worker: see [`program`].

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

use celeriac::prelude::*;
use celeriac::{Client, Registry};

#[task]
async fn note(text: String, folder: State<Folder>, client: State<Client>) -> Result<(), TaskError> {
    if text == "again" {
        client.enqueue(note::call("from a handler")).await?;
    }
    std::fs::write(folder.0.join(text), "")?;
    Ok(())
}

#[task(queue = "slow", timeout = "1h")]
async fn sleepy(folder: State<Folder>) {
    // Written when the handler runs, so that the test knows when to send its signal.
    let started = std::fs::write(folder.0.join("started"), "");
    assert!(started.is_ok());
    std::future::pending::<()>().await;
}

struct Folder(std::path::PathBuf);

/// The program under test: only when the tests below start it as a process of its own.
#[test]
fn program() {
    let Ok(words) = std::env::var("WORKER_UNDER_TEST") else { return };
    let mut worker = celeriac::worker();
    match std::env::var("WORKER_TASKS").as_deref() {
        Ok("none") => worker = worker.registry(Registry::new()),
        Ok("twins") => {
            let mut twin = sleepy::definition();
            twin.name = note::NAME;
            let twins = Registry::new().with(note::definition()).and_then(|registry| registry.with(twin));
            // `collect` finds such twins by itself; here they must not disturb the other tests.
            eprintln!("error: {}", twins.unwrap_err());
            std::process::exit(1);
        }
        Ok("no state") => {}
        _ => worker = worker.state(Folder(std::env::current_dir().unwrap())),
    }
    let exit =
        worker.main_with(std::iter::once("worker").chain(words.split('|').filter(|word| !word.is_empty())));
    // An exit code cannot be read, only compared.
    let code = (0..=2).find(|code| ExitCode::from(*code) == exit).unwrap_or(99);
    std::process::exit(code.into());
}

fn worker(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "program", "--nocapture", "--test-threads=1"])
        .env("WORKER_UNDER_TEST", words.join("|"))
        .env_remove("CELERIAC_BROKER")
        .env_remove("RUST_LOG")
        .current_dir(folder);
    command
}

struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn run(mut command: Command) -> Ended {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let out = String::from_utf8(stdout).unwrap();
    // The test harness has its own first line.
    let out = out.trim_start().strip_prefix("running 1 test\ntest program ... ").unwrap_or(&out).to_owned();
    Ended { code: status.code().unwrap(), out, err: String::from_utf8(stderr).unwrap() }
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("jobs.db").display())
}

#[tokio::test]
async fn it_runs_what_is_there_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::connect(&url(folder.path())).await.unwrap();
    client.enqueue_all([note::call("one"), note::call("again")]).await.unwrap();
    let ended = run(worker(folder.path(), &["--broker", &url(folder.path()), "--exit-when-empty"]));
    assert_eq!(ended.code, 0, "{}", ended.err);
    for name in ["one", "again", "from a handler"] {
        assert!(folder.path().join(name).exists(), "{name}: {}", ended.err);
    }
    assert!(ended.err.contains("3 done"), "{}", ended.err);
}

#[test]
fn it_declares_the_queues_that_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        worker(folder.path(), &["--queues", "high=6,brand-new=1", "--exit-when-empty", "--log", "error"]);
    command.env("CELERIAC_BROKER", url(folder.path()));
    let ended = run(command);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stats = runtime.block_on(async {
        Client::connect(&url(folder.path())).await.unwrap().broker().stats().await.unwrap()
    });
    let names: Vec<_> = stats.queues.iter().map(|queue| queue.name.to_string()).collect();
    assert_eq!(names, ["brand-new", "default", "high"]);
}

#[cfg(unix)]
#[tokio::test]
async fn the_first_signal_drains_and_the_second_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::connect(&url(folder.path())).await.unwrap().declare_missing_queues();
    let job = client.enqueue(sleepy::call()).await.unwrap().id();
    let words = ["--broker", &url(folder.path()), "--queues", "slow", "--grace", "1h"];
    let mut child = worker(folder.path(), &words).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    until(&mut child, || folder.path().join("started").exists()).await;
    signal(&child, "TERM");
    // It says that it has understood, and waits for the handler.
    assert!(lines.any(|line| line.unwrap().contains("no more jobs are taken")));
    signal(&child, "INT");
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    let job = client.job(job).await.unwrap().unwrap();
    assert_eq!((job.job.attempt, job.job.deliveries), (0, 0), "an orderly stop counts nothing: {rest:?}");
}

#[test]
fn tasks_are_listed_for_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(worker(folder.path(), &["tasks"]));
    assert_eq!(ended.code, 0);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].starts_with("TASK    QUEUE    PARAMETERS    DEFINED AT"), "{}", ended.out);
    assert!(lines[1].starts_with("note    default  text: String  "), "{}", ended.out);
    assert!(lines[1].contains("tests/worker_main.rs:"), "{}", ended.out);
    assert!(lines[2].starts_with("sleepy  slow     -             "), "{}", ended.out);

    let ended = run(worker(folder.path(), &["tasks", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(list[0]["name"], "note");
    assert_eq!(list[0]["parameters"], serde_json::json!([{"name": "text", "type": "String"}]));
    assert_eq!(list[1]["timeout"], "1h");
    assert_eq!(list[1]["delivery"], "at_least_once");
}

#[test]
fn what_cannot_be_served_is_refused_with_the_line_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let broker = url(folder.path());
    for (tasks, part) in [
        ("none", "use my_tasks as _;"),
        ("twins", "two tasks are named \"note\""),
        ("no state", "add .state(…) with a value of that type"),
    ] {
        let mut command = worker(folder.path(), &["--broker", &broker]);
        command.env("WORKER_TASKS", tasks);
        let ended = run(command);
        assert_eq!(ended.code, 1, "{tasks}: {}", ended.err);
        assert!(ended.err.contains(part), "{tasks}: {}", ended.err);
    }
    let mut command = worker(folder.path(), &["tasks"]);
    command.env("WORKER_TASKS", "none");
    assert_eq!(run(command).code, 1);
    assert!(!folder.path().join("jobs.db").exists(), "nothing is opened for a program that cannot run");
}

#[test]
fn wrong_usage_is_2_and_wrong_stores_are_1() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "no database, but long enough to be looked at as one".repeat(20)).unwrap();
    let text = format!("sqlite:{}", text.display());
    let broker = url(folder.path());
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 2, "no broker is given; name it with --broker"),
        (&["--broker", ""], 2, "a value is required for '--broker <URL>'"),
        (&["--prefetch", "0"], 2, "allowed are auto and the numbers 1 to"),
        (&["--broker", &broker, "--log", "a=b=c"], 2, "log filter"),
        (&["--broker", "postgres://me:s3cret@host/db?speed=9"], 1, "speed"),
        (&["--broker", "mysql://me:s3cret@host/db"], 1, "unknown kind of broker"),
        (&["--broker", &text], 1, "is no Celeriac store"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
    ];
    for (words, code, part) in cases {
        let ended = run(worker(folder.path(), words));
        assert_eq!(ended.code, code, "{words:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{words:?}: {}", ended.err);
        assert!(!ended.err.contains("s3cret"), "{}", ended.err);
    }
}

#[tokio::test]
async fn main_within_a_runtime_is_refused() {
    assert_eq!(celeriac::worker().main_with(["worker", "tasks"]), ExitCode::from(1));
}

/// Waits for something that another process does; the bound only ends a broken test.
async fn until(child: &mut Child, condition: impl Fn() -> bool) {
    let bound = std::time::Instant::now() + secs(60);
    while !condition() {
        assert!(child.try_wait().unwrap().is_none(), "the worker ended early");
        assert!(std::time::Instant::now() < bound, "it never happened");
        tokio::time::sleep(millis(5)).await;
    }
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let killed = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
}
