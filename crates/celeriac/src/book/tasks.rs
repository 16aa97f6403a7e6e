//! Tasks: functions that can be called later.
//!
//! # Parameters
//!
//! The parameters are the arguments of the job, stored by name. Their types are owned and implement
//! `serde::Serialize` and `serde::Deserialize`. Two kinds of parameter are not stored but handed in by the worker:
//! [`State<T>`](crate::State), one for each type that the worker was given, and [`Context`](crate::Context).
//!
//! ```
//! use std::path::PathBuf;
//!
//! use celeriac::prelude::*;
//!
//! struct Blobs;
//! # impl Blobs { async fn put(&self, _: PathBuf) {} }
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Size {
//!     width: u32,
//!     height: u32,
//! }
//!
//! /// `path`, `size` and `note` are in the job; `blobs` and `context` come from the worker.
//! #[task]
//! async fn thumbnail(path: PathBuf, size: Size, note: Option<String>, blobs: State<Blobs>, context: Context) {
//!     println!("attempt {} of {}: {}x{} {note:?}", context.attempt(), context.job_id(), size.width, size.height);
//!     blobs.put(path).await;
//! }
//!
//! // Anything that converts into a `PathBuf` or a `String` will do; everything else is passed as it is.
//! let call = thumbnail::call("a.png", Size { width: 200, height: 100 }, None);
//! assert_eq!(call.task().name.as_str(), "thumbnail");
//! ```
//!
//! Large data does not belong into a job: store it elsewhere and pass its name. Secrets do not either, since operators can
//! read arguments.
//!
//! # Results
//!
//! A handler returns nothing, or a `Result` whose error can be displayed: `Box<dyn Error>`, an error type of your own, a
//! `String`, the report types of other crates. Such an error is a failure and is tried again. The error's causes go into
//! the job's history with it.
//!
//! A [`TaskError`](crate::TaskError) can say more, and `?` makes one from any standard error:
//!
//! ```
//! use celeriac::prelude::*;
//!
//! # struct Answer { status: u16, retry_after: Option<u64> }
//! # async fn post(_: &str) -> Result<Answer, std::io::Error> { Ok(Answer { status: 200, retry_after: None }) }
//! #[task]
//! async fn notify(url: String, cancelled: bool) -> Result<(), TaskError> {
//!     if cancelled {
//!         return Err(TaskError::cancel()); // no failure: the job is removed
//!     }
//!     let answer = post(&url).await?; // a failure: tried again as the policy says
//!     match (answer.status, answer.retry_after) {
//!         (202, _) => Err(TaskError::snooze(mins(5))), // no failure: again later
//!         (200..=299, _) => Ok(()),
//!         (429, Some(wait)) => Err(TaskError::retry_after(secs(wait), "asked to wait")), // its own delay
//!         (404 | 410, _) => Err(TaskError::reject("nobody is there")), // to the bin at once
//!         (status, _) => Err(TaskError::failed(status)),
//!     }
//! }
//! ```
//!
//! # Blocking
//!
//! A function without `async` runs on a thread pool for blocking work: right for computing, files and drivers that
//! block. Nothing can stop such a function from outside. One that runs for long looks at
//! [`Context::is_cancelled`](crate::Context::is_cancelled) now and then.
//!
//! ```
//! use celeriac::prelude::*;
//!
//! #[task(timeout = "10m")]
//! fn index(folder: String, context: Context) -> Result<(), TaskError> {
//!     for entry in std::fs::read_dir(folder)? {
//!         if context.is_cancelled() {
//!             return Err(TaskError::failed("stopped half way"));
//!         }
//!         println!("{:?}", entry?.path());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Names, and changing a task
//!
//! A stored job finds its task by name: the function's, or the one in `name = "…"`. Moving a function to another module
//! changes nothing. Renaming it does, unless the attribute keeps the old name.
//!
//! While jobs of the old form are stored, or old and new workers run side by side:
//!
//! * adding an `Option<…>` parameter is safe, also for old workers, which leave out what they do not know;
//! * removing a parameter is safe for new workers, which leave it out; old ones cannot decode the new jobs;
//! * any other change of a parameter needs a new task name, and the old task until its jobs are gone.
//!
//! ```
//! use celeriac::core::Payload;
//! use celeriac::prelude::*;
//!
//! #[task]
//! async fn invoice(order: u64, currency: Option<String>) {
//! #   let _ = (order, currency);
//! }
//!
//! let stored_last_year = Payload::from_json(r#"{"order": 7}"#).unwrap();
//! assert!((invoice::definition().check)(&stored_last_year).is_ok());
//! ```
//!
//! # Testing
//!
//! The function is still a function. Call it:
//!
//! ```
//! use celeriac::prelude::*;
//!
//! struct Prices(u64);
//!
//! #[task]
//! async fn total(pieces: u64, prices: State<Prices>, context: Context) -> Result<u64, TaskError> {
//!     assert_eq!(context.attempt(), 1);
//!     Ok(pieces * prices.0)
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let total = total(3, State::new(Prices(5)), Context::for_test("total")).await;
//! assert_eq!(total.unwrap(), 15);
//! # });
//! ```
