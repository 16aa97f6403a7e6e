//! What Celeriac measures: names, labels and handles, for any recorder of the [`metrics`] crate.
//!
//! Clients and workers record by themselves into the recorder that is installed **when they are made**; without one
//! that costs next to nothing. The standard worker installs one for Prometheus when it is started with `--metrics`. A
//! program with a recorder of its own installs it first, calls [`describe`], and, for the figures of the store as a
//! whole, shows a sample from time to time:
//!
//! ```
//! # use celeriac_core::{Broker, SampleOptions};
//! # async fn example(broker: &dyn Broker) {
//! celeriac_metrics::describe();
//! let mut meters = celeriac_metrics::StoreMeters::new();
//! // Every ten seconds or so, in any process:
//! match broker.sample(SampleOptions::default()).await {
//!     Ok(sampled) => meters.show(&sampled),
//!     Err(error) => meters.unreachable(&error),
//! }
//! # }
//! ```
//!
//! Labels are bounded: a queue, a task, or a word of ours, and never a job. Names beyond a bound share the label
//! [`OTHER`]. The table of all metrics is [`CATALOGUE`], and `docs/metrics.md` in the sources.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod catalogue;
mod client;
mod job;
mod pairs;
mod store;
mod worker;

pub use catalogue::{CATALOGUE, Kind, Metric, Source, describe, table};
pub use client::ClientMeters;
pub use job::{JobMeter, JobMeters};
pub use pairs::OTHER;
pub use store::{StoreMeters, show_age, show_process};
pub use worker::{Level, WorkerMeters};
