//! Failures: each thing that can go wrong, and what happens then.
//!
//! # To a job
//!
//! | event | what happens | counted as |
//! | --- | --- | --- |
//! | the handler returns an error | to `scheduled`, due after the policy's next delay, or after the handler's own ([`retry_after`]); at the last attempt to the bin, `retries_exhausted` | attempt |
//! | it [rejects](crate::TaskError::reject) | to the bin at once, `rejected` | attempt |
//! | it [snoozes](crate::TaskError::snooze) | to `scheduled` | nothing |
//! | it [cancels](crate::TaskError::cancel) | removed | cancelled |
//! | it panics | as an error, with message and place | attempt |
//! | its time limit passes | its token fires, a second later it is dropped; as an error | attempt |
//! | it blocks the runtime | other handlers of this worker are late; the lease holds | nothing |
//! | it kills the process | redelivered alone, up to the queue's delivery limit; then to the bin, `delivery_limit` | delivery |
//! | the payload cannot be decoded | to the bin, `undecodable`, bytes kept; replay it when the worker is mended | nothing |
//! | no worker knows the task | `parked` under the task's name; taken up by the first worker that knows it | nothing |
//! | it waits longer than its time to live | to the bin, `expired`, or removed, as the queue says | expired |
//! | its queue is at the length limit | the enqueue is refused, or the oldest goes to the bin, `max_length`, as the queue says | |
//! | it is cancelled while it waits | removed | cancelled |
//! | it is cancelled while it runs | its token fires, a second later it is dropped; removed | cancelled |
//!
//! [`retry_after`]: crate::TaskError::retry_after
//!
//! ```
//! use celeriac::core::{AttemptKind, DeadReason};
//! use celeriac::prelude::*;
//! use celeriac::{ExitWhenEmpty, Registry, Shutdown, Worker};
//!
//! #[task(max_attempts = 1)]
//! async fn divide(by: u32) {
//!     println!("{}", 1 / by);
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let celeriac = Client::connect("sqlite::memory:").await?;
//! let job = celeriac.enqueue(divide::call(0)).await?.id();
//! let worker = Worker::builder(celeriac.broker().clone(), Registry::new().with(divide::definition())?)
//!     .exit_when_empty(ExitWhenEmpty::Yes)
//!     .build()?;
//! worker.run(Shutdown::new()).await?;
//!
//! let dead = celeriac.job(job).await?.expect("a panic loses no job");
//! assert_eq!(dead.reason, Some(DeadReason::RetriesExhausted));
//! let attempt = &dead.job.extras.history[0];
//! assert_eq!(attempt.kind, AttemptKind::Panicked);
//! assert!(attempt.error.starts_with("attempt to divide by zero at "));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # To a worker
//!
//! | event | what happens |
//! | --- | --- |
//! | SIGTERM, Ctrl-C | an orderly stop: see [`workers`](crate::book::workers) |
//! | `kill -9`, out of memory, power cut | the lease lapses; within seconds its jobs are delivered again, one at a time |
//! | it is paused for longer than its lease | the same; when it wakes up its verdicts match nothing, it stops its handlers, takes a new identity and goes on |
//! | it is paused in the middle of a write to a SQLite file | it holds the file's lock: every other writer gets `Unavailable` until it continues or is killed, then all goes on |
//! | the store is busy at its start | it tries again until it succeeds or is stopped |
//! | the store fails while it runs | running handlers go on, verdicts are kept and written later, claims are tried again in growing pauses |
//! | no task, two of one name, a state missing | refused at the start, with the line to add |
//!
//! # To an enqueue
//!
//! Every refusal stores nothing, and the error's variant says what to do about it.
//!
//! | event | error |
//! | --- | --- |
//! | the payload is over the limit | [`PayloadTooLarge`](crate::Error::PayloadTooLarge), with size and limit |
//! | the queue was never declared | [`NoSuchQueue`](crate::Error::NoSuchQueue), with the nearest name |
//! | the queue is full | [`QueueFull`](crate::Error::QueueFull), with length and limit |
//! | a priority, a name, a duration is absurd | [`Invalid`](crate::Error::Invalid), [`InvalidName`](crate::Error::InvalidName) |
//! | the disk is full | [`StoreFull`](crate::Error::StoreFull) |
//! | the file is read-only | [`ReadOnly`](crate::Error::ReadOnly) |
//! | another process holds the file for too long | [`Unavailable`](crate::Error::Unavailable): repeat with an id, see [`calls`](crate::book::calls) |
//! | the file was removed or replaced while it was open | [`NotAStore`](crate::Error::NotAStore): nothing is confirmed; restart the program |
//! | the call passes its deadline | [`DeadlinePassed`](crate::Error::DeadlinePassed): the same |
//!
//! # To the store
//!
//! | event | what happens |
//! | --- | --- |
//! | the URL is of an unknown kind | [`UnsupportedUrl`](crate::Error::UnsupportedUrl) lists the known ones; a password in it is not shown |
//! | the file is no SQLite database, or one of something else | [`NotAStore`](crate::Error::NotAStore); the file is not touched |
//! | it was made by a newer program | [`SchemaTooNew`](crate::Error::SchemaTooNew), both versions named |
//! | it was made by an older program | it is migrated, by one process while the others wait |
//! | something in it is damaged | [`Corrupt`](crate::Error::Corrupt) names it; `celeriac doctor` looks at everything |
