//! The PostgreSQL engine of Celeriac: many machines, one truth.
//!
//! ```no_run
//! # async fn example() -> celeriac_core::Result<()> {
//! use celeriac_core::{Broker, EnqueueOptions};
//! use celeriac_postgres::{PostgresBroker, PostgresOptions};
//!
//! let options = PostgresOptions::from_url("postgres://app@db.example/shop?sslmode=verify-full")?;
//! let broker = PostgresBroker::open(options).await?;
//! println!("{} queues on {broker}", broker.stats().await?.queues.len());
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! A job that waits is a row of `jobs`, inserted once and deleted once, never updated. What happens to jobs is written
//! once a batch: the newest row of `claims` is the whole dispatch state of a queue. The functions that do this live in
//! the database, in a schema of their own (`celeriac` unless the URL says `schema=…`), so each call is one round trip.
//! The files in `sql/` explain each step.
//!
//! # In one transaction
//!
//! A task that takes a [`Transaction`] writes in the transaction that settles its job: both are committed, or neither is.
//!
//! # From other languages
//!
//! `select celeriac.enqueue('media', 'thumbnail', '{"path": "a.png"}')` stores a job in the caller's own transaction.
//! From Rust, [`PostgresBroker::enqueue_in`] does the same with a `tokio_postgres` transaction.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod broker;
mod check;
mod claim;
mod direct;
mod enqueue;
mod fault;
mod inspection;
mod maintenance;
mod migration;
mod options;
mod patrol;
mod queues;
mod row;
mod sample;
mod settle;
mod statement;
mod storage;
mod store;
mod tls;
mod transaction;
mod wake;

pub use broker::PostgresBroker;
pub use migration::{grants, migration_sql};
/// The driver in the version of this engine: what [`PostgresBroker::enqueue_in`] takes a transaction of.
pub use tokio_postgres;

pub use options::{Listening, Pooler, PostgresOptions, TlsMode};
pub use transaction::{InTransaction, Transaction};
