use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::test_server::{Answer, TestServer, plain};

const KEY: &str = "CELERIAC_HTTP_KEY_TEST";

fn sender() -> Sender {
    Sender { job: JobId::from_key("http", "test"), attempt: 3 }
}

fn courier(allowance: &str) -> Courier {
    let keys = SigningKeys::fixed([(KEY, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
    Courier::new(allowance.parse().unwrap(), keys)
}

fn courier_that_resolves(
    allowance: &str,
    lookup: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
) -> Courier {
    let lookup: Lookup = Arc::new(move |name| Ok(lookup(name)));
    Courier::with_lookup(allowance.parse().unwrap(), SigningKeys::from_env(), lookup)
}

async fn deliver(request: Request) -> Result<Delivered, TaskError> {
    courier("127.0.0.1").deliver(&request, sender()).await
}

fn rejected(result: Result<Delivered, TaskError>) -> String {
    match result {
        Err(TaskError::Reject(text)) => text,
        other => panic!("not rejected but {other:?}"),
    }
}

fn failed(result: Result<Delivered, TaskError>) -> String {
    match result {
        Err(TaskError::Failed(text)) => text,
        other => panic!("not failed but {other:?}"),
    }
}

#[tokio::test]
async fn a_request_arrives_as_it_was_described() {
    let mut server = TestServer::answering("204 No Content", "", "").await;
    let request = Request::post(server.url("/in?a=b"), json!({"n": 1})).method("put").header("X-Tenant", "7");
    assert_eq!(deliver(request).await.unwrap(), Delivered { status: 204 });
    let received = server.next().await;
    assert!(received.head.starts_with("PUT /in?a=b HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(received.body, br#"{"n":1}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-tenant", "7"),
        ("user-agent", concat!("celeriac/", env!("CARGO_PKG_VERSION"))),
        ("celeriac-attempt", "3"),
        ("celeriac-job", &sender().job.to_string()),
        ("host", &server.address.to_string()),
    ] {
        assert_eq!(received.header(name), Some(value), "{}", received.head);
    }
    for name in ["webhook-id", "webhook-signature", "accept-encoding", "authorization", "cookie"] {
        assert_eq!(received.header(name), None, "{}", received.head);
    }
}

#[tokio::test]
async fn a_get_has_no_body_and_no_length() {
    let mut server = TestServer::answering("200 OK", "", "hello").await;
    deliver(Request::get(server.url("/"))).await.unwrap();
    let received = server.next().await;
    assert!(received.head.starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(received.header("content-length"), None);
}

#[tokio::test]
async fn the_status_decides_about_the_job() {
    for status in ["200 OK", "201 Created", "202 Accepted", "299 Fine"] {
        let server = TestServer::answering(status, "", "body").await;
        deliver(Request::get(server.url("/"))).await.unwrap();
    }
    for status in
        ["400 Bad Request", "401 Unauthorized", "404 Not Found", "408 Request Timeout", "410 Gone", "499 Odd"]
    {
        let server = TestServer::answering(status, "retry-after: 5\r\n", "no\r\n such   \u{7}thing").await;
        let text = rejected(deliver(Request::get(server.url("/"))).await);
        assert!(text.contains(&format!("answered {}", &status[..3])), "{text}");
        assert!(text.ends_with(": no such thing"), "{text}");
    }
    for status in
        ["429 Too Many Requests", "500 Oops", "502 Bad Gateway", "503 Unavailable", "504 Slow", "599 Odd"]
    {
        let server = TestServer::answering(status, "", "later").await;
        let text = failed(deliver(Request::get(server.url("/"))).await);
        assert!(text.contains(&status[..3]) && text.ends_with(": later"), "{text}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_for_429_and_503_only() {
    for status in ["429 Too Many Requests", "503 Unavailable"] {
        for (headers, seconds) in [
            ("retry-after: 120\r\n", 120),
            ("date: Sun, 06 Nov 1994 08:49:07 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 30),
        ] {
            let server = TestServer::answering(status, headers, "").await;
            match deliver(Request::get(server.url("/"))).await {
                Err(TaskError::RetryAfter { after, error }) => {
                    assert_eq!(after, Duration::from_secs(seconds));
                    assert!(error.contains(&status[..3]), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
        let server = TestServer::answering(status, "retry-after: soon\r\n", "").await;
        failed(deliver(Request::get(server.url("/"))).await);
    }
    let server = TestServer::answering("500 Oops", "retry-after: 120\r\n", "").await;
    failed(deliver(Request::get(server.url("/"))).await);
}

#[tokio::test]
async fn redirects_are_rejected_and_named_without_secrets() {
    let mut target = TestServer::answering("200 OK", "", "").await;
    let location = format!("location: http://user:pass@{}/new?token=abc#x\r\n", target.address);
    for status in ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"] {
        let server = TestServer::answering(status, &location, "").await;
        let text = rejected(deliver(Request::post(server.url("/"), "x")).await);
        assert!(text.contains(&format!("to http://{}/new;", target.address)), "{text}");
        assert!(!text.contains("pass") && !text.contains("abc"), "{text}");
    }
    assert!(target.is_untouched(), "a redirect was followed");
    let server = TestServer::answering("302 Found", "location: /elsewhere?secret=1\r\n", "").await;
    let text = rejected(deliver(Request::get(server.url("/"))).await);
    assert!(text.contains("to /elsewhere;"), "{text}");
    let server = TestServer::answering("304 Not Modified", "", "").await;
    rejected(deliver(Request::get(server.url("/"))).await);
}

#[tokio::test]
async fn a_signature_can_be_checked_by_the_receiver() {
    let mut server = TestServer::answering("200 OK", "", "").await;
    deliver(Request::post(server.url("/"), "payload").sign_with(KEY)).await.unwrap();
    let received = server.next().await;
    let (id, timestamp) =
        (received.header("webhook-id").unwrap(), received.header("webhook-timestamp").unwrap());
    assert_eq!(id, sender().job.to_string());
    let age =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - timestamp.parse::<u64>().unwrap();
    assert!(age < 60, "{age}");
    // The receiver's side, from the header's values and the bytes that came in.
    let again = SigningKeys::fixed([(KEY, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
    let [_, _, (_, expected)] = again.sign(KEY, id, timestamp.parse().unwrap(), &received.body).unwrap();
    assert_eq!(received.header("webhook-signature"), Some(expected.as_str()));
    // A job without a signature must not lose one silently, nor get one by another variable.
    let missing = deliver(Request::get(server.url("/")).sign_with("CELERIAC_HTTP_KEY_OTHER")).await;
    assert!(failed(missing).contains("CELERIAC_HTTP_KEY_OTHER"));
    let forbidden = deliver(Request::get(server.url("/")).sign_with("PATH")).await;
    assert!(rejected(forbidden).contains("must begin with CELERIAC_HTTP_KEY_"));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn addresses_in_the_url_are_refused_in_every_form() {
    let mut server = TestServer::on("127.0.0.1:0", plain("200 OK", "", "")).await;
    let port = server.address.port();
    let courier = courier("");
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "０x7f.1",
        "127。0。0。1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
    ] {
        let request = Request::get(format!("http://{host}:{port}/"));
        let text = rejected(courier.deliver(&request, sender()).await);
        assert!(text.contains("start the worker with CELERIAC_HTTP_ALLOW_PRIVATE="), "{host} gave {text}");
    }
    assert!(server.is_untouched(), "a refused address was connected to");
}

#[tokio::test]
async fn names_of_refused_addresses_are_refused() {
    let mut server = TestServer::answering("200 OK", "", "").await;
    let port = server.address.port();
    for host in ["localhost", "LOCALHOST"] {
        let text =
            rejected(courier("").deliver(&Request::get(format!("http://{host}:{port}/")), sender()).await);
        assert!(text.contains("is a loopback address"), "{host} gave {text}");
    }
    assert!(server.is_untouched());
}

/// A name that has an allowed address when it is looked up the first time, and means this machine the second time.
#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let mut server = TestServer::answering("200 OK", "", "").await;
    let port = server.address.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let courier = courier_that_resolves("127.0.0.3", move |name| {
        assert_eq!(name, "rebind.example");
        let first = counter.fetch_add(1, Ordering::SeqCst) == 0;
        vec![if first { Ipv4Addr::new(127, 0, 0, 3) } else { Ipv4Addr::LOCALHOST }.into()]
    });
    let request = Request::get(format!("http://rebind.example:{port}/"));
    // Nobody listens at the allowed address. A second look-up within this delivery would have met the server.
    assert!(failed(courier.deliver(&request, sender()).await).contains("no connection"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let text = rejected(courier.deliver(&request, sender()).await);
    assert!(
        text.contains("http://rebind.example") && text.contains("127.0.0.1 is a loopback address"),
        "{text}"
    );
    assert!(server.is_untouched());
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_are_connected_to() {
    // The same port on two addresses of this machine, one of them allowed.
    let (mut allowed, mut forbidden) = loop {
        let allowed = TestServer::answering("200 OK", "", "").await;
        let port = allowed.address.port();
        if TcpListener::bind(("127.0.0.2", port)).is_ok() {
            let forbidden = TestServer::on(&format!("127.0.0.2:{port}"), plain("200 OK", "", "")).await;
            break (allowed, forbidden);
        }
    };
    let courier = courier_that_resolves("127.0.0.1/32", |_| {
        vec![Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::LOCALHOST.into()]
    });
    let request = Request::get(format!("http://two.example:{}/", allowed.address.port()));
    courier.deliver(&request, sender()).await.unwrap();
    allowed.next().await;
    assert!(forbidden.is_untouched());
}

#[tokio::test]
async fn what_keeps_a_request_from_arriving_is_tried_again() {
    // A port that was free a moment ago and has no listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = failed(deliver(Request::get(format!("http://u:secret@{closed}/p?token=secret"))).await);
    assert!(text.contains("no connection") && !text.contains("secret"), "{text}");

    let unknown = courier_that_resolves("", |_| vec![]);
    let text = failed(unknown.deliver(&Request::get("http://nowhere.example/"), sender()).await);
    assert!(text.contains("http://nowhere.example"), "{text}");

    let cut = TestServer::start(Answer::Cut).await;
    let text = failed(deliver(Request::get(cut.url("/p?token=secret"))).await);
    assert!(text.contains("no answer") && !text.contains("secret"), "{text}");

    let garbage = TestServer::start(Answer::Bytes(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec())).await;
    failed(deliver(Request::get(garbage.url("/"))).await);

    let silent = TestServer::start(Answer::Silence(Vec::new())).await;
    let request = Request::get(silent.url("/")).timeout(Duration::from_millis(50));
    let text = failed(deliver(request).await);
    assert!(text.contains("no answer within 50ms"), "{text}");

    let no_tls = TestServer::greeting(b"220 mail.example ready\r\n").await;
    let text = failed(deliver(Request::get(no_tls.url("/").replace("http:", "https:"))).await);
    assert!(text.contains("no connection"), "{text}");
}

#[tokio::test]
async fn a_body_without_an_end_neither_blocks_nor_fills_the_memory() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let endless = TestServer::start(Answer::Endless(head.clone())).await;
    deliver(Request::get(endless.url("/"))).await.unwrap();
    // A success counts as soon as its status is there, even if the body never comes.
    let silent =
        TestServer::start(Answer::Silence(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec())).await;
    deliver(Request::get(silent.url("/")).timeout(Duration::from_secs(600))).await.unwrap();
    let failing = TestServer::start(Answer::Endless(b"HTTP/1.1 500 Oops\r\n\r\n".to_vec())).await;
    let text = failed(deliver(Request::get(failing.url("/"))).await);
    assert!(text.len() < 400 && text.ends_with("xxx…"), "{text}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let mut server = TestServer::answering("404 Not Found", "", "nothing here").await;
    let courier = courier("127.0.0.1");
    for _ in 0..3 {
        rejected(courier.deliver(&Request::get(server.url("/")), sender()).await);
        assert_eq!(server.next().await.connection, 1);
    }
}

#[test]
fn nothing_secret_is_in_the_debug_form() {
    let keys = SigningKeys::fixed([(KEY, "a-secret-key-of-some-length")]);
    let courier = Courier::new(Allowance::public_only(), keys);
    assert!(!format!("{courier:?}").contains("a-secret-key"));
}
