//! The embedded engine of Celeriac: one SQLite file, shared by any number of processes of one machine.
//!
//! * [`SqliteBroker::open`] with [`SqliteOptions`] gives a [`Broker`](celeriac_core::Broker).
//! * One thread of a process writes and commits once for everybody who waits (`writer`), so an enqueue that
//!   returned is on disk and a thousand of them share a flush.
//! * A claim is one row for a whole batch (`claim`), a verdict a delete (`settle`), and rows of waiting jobs are
//!   never updated (`schema`, `state`).
//! * Idle workers are woken across processes in a fraction of a millisecond (`wake`).
//!
//! The file must be on a local disk: several processes share memory through it, which network file systems do
//! not give. Copying the file alone loses what is still in its `-wal` file; back up with `VACUUM INTO`.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod broker;
mod check;
mod claim;
mod connection;
mod enqueue;
mod fault;
mod history;
mod inspect;
mod lease;
mod maintain;
mod operate;
mod options;
mod patrol;
mod queues;
mod reader;
mod room;
mod sample;
mod schema;
mod settle;
mod state;
mod transaction;
mod wake;
mod writer;

pub use broker::SqliteBroker;
pub use options::{Place, SqliteOptions, Synchronous};
pub use schema::{SCHEMA_VERSION, migration_sql, schema_version};
