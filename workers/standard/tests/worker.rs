//! The program `worker` from outside: real processes on real files.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use celeriac::core::{Broker, DeadReason, Details, Filter, PageOptions, Room};
use celeriac::prelude::*;
use celeriac_standard::{Allowance, Request, digest};

fn worker(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command.current_dir(folder).env_remove(Allowance::VARIABLE).env("CELERIAC_BROKER", "sqlite:jobs.db");
    command
}

async fn connect(folder: &Path) -> Client {
    Client::connect(&format!("sqlite:{}", folder.join("jobs.db").display())).await.unwrap()
}

/// Runs a worker until the queue is empty. What it says on its way is part of the message when it fails.
fn run_until_empty(command: &mut Command) -> Output {
    let output = command.arg("--exit-when-empty").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

async fn bin(broker: &dyn Broker) -> Vec<Details> {
    broker.list(Filter::room(Room::Dead), PageOptions::default()).await.unwrap().jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_and_a_missing_one_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("abc"), "abc").unwrap();
    let celeriac = connect(folder.path()).await;
    let present = celeriac.enqueue(digest::call("abc")).await.unwrap().id();
    let missing = celeriac.enqueue(digest::call("missing")).await.unwrap().id();

    let output = run_until_empty(&mut worker(folder.path()));
    let log = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(log.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "{log}");
    assert!(celeriac.job(present).await.unwrap().is_none());
    let dead = celeriac.job(missing).await.unwrap().unwrap();
    assert_eq!((dead.room, dead.reason), (Room::Dead, Some(DeadReason::Rejected)));
    assert!(dead.last_error().unwrap().starts_with("missing: No such file"), "{dead:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_needs_the_allowance_of_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let celeriac = connect(folder.path()).await;
    let call = || Request::post(url.clone(), "payload").sign_with("CELERIAC_HTTP_KEY_TEST").into_call();

    celeriac.enqueue(call()).await.unwrap();
    run_until_empty(&mut worker(folder.path()));
    let dead = bin(celeriac.broker().as_ref()).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].reason, Some(DeadReason::Rejected));
    let error = dead[0].last_error().unwrap();
    assert!(error.contains("loopback") && error.contains("CELERIAC_HTTP_ALLOW_PRIVATE=127.0.0.1"), "{error}");

    let id = celeriac.enqueue(call()).await.unwrap().id();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"payload") {
            let mut buffer = [0; 4096];
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the request ended early");
            received.extend_from_slice(&buffer[..length]);
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8(received).unwrap()
    });
    run_until_empty(
        worker(folder.path())
            .env(Allowance::VARIABLE, "127.0.0.1")
            .env("CELERIAC_HTTP_KEY_TEST", "a-key-that-is-only-for-this-test"),
    );
    // Looked at first: without a request the receiver would wait for ever.
    let left = celeriac.job(id).await.unwrap();
    assert!(left.is_none(), "not done: {left:?}");
    let received = receiver.join().unwrap();
    assert!(received.starts_with("POST /hook HTTP/1.1\r\n"), "{received}");
    assert!(received.contains(&format!("webhook-id: {id}\r\n")), "{received}");
    assert!(received.contains("webhook-signature: v1,"), "{received}");
    assert_eq!(bin(celeriac.broker().as_ref()).await.len(), 1, "only the job of the first worker");
}

#[test]
fn both_tasks_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = worker(folder.path()).arg("tasks").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("digest") && text.contains("http"), "{text}");
}

#[test]
fn a_wrong_allowance_stops_it_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let output = worker(folder.path()).env(Allowance::VARIABLE, "10.0.0.0/8,inside").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("CELERIAC_HTTP_ALLOW_PRIVATE: \"inside\" is no address"), "{text}");
    assert!(!folder.path().join("jobs.db").exists(), "it has opened the store");
}
