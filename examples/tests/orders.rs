//! The example `orders` as two processes on a PostgreSQL server of their own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use celeriac_testkit::postgres::TestServer;
use serde_json::{Value, json};

/// A process of the example, gone with the test.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(server: &TestServer, words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orders"))
            .args(words)
            .env("DATABASE_URL", server.url())
            .env_remove("CELERIAC_BROKER")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request in a connection of its own.
fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}")))
}

#[test]
fn an_order_and_its_job_are_stored_together_or_not_at_all() {
    let server = TestServer::private().unwrap();
    let mut service = Process::start(&server, &["serve", "--listen", "127.0.0.1:0"]);
    let address = service.line().strip_prefix("listening on ").unwrap().to_owned();
    let place = |item: &str, quantity: i32| {
        request(&address, "POST", "/orders", &json!({"item": item, "quantity": quantity}).to_string())
    };
    let (status, placed) = place("chair", 2);
    assert_eq!((status, &placed["id"]), (201, &json!(1)), "{placed}");
    assert_eq!(request(&address, "GET", "/orders/1", "").1["shipped"], false);
    // Stored and enqueued already when the last item turns out to be gone.
    assert_eq!(place("chair", 2), (409, json!({"error": "sold out"})));
    assert_eq!(place("dragon", 1).0, 422);
    assert_eq!(place("lamp", 0).0, 422);
    let (status, last) = place("chair", 1);
    assert_eq!(status, 201, "what was rolled back took nothing: {last}");

    let mut worker = Process::start(&server, &["work", "--queues", "shipping"]);
    let mut shipped = [worker.line(), worker.line()];
    shipped.sort();
    assert_eq!(shipped[0], "order 1: shipped");
    assert_eq!(shipped[1], format!("order {}: shipped", last["id"]));
    assert_eq!(request(&address, "GET", "/orders/1", "").1["shipped"], true);
    assert_eq!(request(&address, "GET", &format!("/orders/{}", last["id"]), "").1["shipped"], true);

    // The worker waits now, and hears of an order when it is committed.
    let started = Instant::now();
    let (status, next) = place("lamp", 3);
    assert_eq!(status, 201);
    assert_eq!(worker.line(), format!("order {}: shipped", next["id"]));
    println!("shipped {:?} after it was placed", started.elapsed());
    assert_eq!(request(&address, "GET", "/orders/99", "").0, 404);
}
