//! Calls: enqueueing.
//!
//! [`Client::enqueue`](crate::Client::enqueue) returns when the job is on the disk. Many callers at once share one flush of
//! the disk, so do not collect calls in order to be fast: enqueue where you are. A loop over a list is different:
//! [`Client::enqueue_all`](crate::Client::enqueue_all) stores all of them, or none, in one round trip.
//!
//! ```
//! use celeriac::core::{Cancelled, Room, Timestamp};
//! use celeriac::prelude::*;
//! use celeriac::Enqueued;
//!
//! #[task(queue = "mail")]
//! async fn remind(address: String, day: u32) {
//! #   let _ = (address, day);
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let celeriac = Client::connect("sqlite::memory:").await?.declare_missing_queues();
//!
//! // One, with other settings than its task's.
//! let call = remind::call("ada@example.org", 1).priority(9).max_attempts(2).header("tenant", "7");
//! celeriac.enqueue(call).await?;
//!
//! // Many.
//! let calls = (1..=30).map(|day| remind::call("ada@example.org", day).delay(days(day.into())));
//! assert_eq!(celeriac.enqueue_all(calls).await?.len(), 30);
//!
//! // At a certain time, by the store's clock.
//! let at = Timestamp::parse_rfc3339("2100-01-01T08:00:00Z").unwrap();
//! let later = celeriac.enqueue(remind::call("ada@example.org", 31).run_at(at)).await?;
//! assert_eq!(celeriac.job(later.id()).await?.unwrap().room, Room::Scheduled);
//!
//! // Once, however often it is tried.
//! let order = || remind::call("ada@example.org", 32).idempotency_key("order-17");
//! let first = celeriac.enqueue(order()).await?;
//! assert_eq!(celeriac.enqueue(order()).await?, Enqueued::Existed(first.id()));
//!
//! // Never mind.
//! assert_eq!(celeriac.cancel(later.id()).await?, Cancelled::Removed(Room::Scheduled));
//!
//! // Mistakes come back as errors, and nothing is stored.
//! let refused = celeriac.enqueue(remind::call("ada@example.org", 33).priority(10)).await.unwrap_err();
//! assert_eq!(refused.to_string(), "priority \"10\": allowed are 0 to 9, higher first");
//! # Ok::<_, celeriac::Error>(())
//! # }).unwrap();
//! ```
//!
//! # In your own transaction
//!
//! On PostgreSQL [`Client::enqueue_in`](crate::Client::enqueue_in) stores a job in the transaction of the row it belongs to:
//! both are there after the commit, or neither. That leaves no moment in which an order exists whose job was lost with its
//! process, and no job for an order that was rolled back. `examples/orders` is a service that does this.
//!
//! # After an unclear failure
//!
//! An [`Unavailable`](crate::Error::Unavailable) or [`DeadlinePassed`](crate::Error::DeadlinePassed) may have come after the
//! job was stored. To repeat the call without storing it twice, give it an id of your own before the first try:
//! [`Call::id`](crate::Call::id), or [`Call::idempotency_key`](crate::Call::idempotency_key) if you have a natural key such
//! as an order number. Ids are remembered for at least seven days, also after their job is done. Calls without one pay
//! nothing for this.
//!
//! [`Error::is_transient`](crate::Error::is_transient) says whether repeating can help at all, and
//! [`Error::code`](crate::Error::code) is stable, for other programs.
//!
//! # Queues
//!
//! The queue `default` always exists. Others must be declared: by a worker that serves them, by
//! `celeriac queues declare NAME`, or by a client that was told to with
//! [`declare_missing_queues`](crate::Client::declare_missing_queues). Otherwise an enqueue into a mistyped queue would
//! succeed and its jobs wait for ever; so it is an error that offers the nearest name.
//!
//! # From other languages
//!
//! A payload can be JSON, so every program that can run a command can enqueue:
//! `celeriac enqueue remind '{"address": "ada@example.org", "day": 1}'`. The arguments are checked against what workers have
//! announced about the task. On PostgreSQL any client, ORM or trigger can do it in SQL:
//! `select celeriac.enqueue('mail', 'remind', '{"address": "ada@example.org", "day": 1}')`.
