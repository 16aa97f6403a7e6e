//! The ways to a PostgreSQL server: with certificates, through a pooler, by several hosts, and what is said when none leads
//! there.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::path::Path;
use std::process::Command;

use celeriac::Client;
use celeriac::core::Error;
use celeriac::postgres::PostgresOptions;
use celeriac_testkit::TestPooler;
use celeriac_testkit::postgres::{TestServer, fresh_schema};
use celeriac_tests::{call, drained, eventually, figures, site, sound};
use rustix::process::Signal;
use serde_json::json;

/// Makes a private authority and a certificate for the name `localhost` alone.
fn certificates(folder: &Path) {
    let openssl = |words: &str| {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().unwrap();
        assert!(made.status.success(), "{words}: {}", String::from_utf8_lossy(&made.stderr));
    };
    for authority in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={authority} \
             -keyout {authority}.key -out {authority}.pem"
        ));
    }
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
    );
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
}

/// Gives a running server its certificate, and lets nobody in without TLS but the sockets of this machine.
async fn switch_tls_on(server: &TestServer, folder: &Path) {
    let database = PostgresOptions::from_url(&server.url()).unwrap().connect().await.unwrap();
    for file in ["server.key", "server.pem"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        // By the server itself: it wants a key that only it can read.
        database
            .batch_execute(&format!(
                "copy (select unnest(string_to_array('{}', E'\\n'))) to program 'umask 077; cat > {file}'",
                text.trim_end()
            ))
            .await
            .unwrap();
    }
    for setting in ["ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'", "ssl = on"] {
        database.batch_execute(&format!("alter system set {setting}")).await.unwrap();
    }
    database
        .batch_execute(
            "copy (select 'hostssl all all 127.0.0.1/32 trust') to program 'cat > pg_hba.conf'; \
             select pg_reload_conf()",
        )
        .await
        .unwrap();
}

fn refusal(opened: Result<Client, Error>) -> String {
    match opened {
        Ok(client) => panic!("it should have been refused: {client:?}"),
        Err(error) => error.full(),
    }
}

/// A certificate of a known authority for the right name, or no connection: for clients, and for worker processes with
/// all their connections.
#[tokio::test]
async fn certificates_are_verified() {
    let site = site!();
    let folder = site.folder().to_owned();
    certificates(&folder);
    let server = TestServer::private().unwrap();
    switch_tls_on(&server, &folder).await;
    let url = |host: &str, words: &str| {
        format!("postgres://postgres:s3cret@{host}:{}/postgres?deadline=10s&{words}", server.port())
    };
    let root = |name: &str| format!("sslrootcert={}", folder.join(name).display());
    // The settings are read anew at some moment after the request.
    let good = url("localhost", &format!("sslmode=verify-full&{}", root("ca.pem")));
    let client = eventually("TLS", || async { Client::connect(&good).await.ok() }).await;

    for (host, words, part) in [
        // 127.0.0.1 is where it is, and not the name in the certificate.
        ("127.0.0.1", format!("sslmode=verify-full&{}", root("ca.pem")), "not valid for name"),
        ("localhost", format!("sslmode=verify-full&{}", root("other.pem")), "UnknownIssuer"),
        ("localhost", format!("sslmode=verify-ca&{}", root("other.pem")), "UnknownIssuer"),
        ("localhost", "sslmode=disable".to_owned(), "no encryption"),
        ("localhost", format!("sslmode=verify-full&{}", root("server.key")), "no certificate"),
        ("localhost", format!("sslmode=verify-full&{}", root("nowhere.pem")), "nowhere.pem"),
    ] {
        let text = refusal(Client::connect(&url(host, &words)).await);
        assert!(text.contains(part), "{host} {words}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    for words in [format!("sslmode=verify-ca&{}", root("ca.pem")), "sslmode=require".to_owned()] {
        Client::connect(&url("127.0.0.1", &words)).await.unwrap();
    }

    let site = site.at(&good);
    let worker = site.start_worker("");
    client.enqueue_all((0..50).map(|_| call("record", &json!({"millis": 0})))).await.unwrap();
    assert_eq!(drained(client.broker(), "default").await.done, 50);
    let database = PostgresOptions::from_url(&good).unwrap().connect().await.unwrap();
    eventually("the listening connection", || async {
        let listening = database
            .query_one("select count(*) from pg_stat_activity where query ilike 'listen%'", &[])
            .await
            .unwrap();
        (listening.get::<_, i64>(0) > 0).then_some(())
    })
    .await;
    let open = database
        .query_one(
            "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) \
             where a.backend_type = 'client backend' and not s.ssl",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(open.get::<_, i64>(0), 0, "a connection without TLS");
    worker.signal(Signal::TERM);
    let log = worker.ended_saying().await;
    assert!(!log.contains("s3cret"), "{log}");
    assert!(!format!("{client:?} {}", client.broker()).contains("s3cret"));
    sound(client.broker()).await;
}

/// Behind a pooler that gives each transaction another session nothing is missing: not even wake-ups, if there is a direct
/// way for them.
#[tokio::test]
async fn a_transaction_pooler_is_enough() {
    let server = TestServer::private().unwrap();
    let pooler = TestPooler::start(&server).unwrap();
    let direct = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    for listen in ["off".to_owned(), direct] {
        let url = format!("{}?pooler=transaction&schema={}&listen={listen}", pooler.url(), fresh_schema());
        let site = site!().at(&url);
        let client = site.client().await;
        let workers = [site.start_worker("--concurrency 4"), site.start_worker("--concurrency 4")];
        let producers = [site.start_producer("record 600 10 4 1"), site.start_producer("record 300 1 16 1")];
        for producer in producers {
            producer.ended_well().await;
        }
        client.enqueue(call("fail", &json!({"times": 2}))).await.unwrap();
        client.enqueue(call("reject", &json!({}))).await.unwrap();
        let figures = drained(client.broker(), "default").await;
        assert_eq!((figures.done, figures.retried, figures.dead, figures.redelivered), (901, 2, 1, 0));
        for worker in workers {
            worker.signal(Signal::TERM);
            worker.ended_well().await;
        }
        sound(client.broker()).await;
    }
}

/// Of several hosts the one that takes writes is used, wherever it stands in the list.
#[tokio::test]
async fn the_host_that_takes_writes_is_found() {
    let (standby, primary) = (TestServer::private().unwrap(), TestServer::private().unwrap());
    let database = PostgresOptions::from_url(&standby.url()).unwrap().connect().await.unwrap();
    // Each by itself: the first may not be in a transaction with others.
    for statement in ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"] {
        database.batch_execute(statement).await.unwrap();
    }
    let hosts = |attributes: &str| {
        // Nobody is at port 1.
        format!(
            "postgres://postgres@127.0.0.1:1,127.0.0.1:{},127.0.0.1:{}/postgres?{attributes}",
            standby.port(),
            primary.port()
        )
    };
    eventually("a server that takes no writes", || async {
        // Settings are read anew at some moment after the request, and hold for sessions that begin then.
        let session = PostgresOptions::from_url(&standby.url()).unwrap().connect().await.unwrap();
        let shown = session.query_one("show default_transaction_read_only", &[]).await.unwrap();
        (shown.get::<_, String>(0) == "on").then_some(())
    })
    .await;
    let text = refusal(Client::connect(&hosts("target_session_attrs=any")).await);
    assert!(text.contains("read-only"), "{text}");
    // The default of several hosts.
    let site = site!().at(&hosts(""));
    let client = site.client().await;
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    site.start_worker("--exit-when-empty").ended_well().await;
    assert_eq!(figures(client.broker(), "default").await.done, 1);
    let there = Client::connect(&primary.url()).await.unwrap();
    assert_eq!(figures(there.broker(), "default").await.done, 1, "it is the last of the three");
}

/// A worker that cannot reach its server waits for it, and says so without the password.
#[tokio::test]
async fn passwords_are_not_in_the_logs() {
    let url = "postgres://me:s3cret@127.0.0.1:1/nowhere?deadline=500ms&password=s3cret";
    let text = refusal(Client::connect(url).await);
    assert!(text.contains("127.0.0.1:1") && !text.contains("s3cret"), "{text}");
    let options = PostgresOptions::from_url(url).unwrap();
    assert!(!format!("{options:?} {options}").contains("s3cret"));
    let site = site!().at(url);
    let worker = site.start_worker("--log trace");
    eventually("the first word", || async { worker.errors().contains("trying again").then_some(()) }).await;
    worker.signal(Signal::TERM);
    let log = worker.ended_saying().await;
    assert!(!log.contains("s3cret"), "{log}");
}
