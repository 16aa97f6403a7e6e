//! Servers that stop, refuse, or serve others first.

use std::time::{Duration, Instant};

use celeriac_core::{Broker, ClaimOptions, EnqueueOptions, QueueName};
use celeriac_postgres::{PostgresBroker, PostgresOptions, grants};
use celeriac_testkit::postgres::{StopMode, TestServer, fresh_schema, fresh_url};
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;

use crate::load::{Load, PATIENCE, connect, new_job, open, register};

/// `kill -9` of the server under load, then an immediate and a fast stop: each time it starts again and the load goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing() {
    let server = TestServer::private().unwrap();
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    for mode in [StopMode::Kill, StopMode::Immediate, StopMode::Fast] {
        load.progress().await;
        server.stop(mode).unwrap();
        server.start().unwrap();
        let end = Instant::now();
        load.progress().await;
        let recovery = load.recovery(end);
        println!("{mode:?}: first claim {recovery:?} after the start");
    }
    load.finish(&broker).await;
}

/// Every connection is terminated, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn terminated_connections_lose_nothing() {
    let server = TestServer::private().unwrap();
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    let client = connect(&server.url()).await;
    for _ in 0..20 {
        load.progress().await;
        client
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'celeriac'",
                &[],
            )
            .await
            .unwrap();
    }
    load.finish(&broker).await;
}

/// Others take every connection that the role may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn too_many_connections_are_waited_out() {
    const MOST: usize = 30;
    let server = TestServer::private().unwrap();
    let schema = fresh_schema();
    let options = PostgresOptions::from_url(&format!("{}?schema={schema}", server.url())).unwrap();
    drop(PostgresBroker::open(options.clone()).await.unwrap());
    let admin = connect(&server.url()).await;
    admin
        .batch_execute(&format!("create role app login connection limit {MOST}; {}", grants(&options, "app")))
        .await
        .unwrap();
    let url = server.url().replace("//postgres@", "//app@");
    let broker = open(&format!("{url}?schema={schema}"), "5s").await;
    let load = Load::start(&broker).await;
    load.progress().await;
    let mut taken = Vec::new();
    let started = Instant::now();
    while taken.len() < MOST {
        assert!(started.elapsed() < PATIENCE, "{} of {MOST} connections were taken", taken.len());
        admin
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'celeriac'",
                &[],
            )
            .await
            .unwrap();
        while let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
            tokio::spawn(connection);
            taken.push(client);
        }
    }
    load.trouble(&["unavailable"]).await;
    drop(taken);
    let end = Instant::now();
    load.progress().await;
    println!("first claim {:?} after connections were free", load.recovery(end));
    load.finish(&broker).await;
}

/// The database takes no writes for a while, as a replica or one that ran out of transaction numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_only_database_is_waited_out() {
    let server = TestServer::private().unwrap();
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    let admin = connect(&server.url()).await;
    load.progress().await;
    for (read_only, then) in [("on", "read_only"), ("off", "")] {
        admin.batch_execute("begin read write").await.unwrap();
        admin.batch_execute("rollback").await.unwrap();
        admin
            .batch_execute(&format!("alter system set default_transaction_read_only = {read_only}"))
            .await
            .unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        let end = Instant::now();
        if then.is_empty() {
            load.progress().await;
            println!("first claim {:?} after the database took writes again", load.recovery(end));
        } else {
            load.trouble(&[then]).await;
        }
    }
    load.finish(&broker).await;
}

/// A call that cannot get its lock ends at its deadline with an error that says so, and the connection is of use again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_that_takes_too_long_ends() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "300ms").await;
    let worker = register(&broker, PATIENCE).await;
    broker.enqueue(vec![new_job()], EnqueueOptions::default()).await.unwrap();
    let mut client = connect(&url).await;
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let blocker = client.transaction().await.unwrap();
    blocker.batch_execute(&format!("lock table {schema}.jobs in access exclusive mode")).await.unwrap();
    for _ in 0..3 {
        let error =
            broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await.unwrap_err();
        assert_eq!(error.code().as_str(), "deadline_passed", "{}", error.full());
    }
    blocker.rollback().await.unwrap();
    let claim = async {
        loop {
            match broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 1)).await {
                Ok(claimed) if !claimed.is_empty() => return claimed.len(),
                Ok(_) => {}
                Err(error) => assert!(error.is_transient(), "{}", error.full()),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, claim).await.unwrap(), 1);
}
