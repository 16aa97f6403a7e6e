//! The book: what stands behind the interface, a chapter a page.
//!
//! * [`tasks`]: parameters, results, names, and how to change a task while jobs of it are stored.
//! * [`calls`]: enqueueing one and many, later, once, elsewhere.
//! * [`workers`]: programs, queues, states, stopping, tests.
//! * [`promises`]: what holds, how, and what does not.
//! * [`failures`]: each thing that can go wrong, and what happens then.
//! * [`defaults`]: every default and why it is that.

pub mod calls;
pub mod defaults;
pub mod failures;
pub mod promises;
pub mod tasks;
pub mod workers;
