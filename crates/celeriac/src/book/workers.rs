//! Workers: programs that run jobs.
//!
//! # A program
//!
//! ```no_run
//! // If the tasks are in a library, name it: a dependency that is never named is not linked, nor are its tasks.
//! // use my_tasks as _;
//!
//! fn main() -> std::process::ExitCode {
//!     celeriac::worker().main()
//! }
//! ```
//!
//! [`worker_main!(my_tasks)`](crate::worker_main) writes both. The program has a whole command line:
//!
//! ```sh
//! worker --broker sqlite:jobs.db --queues high,default      # strictly in this order
//! worker --broker sqlite:jobs.db --queues high=6,default=3  # by weight
//! worker tasks                                              # what it can run, and where that is defined
//! worker --help
//! ```
//!
//! A worker without any task refuses to start and says which line to add; two tasks of one name, or a task whose
//! `State<T>` was not given, stop it as well, before it takes a job.
//!
//! # States
//!
//! ```no_run
//! use celeriac::prelude::*;
//!
//! struct Mailer { from: String }
//! # impl Mailer { async fn connect() -> Self { Self { from: String::new() } } }
//!
//! #[task]
//! async fn greet(name: String, mailer: State<Mailer>, celeriac: State<Client>) -> Result<(), TaskError> {
//!     println!("{}: hello {name}", mailer.from);
//!     celeriac.enqueue(greet::call("the next")).await?; // the worker's own client is always there
//!     Ok(())
//! }
//!
//! // `main()` makes a runtime; `run()` uses the one that a state needed to be made.
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     worker().state(Mailer::connect().await).run().await
//! }
//! ```
//!
//! # Inside another program
//!
//! [`Worker`](crate::Worker) is the same without a command line. A service can run one beside its server, and stop it with
//! [`Shutdown`](crate::Shutdown):
//!
//! ```
//! use std::sync::Arc;
//!
//! use celeriac::prelude::*;
//! use celeriac::{Registry, Shutdown, States, Worker};
//! use tokio::sync::Notify;
//!
//! #[task]
//! async fn ring(bell: State<Notify>) {
//!     bell.notify_one();
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let celeriac = Client::connect("sqlite::memory:").await?;
//! let mut states = States::default();
//! states.insert(Notify::new());
//! let bell = states.get::<Notify>().expect("just given");
//!
//! let shutdown = Shutdown::new();
//! let worker = Worker::builder(Arc::clone(celeriac.broker()), Registry::new().with(ring::definition())?)
//!     .concurrency(4)
//!     .states(states)
//!     .build()?;
//! let running = tokio::spawn(worker.run(shutdown.clone()));
//!
//! celeriac.enqueue(ring::call()).await?;
//! bell.notified().await;
//! shutdown.drain();
//! assert_eq!(running.await??.done, 1);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Stopping
//!
//! SIGTERM or Ctrl-C begins an orderly stop: no more jobs are taken, what had not started is given back at once, running
//! handlers may finish within the grace, and their verdicts are written. When the grace is over their token
//! ([`Context::cancelled`](crate::Context::cancelled)) fires, and a second later they are dropped and their jobs given
//! back. Nothing of this counts as an attempt or as a lost delivery. A second signal ends the grace at once; a third
//! exits without a word to the store, as `kill -9` would.
//!
//! # How many, and how much at once
//!
//! Any number of workers may share a store. Each takes at most what it can start soon: with `--prefetch auto` about
//! 100 ms of work by the measured run time and one job for each free handler. Long jobs are taken one by one, so none
//! waits behind another in one worker while a second is idle; short ones are taken in hundreds.
//!
//! `--concurrency` is the number of handlers at once. The default suits handlers that wait for networks and disks; handlers
//! that compute are better served by one a core.
//!
//! # How it is doing
//!
//! `--metrics 9464` serves Prometheus metrics on this machine, with `/livez` and `/readyz` for whoever restarts and
//! routes, and `/scale` for autoscalers. `docs/metrics.md` in the sources lists every metric, and `dashboards/` has
//! dashboards and alerts. A program with a recorder of the `metrics` crate gets the same figures there: it installs it
//! before it makes a client or a worker, and calls [`metrics::describe`](crate::metrics::describe). A
//! [`Pulse`](crate::Pulse) given to [`WorkerBuilder::pulse`](crate::WorkerBuilder::pulse) answers for its health.
//!
//! Whatever a handler logs stands in the span `run` with the fields `job`, `task`, `queue` and `attempt`. Traces go on
//! from the caller to the handler by the headers `traceparent` and `tracestate` once
//! [`set_propagation`](crate::set_propagation) was called; the crate `celeriac-opentelemetry` does that.
