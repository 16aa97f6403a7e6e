//! Bad days of a server and of the network. After each: every job that was confirmed is done, and nothing hangs.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a test reports")]

mod contention;
mod disk;
mod fail_over;
mod load;
mod network;
mod numbers;
mod patrol;
mod server;
mod versions;
