//! The program as people and scripts run it.

#![allow(
    clippy::unwrap_used,
    reason = "the fixtures are part of the tests: what they cannot do fails the test"
)]

mod bench;
mod dead;
mod enqueue;
mod help;
mod import;
mod jobs;
mod mistakes;
mod operations;
mod periodic;
mod pipe;
mod plan;
mod postgres;
mod program;
mod queues;
