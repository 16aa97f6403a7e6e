//! The same commands on PostgreSQL: nothing changes but the URL.

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use celeriac::{Registry, TaskError, task};

use crate::program::Program;

/// A task for the worker processes of these tests.
#[task(name = "letter", retry = "10ms", max_attempts = 2)]
async fn letter(address: String) -> Result<(), TaskError> {
    match address.as_str() {
        "nobody" => Err(TaskError::reject("there is no such address")),
        "closed" => Err(std::io::Error::other("the letter box is closed").into()),
        _ => Ok(()),
    }
}

/// The worker: only when a test below starts this test binary again as a process of its own.
#[test]
fn worker_process() {
    let Ok(words) = std::env::var("CELERIAC_TEST_WORKER") else { return };
    let registry = Registry::new().with(letter::definition()).unwrap();
    let words = std::iter::once("worker").chain(words.split_whitespace());
    let exit = celeriac::worker().registry(registry).main_with(words);
    std::process::exit(i32::from(exit != ExitCode::SUCCESS));
}

fn start_worker(program: &Program, words: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres::worker_process", "--nocapture", "--test-threads=1"])
        .env("CELERIAC_TEST_WORKER", words)
        .env("CELERIAC_BROKER", program.url())
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// From the first command to the bin, as an operator does it.
#[test]
fn an_operator_needs_only_another_url() {
    let program = Program::on_postgres();
    let missing = program.run(&["stats", "--json"]);
    assert_eq!((missing.code, missing.error().0.as_str()), (1, "no_such_store"), "{missing:?}");
    assert!(program.ok(&["migrate"]).ends_with("created\n"));
    assert!(program.ok(&["migrate"]).contains("has the schema of this program"));

    let stored: Vec<String> = ["ada", "nobody", "closed"]
        .iter()
        .map(|address| {
            program.ok(&["enqueue", "letter", &format!("{{\"address\": \"{address}\"}}"), "--allow-unknown"])
        })
        .collect();
    let waiting = program.json(&["jobs", "list"]);
    assert_eq!(waiting["jobs"].as_array().unwrap().len(), 3);
    let mut worker = start_worker(&program, "--exit-when-empty");
    assert!(worker.wait().unwrap().success());
    // The second try of the letter box is a moment later than the end of the first worker.
    let started = Instant::now();
    while program.json(&["stats"])["queues"][0]["scheduled"] != 0 {
        assert!(started.elapsed() < Duration::from_secs(60));
        assert!(start_worker(&program, "--exit-when-empty").wait().unwrap().success());
    }

    let dead = program.json(&["dead", "list"]);
    let reasons: Vec<&str> =
        dead["jobs"].as_array().unwrap().iter().map(|job| job["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["rejected", "retries_exhausted"], "{dead}");
    let shown = program.ok(&["dead", "show", stored[1].trim()]);
    assert!(shown.contains("there is no such address"), "{shown}");
    let tasks = program.json(&["tasks"]);
    assert_eq!(tasks["tasks"][0]["name"], "letter");
    program.ok(&["dead", "purge", "--reason", "rejected"]);
    program.ok(&["dead", "replay", "--all"]);
    assert_eq!(program.json(&["jobs", "list"])["jobs"].as_array().unwrap().len(), 1);
    program.ok(&["queues", "purge", "default", "--yes"]);
    let stats = program.json(&["stats"]);
    assert_eq!((&stats["queues"][0]["done"], &stats["queues"][0]["dead"]), (&1.into(), &0.into()), "{stats}");
    let report = program.json(&["doctor"]);
    assert_eq!(report["healthy"], true, "{report}");
}

/// What `migrate --dry-run` prints is what makes a store, and it makes none by itself.
#[test]
fn the_sql_of_a_migration_is_whole() {
    let program = Program::on_postgres();
    let sql = program.ok(&["migrate", "--dry-run"]);
    assert!(sql.starts_with("-- postgres://") && sql.contains("create table"), "{sql}");
    assert_eq!(program.run(&["stats"]).code, 1, "nothing was made");
    program.on_postgres_itself(&sql);
    assert_eq!(program.json(&["doctor"])["healthy"], true);
    let plan = program.json(&["migrate", "--dry-run"]);
    assert_eq!((&plan["sql"], &plan["from"]), (&"".into(), &plan["to"]), "{plan}");
    assert!(program.ok(&["migrate", "--dry-run"]).ends_with("nothing to do\n"));
}

/// The recipe for a role comes from the command line.
#[test]
fn a_role_of_few_rights_can_be_made() {
    let program = Program::on_postgres();
    program.ok(&["migrate"]);
    let role = format!("app_{}", program.schema());
    let sql = program.ok(&["migrate", "--grants", &role]);
    program.on_postgres_itself(&format!("create role {role} login;\n{sql}"));
    let limited = program.as_role(&role);
    limited.ok(&["queues", "declare", "media"]);
    limited.ok(&["enqueue", "letter", "{\"address\": \"ada\"}", "--queue", "media", "--allow-unknown"]);
    assert_eq!(limited.json(&["doctor"])["healthy"], true);
    // It can neither make a schema nor change one.
    let elsewhere = limited.run(&["migrate", "--json", "--broker", &limited.url_of_schema("elsewhere")]);
    assert_eq!(elsewhere.code, 1, "{elsewhere:?}");
    assert!(elsewhere.error().1.contains("permission denied"), "{elsewhere:?}");

    let file = Program::with_empty_store().run(&["migrate", "--grants", "app", "--json"]);
    assert_eq!((file.code, file.error().0.as_str()), (2, "usage"));
}

/// A password in the URL is in nothing that the program prints, whatever goes wrong.
#[test]
fn passwords_are_not_shown() {
    let program = Program::on_postgres();
    program.ok(&["migrate"]);
    let secret = program.url().replace("postgres@", "postgres:s3cret@");
    for words in [vec!["doctor"], vec!["stats"], vec!["migrate"], vec!["migrate", "--dry-run"]] {
        for json in [false, true] {
            let mut words = words.clone();
            words.extend(["--broker", &secret]);
            if json {
                words.push("--json");
            }
            let run = program.run(&words);
            assert_eq!(run.code, 0, "{run:?}");
            assert!(!run.out.contains("s3cret") && !run.err.contains("s3cret"), "{run:?}");
        }
    }
    for (broken, code) in [
        (secret.replace("schema=", "scheme="), 2),
        (secret.replace("127.0.0.1", "127.0.0.1:1,127.0.0.1").replace("schema=", "x=1&schema="), 2),
        ("postgres://me:s3cret@127.0.0.1:1/db?deadline=300ms&connect_timeout=1".to_owned(), 1),
        ("postgres://me:s3cret@127.0.0.1:1/db?sslmode=verify-full&sslrootcert=/nowhere.pem".to_owned(), 2),
    ] {
        let run = program.run(&["stats", "--broker", &broken]);
        assert_eq!(run.code, code, "{run:?}");
        assert!(!run.out.contains("s3cret") && !run.err.contains("s3cret"), "{run:?}");
    }
}
