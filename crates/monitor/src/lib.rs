//! The listener of a worker: `/metrics` for Prometheus, `/livez` and `/readyz` for whoever restarts and routes, and
//! `/scale` for autoscalers.
//!
//! It runs on a thread of its own, so that it answers also while a handler blocks the worker's runtime, and it is
//! bounded: a request has ten seconds, and at most 64 are served at once. There is no encryption and no password: it
//! listens on loopback unless it is told otherwise, and shows names of queues and tasks, and numbers.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod address;
mod exporter;
mod health;
mod monitor;
mod sampler;
mod scale;
mod server;

pub use address::{InvalidAddress, Reach, read_address};
pub use exporter::{Exporter, RecorderTaken};
pub use monitor::{Monitor, MonitorError, MonitorOptions};
pub use sampler::Sampler;
