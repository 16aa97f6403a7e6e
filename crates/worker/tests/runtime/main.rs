//! The worker as a whole, against the reference broker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::future_not_send,
    clippy::needless_pass_by_ref_mut,
    reason = "all of it is test code, and runs where it is made"
)]

mod dispatch;
mod fixture;
mod lease;
mod outage;
mod outcomes;
mod probe;
mod stop;
mod watched_broker;
