//! Schedules held against tables, against a scanner that looks at every minute, and against another library.

#![allow(
    clippy::unwrap_used,
    reason = "the fixtures are part of the tests: what they cannot do fails the test"
)]

mod against_croner;
mod against_scanner;
mod hostile;
mod intervals;
mod language;
mod odd_expressions;
mod scanner;
mod sentences;
mod zones;
