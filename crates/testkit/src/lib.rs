//! What engines of Celeriac are tested with.
//!
//! * [`ReferenceBroker`]: the whole [`Broker`](celeriac_core::Broker) contract in memory, in the plainest way. It is
//!   the model that engines are compared with, and a broker for unit tests. Nothing survives the process.
//! * [`mod@conformance`]: what every engine must do, as tests that an engine joins in one line.
//! * [`model`]: random histories, run on an engine and on the reference at once.
//! * [`postgres`]: a PostgreSQL server for tests, [`TestPooler`] before it, and [`FaultProxy`], a network that fails on
//!   request.
//! * [`ManualClock`]: time that a test moves by hand.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod clock;
pub mod conformance;
mod fault_proxy;
pub mod model;
#[cfg(unix)]
mod pgbouncer;
#[cfg(unix)]
pub mod postgres;
mod reference;

pub use clock::ManualClock;
pub use fault_proxy::{FaultProxy, Weather};
#[cfg(unix)]
pub use pgbouncer::TestPooler;
pub use reference::{Outage, ReferenceBroker};
