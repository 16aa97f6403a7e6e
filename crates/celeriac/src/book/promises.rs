//! Promises: what holds, how, and what does not.
//!
//! # An enqueue that returned `Ok` is kept
//!
//! The call returns after the transaction is on the disk (`synchronous=FULL`), so the job survives `kill -9` and a power
//! cut, as far as the disk tells the truth. Callers that wait at the same time share one flush. Who opts into
//! `?synchronous=normal` in the URL gives up the power cut, nothing else.
//!
//! # Every job runs at least once, or ends in the bin with its reason
//!
//! A job is in exactly one room: ready or held, scheduled, parked, or dead. Every move from one to another is one
//! transaction. There is no path on which a job is dropped that somebody did not choose: an expiry that removes, a
//! retention of the bin, a purge. Each of these is counted.
//!
//! # A worker that was cut off changes nothing
//!
//! A worker holds jobs under a lease that it renews from a thread of its own; a handler that blocks the runtime does not
//! lose it. When the lease lapses, its jobs get a new place in the queue. Verdicts name the old place, so whatever a
//! paused worker sends after it wakes up matches nothing. The lease decides, never the age of a job: a job may run
//! for days.
//!
//! # A poisonous job takes nobody with it
//!
//! Jobs that come back from a dead worker are suspects: they are handed out one at a time until they have had a verdict.
//! So a job that kills its process is found alone, and after three deaths goes to the bin, while its neighbours
//! succeed. Deaths and failures are counted apart.
//!
//! # A worker outlives its faults
//!
//! Panics are failures of their job. Errors of the store are waited out with growing pauses, logged once for each change, and
//! verdicts are kept until they can be written. A worker whose lease was lost takes a new identity and goes on.
//!
//! # What a handler writes in the worker's transaction happens once
//!
//! On PostgreSQL a task may take the transaction in which its verdict is written, as a parameter of type
//! `Transaction`. What it writes there and the verdict are committed together or not at all: after an error, a panic, a
//! crash at any point, or the loss of the job to another worker nothing of it is there, and the job runs again. A store
//! that has no such transaction refuses the worker at its start.
//!
//! # What goes wrong in the store itself is found
//!
//! Now and then, at intervals of a hundred times its own length, one process looks whether something leads to every
//! stored job. What nothing leads to goes back to its queue, and the log calls it an error of ours.
//!
//! # What is not promised
//!
//! * **Exactly once**, in general. A worker may die after the work and before its verdict is written; then the job runs again. Make
//!   handlers repeatable: let the effect carry [`Context::job_id`](crate::Context::job_id), which is the same in every
//!   attempt, as a key where it happens. Where running twice is worse than not at all, `delivery = "at_most_once"`
//!   acknowledges the job before it runs: never redelivered, never tried again, and in the bin if it did not
//!   succeed.
//! * **Order.** Within a queue and a priority, jobs *start* in the order they were stored. Several run at once, and a
//!   job that is tried again comes later.
//! * **Time.** A delayed job starts no earlier than it is due, by the store's clock. How much later depends on the
//!   workers.
