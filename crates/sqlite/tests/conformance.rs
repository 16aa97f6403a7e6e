//! The conformance suite of the test kit, on files and in memory.

#![expect(clippy::unwrap_used, reason = "a store that does not open is a failure")]

use std::sync::Arc;

use celeriac_core::Broker;
use celeriac_sqlite::{SqliteBroker, SqliteOptions};
use celeriac_testkit::conformance::Fixture;
use tempfile::TempDir;

/// A file with two brokers on it, as two processes have them: each with a writer thread, connections and a watch on the
/// file of its own.
struct OnDisk {
    broker: Arc<dyn Broker>,
    other: Arc<dyn Broker>,
    // Dropped last: the file must outlive those who use it.
    _folder: TempDir,
}

impl Fixture for OnDisk {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::file(folder.path().join("jobs.db"));
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

/// One broker in memory, which no second one can reach.
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

mod on_disk {
    use super::*;

    celeriac_testkit::conformance!(OnDisk);
}

mod in_memory {
    use super::*;

    celeriac_testkit::conformance!(InMemory);
}
