//! The primary dies and its replica takes over.

use std::time::Instant;

use celeriac_testkit::postgres::{StopMode, TestServer, fresh_schema};

use crate::load::{Load, connect, open};

/// Commits wait for the replica, so what was confirmed is there after its promotion. Claims do not wait: those that were
/// lost are redeliveries.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_promoted_replica_takes_over_and_nothing_is_lost() {
    let primary = TestServer::private().unwrap();
    let replica = primary.replica().unwrap();
    let admin = connect(&primary.url()).await;
    admin.batch_execute("alter system set synchronous_standby_names = '*'").await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?schema={}",
        primary.port(),
        replica.port(),
        fresh_schema()
    );
    let broker = open(&url, "5s").await;
    let load = Load::start(&broker).await;
    load.progress().await;
    let report = celeriac_core::Broker::check(&*broker, Default::default()).await.unwrap();
    assert!(
        report.notes.iter().any(|note| note.contains("a fail-over to it loses nothing")),
        "{:?}",
        report.notes
    );
    primary.stop(StopMode::Kill).unwrap();
    load.trouble(&["unavailable"]).await;
    replica.promote().unwrap();
    let end = Instant::now();
    load.progress().await;
    println!("first claim {:?} after the promotion", load.recovery(end));
    load.finish(&broker).await;
}
