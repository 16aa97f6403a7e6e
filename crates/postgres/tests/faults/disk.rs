//! A disk that is full.

use std::time::Instant;

use celeriac_testkit::postgres::{TestServer, fresh_schema};

use crate::load::{Load, open};

/// The server cannot write, or dies of it; with space on its disk everything goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_loses_nothing() {
    let server = match TestServer::on_small_disk(160) {
        Ok(server) => server,
        Err(error) => {
            println!("SKIPPED: no file system of a small size can be made here: {error}");
            return;
        }
    };
    let broker = open(&format!("{}?schema={}", server.url(), fresh_schema()), "5s").await;
    let load = Load::start(&broker).await;
    load.progress().await;
    server.fill_disk().unwrap();
    load.trouble(&["store_full", "unavailable"]).await;
    server.free_disk().unwrap();
    let end = Instant::now();
    load.progress().await;
    println!("first claim {:?} after there was space", load.recovery(end));
    load.finish(&broker).await;
}
