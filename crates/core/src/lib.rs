//! The vocabulary and the rules of Celeriac.
//!
//! This crate decides and never acts: it has no I/O, reads no clock and draws no random numbers. Time and
//! randomness are arguments, so every rule can be tested by calling a function.
//!
//! * What a job is: [`NewJob`], [`Job`], [`Call`], [`Payload`], [`TaskSpec`].
//! * What may happen to it: [`Outcome`] → [`judge`] → [`Verdict`], and [`redeliver`] when its worker died.
//! * Where it waits: [`Room`], [`QueueSettings`].
//! * What an engine must do: [`Broker`], whose contracts are written beside each method.
//! * What can go wrong: [`Error`], one variant for each remedy, with a stable [`ErrorCode`].

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod arguments;
mod broker;
mod call;
mod error;
mod id;
mod inspect;
mod job;
mod name;
mod payload;
mod priority;
mod queue;
mod retry;
mod sample;
mod task;
mod time;
mod transaction;
mod url;
mod verdict;

pub use arguments::{ArgumentProblem, InvalidArguments};
pub use broker::{
    BoxFuture, Broker, ClaimOptions, Claimed, EnqueueOptions, Enqueued, Holding, MaintainOptions,
    Maintenance, QueueShare, Receipt, Renewal, Settled, Settlement, Suspects, WaitOptions, WorkerInfo,
};
pub use call::Call;
pub use error::{Error, ErrorCode, Result, nearest};
pub use id::{ClaimId, JobId, WorkerId};
pub use inspect::{
    BulkAct, BulkOptions, Cancelled, CheckOptions, CheckReport, Details, Filter, Finished, Page, PageOptions,
    QueueStats, Stats, Violation, WorkerStats,
};
pub use job::{Attempt, AttemptKind, Extras, Headers, Idempotency, Job, JobPolicy, NewJob, Room, Start};
pub use name::{InvalidName, QueueName, TaskName};
pub use payload::{Codec, DecodeError, EncodeError, Payload};
pub use priority::{InvalidPriority, Priority};
pub use queue::{Declared, OnExpire, Overflow, Paused, QueueChange, QueueSettings};
pub use retry::{InvalidRetry, RetryPolicy};
pub use sample::{QueueFigures, QueueSample, Sample, SampleOptions, Sampled, StorageFigures};
pub use task::{Delivery, ParameterInfo, TaskInfo, TaskSpec};
pub use time::{InvalidDuration, Timestamp, format_duration, parse_duration};
pub use transaction::{Committed, JobTransaction, TransactionHandle, Transactions};
pub use url::without_password;
pub use verdict::{DeadReason, Failure, Outcome, Redelivery, Verdict, judge, max_attempts, redeliver};
