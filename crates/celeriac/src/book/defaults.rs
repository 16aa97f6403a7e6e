//! Defaults: what they are, and why.
//!
//! ```
//! use std::time::Duration;
//!
//! use celeriac::core::{Delivery, EnqueueOptions, QueueSettings, TaskSpec};
//! use celeriac::prelude::*;
//! use celeriac::{Prefetch, Worker};
//!
//! #[task]
//! fn plain() {}
//!
//! let task: TaskSpec = (plain::definition().spec)();
//! assert_eq!(task.queue.as_str(), "default");
//! assert_eq!(task.priority.get(), 0);
//! assert_eq!(task.retry.to_string(), "5s, 1m, 10m, 1h");
//! assert_eq!(task.max_attempts, 5);
//! assert_eq!((task.timeout, task.ttl), (None, None));
//! assert_eq!(task.delivery, Delivery::AtLeastOnce);
//!
//! let queue = QueueSettings::default();
//! assert_eq!(queue.delivery_limit, 3);
//! assert_eq!((queue.max_length, queue.dead_retention), (None, None));
//!
//! assert_eq!(EnqueueOptions::default().max_payload, 1024 * 1024);
//! assert_eq!(Worker::DEFAULT_LEASE, Duration::from_secs(15));
//! assert_eq!(Worker::DEFAULT_GRACE, Duration::from_secs(25));
//! assert_eq!(Prefetch::default(), Prefetch::Auto);
//! ```
//!
//! # Why are there five attempts, after 5 s, 1 min, 10 min and 1 h?
//! A hiccup is over in seconds, a deployment in minutes, an outage often within the hour. What still fails then needs a
//! person, and the bin is where a person looks. The delays are spread by a tenth in both directions, so that jobs that
//! failed together do not come back together.
//!
//! # Why is the priority 0, the lowest?
//! So that a raised one is always something that somebody chose. If everything starts in the middle, everything
//! ends at the top.
//!
//! # Why is there no time limit?
//! Only the author of a task knows how long it may take. A limit that is wrong stops work that was going well, and would do
//! so on the worst day.
//!
//! # Why is it at least once?
//! Most effects can be repeated, and a lost job cannot be repaired by anybody who does not know of it.
//!
//! # Why is a job buried after three lost deliveries?
//! Suspects of a crash run one at a time, so only the culprit gets that far. Two deaths can be an unlucky restart; three
//! alone are a cause.
//!
//! # Why is the bin kept for ever?
//! Nothing may vanish without somebody's decision. A retention can be set for each queue.
//!
//! # Why are queues unbounded?
//! A limit must fit the workload; one that does not loses the jobs of a busy day. Disk space and the age of the
//! oldest job are what to watch.
//!
//! # Why is a payload at most 1 MiB?
//! A queue moves each payload several times, and each is in the way of its neighbours. Larger data belongs in a store made
//! for it, with a reference in the job.
//!
//! # Why is an undeclared queue an error?
//! A typing error would otherwise collect jobs that nobody runs.
//!
//! # Why does an enqueue wait for the disk?
//! `Ok` is a promise. Callers at the same time share a flush, so many are still fast.
//!
//! # Why is the lease 15 s?
//! It is renewed every 5 s, so two renewals may fail before it lapses, and the jobs of a dead worker run again soon. A
//! shorter one would mistake a busy disk for a death.
//!
//! # Why is the grace 25 s?
//! Container platforms commonly kill 30 s after their first signal; the rest is for stopping handlers and writing
//! verdicts.
//!
//! # Why is the prefetch not a number?
//! The right one depends on how long jobs take: hundreds for a millisecond, one for a minute. A fixed number is
//! wrong for one of them, and hoards long jobs that another worker could run.
//!
//! # Why four handlers a core, and at least 16?
//! Handlers mostly wait for something else, so one a core would leave the machine idle; many more would open more
//! connections than a database likes.
