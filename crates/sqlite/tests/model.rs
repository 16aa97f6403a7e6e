//! Random histories on the engine and on the reference at once.

#![expect(clippy::unwrap_used, reason = "a store that does not open is a failure")]

use std::sync::Arc;

use celeriac_core::Broker;
use celeriac_sqlite::{SqliteBroker, SqliteOptions};
use celeriac_testkit::conformance::Fixture;
use tempfile::TempDir;

/// A file with two brokers on it; the histories go through both in turn.
struct OnDisk {
    broker: Arc<dyn Broker>,
    other: Arc<dyn Broker>,
    _folder: TempDir,
}

impl Fixture for OnDisk {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = SqliteOptions::file(folder.path().join("jobs.db"));
        // What is compared here does not depend on the disk, and more histories fit into the same time.
        options.synchronous = celeriac_sqlite::Synchronous::Normal;
        let broker = Arc::new(SqliteBroker::open(options.clone()).await.unwrap());
        let other = Arc::new(SqliteBroker::open(options).await.unwrap());
        Self { broker, other, _folder: folder }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.broker)
    }

    fn other(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.other)
    }
}

/// One broker in memory.
struct InMemory(Arc<dyn Broker>);

impl Fixture for InMemory {
    async fn open() -> Self {
        Self(Arc::new(SqliteBroker::open(SqliteOptions::memory()).await.unwrap()))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.0)
    }

    fn other(&self) -> Arc<dyn Broker> {
        self.broker()
    }
}

#[test]
fn two_brokers_on_a_file_behave_like_the_reference() {
    celeriac_testkit::model::run::<OnDisk>(48);
}

#[test]
fn a_broker_in_memory_behaves_like_the_reference() {
    celeriac_testkit::model::run::<InMemory>(48);
}
