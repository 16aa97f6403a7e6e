//! The suite that every engine passes, and random histories on this engine and the reference, on a private server.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

use std::sync::Arc;

use celeriac_core::Broker;
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_testkit::conformance::Fixture;
use celeriac_testkit::postgres::fresh_url;

struct Postgres {
    broker: Arc<PostgresBroker>,
    other: Arc<PostgresBroker>,
}

impl Fixture for Postgres {
    async fn open() -> Self {
        let url = fresh_url().unwrap();
        let open = async || {
            let options = PostgresOptions::from_url(&url).unwrap();
            Arc::new(PostgresBroker::open(options).await.unwrap())
        };
        Self { broker: open().await, other: open().await }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.broker) as Arc<dyn Broker>
    }

    fn other(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.other) as Arc<dyn Broker>
    }
}

celeriac_testkit::conformance!(Postgres);

#[test]
#[ignore = "takes many minutes on a busy machine: cargo test -p celeriac-postgres --test conformance -- --ignored"]
fn two_brokers_behave_like_the_reference() {
    celeriac_testkit::model::run::<Postgres>(6);
}
