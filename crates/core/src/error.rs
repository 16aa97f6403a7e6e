use std::fmt;
use std::time::Duration;

use crate::id::WorkerId;
use crate::name::{InvalidName, QueueName, TaskName};
use crate::payload::EncodeError;
use crate::priority::InvalidPriority;
use crate::retry::InvalidRetry;
use crate::time::InvalidDuration;

/// The result of everything that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Everything that can go wrong, one variant for each thing the caller can do about it.
///
/// The variant is for `match`, [`Error::code`] for other programs, the text for people. Texts never hold a
/// payload or a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is out of bounds or malformed. Correct it; trying again is of no use.
    #[error("{what} {value:?}: {problem}")]
    Invalid {
        /// What it is the value of.
        what: String,
        /// The value, shortened.
        value: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A name is malformed.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The arguments could not be encoded, or are no JSON object.
    #[error("task {task}: {source}")]
    Arguments {
        /// Whose arguments.
        task: TaskName,
        /// Why.
        source: EncodeError,
    },
    /// The queue was never declared. Declare it (`celeriac queues declare NAME`, or start a worker that serves
    /// it), or correct the name.
    #[error("no such queue: {queue}{}; declare it with `celeriac queues declare {queue}` or start a worker that serves it", did_you_mean(nearest.as_deref()))]
    NoSuchQueue {
        /// The name that was asked for.
        queue: QueueName,
        /// The declared name that is most like it.
        nearest: Option<String>,
    },
    /// The queue is at its length limit and refuses more. Slow down, or raise the limit.
    #[error(
        "queue {queue} is full: {length} jobs wait and its limit is {limit}; try later, or raise the limit with `celeriac queues declare {queue} --max-length N`"
    )]
    QueueFull {
        /// Which queue.
        queue: QueueName,
        /// How many jobs wait to run.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// The payload is over the limit. Store the data elsewhere and pass a reference.
    #[error(
        "payload of task {task} has {size} bytes; the limit is {limit}: store the data elsewhere and pass a reference, or raise the limit"
    )]
    PayloadTooLarge {
        /// The task it was meant for.
        task: TaskName,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The worker's lease is gone: its jobs were given to others. Stop the handlers and register anew.
    #[error("the lease of worker {worker} is lost; its jobs were handed to others")]
    LeaseLost {
        /// The worker that was declared dead.
        worker: WorkerId,
    },
    /// The URL names a broker that this program cannot talk to.
    #[error("broker URL {url:?}: {problem}")]
    UnsupportedUrl {
        /// The URL without its password.
        url: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// The file or database is there but is no Celeriac store.
    #[error("{store} is no Celeriac store: {problem}")]
    NotAStore {
        /// Where.
        store: String,
        /// What was found.
        problem: String,
    },
    /// The store was made or migrated by a newer program. Upgrade this one.
    #[error("{store} has schema version {found}, this program knows up to {supported}: upgrade this program")]
    SchemaTooNew {
        /// Where.
        store: String,
        /// The version found.
        found: i64,
        /// The newest version that this program knows.
        supported: i64,
    },
    /// The store accepts no writes. Check permissions and mounts; workers try again by themselves.
    #[error("{store} is read-only: check the permissions of the file and its folder, and how it is mounted")]
    ReadOnly {
        /// Where.
        store: String,
        /// The driver's error.
        source: Source,
    },
    /// The disk is full. Free some space; workers try again by themselves.
    #[error("no space left for {store}")]
    StoreFull {
        /// Where.
        store: String,
        /// The driver's error.
        source: Source,
    },
    /// The store cannot be reached or is busy for too long. Try again with back-off.
    #[error("{store} is unavailable while trying to {operation}")]
    Unavailable {
        /// Where.
        store: String,
        /// What was tried.
        operation: &'static str,
        /// The driver's error.
        source: Source,
    },
    /// A call took longer than its deadline. It may or may not have taken effect.
    #[error("{store} did not {operation} within {}", crate::format_duration(*after))]
    DeadlinePassed {
        /// Where.
        store: String,
        /// What was tried.
        operation: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// Stored data is damaged. Nothing was changed; run `celeriac doctor`.
    #[error("{what} is damaged: {problem}; run `celeriac doctor`")]
    Corrupt {
        /// What cannot be read.
        what: String,
        /// How.
        problem: String,
    },
    /// The store refused a statement for a reason that no other variant names. This is a bug of ours, or a
    /// changed schema.
    #[error("{store} refused to {operation}")]
    Store {
        /// Where.
        store: String,
        /// What was tried.
        operation: &'static str,
        /// The driver's error.
        source: Source,
    },
}

/// The stable name of an [`Error`] variant, for programs, logs and the command line's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(&'static str);

impl ErrorCode {
    /// The code's text, such as `no_such_queue`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl Error {
    /// An [`Error::Invalid`]; a long value is shortened to 120 characters.
    pub fn invalid(what: impl Into<String>, value: impl Into<String>, problem: impl Into<String>) -> Self {
        let value: String = value.into();
        let value = match value.char_indices().nth(120) {
            Some((end, _)) => format!("{}…", &value[..end]),
            None => value,
        };
        Self::Invalid { what: what.into(), value, problem: problem.into() }
    }

    /// An [`Error::Corrupt`].
    pub fn corrupt(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), problem: problem.into() }
    }

    /// The stable name of the variant.
    pub const fn code(&self) -> ErrorCode {
        ErrorCode(match self {
            Self::Invalid { .. } => "invalid",
            Self::InvalidName(_) => "invalid_name",
            Self::Arguments { .. } => "arguments",
            Self::NoSuchQueue { .. } => "no_such_queue",
            Self::QueueFull { .. } => "queue_full",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::LeaseLost { .. } => "lease_lost",
            Self::UnsupportedUrl { .. } => "unsupported_url",
            Self::NotAStore { .. } => "not_a_store",
            Self::SchemaTooNew { .. } => "schema_too_new",
            Self::ReadOnly { .. } => "read_only",
            Self::StoreFull { .. } => "store_full",
            Self::Unavailable { .. } => "unavailable",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Corrupt { .. } => "corrupt",
            Self::Store { .. } => "store",
        })
    }

    /// Whether the same call can succeed later without a change by the caller.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::QueueFull { .. }
                | Self::ReadOnly { .. }
                | Self::StoreFull { .. }
                | Self::Unavailable { .. }
                | Self::DeadlinePassed { .. }
        )
    }

    /// The text with all its causes, for logs and people.
    pub fn full(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // `transparent` and formatted sources are in the text already.
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        text
    }
}

impl From<InvalidPriority> for Error {
    fn from(error: InvalidPriority) -> Self {
        Self::invalid("priority", error.value, "allowed are 0 to 9, higher first")
    }
}

impl From<InvalidDuration> for Error {
    fn from(error: InvalidDuration) -> Self {
        Self::invalid(
            "duration",
            error.value,
            format!("{}; write a number with its unit, such as 250ms, 30s, 10m or 1h 30m", error.problem),
        )
    }
}

impl From<InvalidRetry> for Error {
    fn from(error: InvalidRetry) -> Self {
        match error {
            InvalidRetry::Duration(error) => error.into(),
            InvalidRetry::Form { value, problem } => Self::invalid("retry policy", value, problem),
        }
    }
}

/// The candidate most like `wanted`, if one is like it at all: for "did you mean" in errors.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(wanted, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_queue_offers_the_nearest_name() {
        assert_eq!(nearest("hihg", ["high", "default", "low"]), Some("high"));
        assert_eq!(nearest("defualt", ["high", "default"]), Some("default"));
        assert_eq!(nearest("zzz", ["high", "default"]), None);
        let error =
            Error::NoSuchQueue { queue: QueueName::new("hihg").unwrap(), nearest: Some("high".into()) };
        assert_eq!(
            error.to_string(),
            "no such queue: hihg (did you mean high?); declare it with `celeriac queues declare hihg` or start a \
             worker that serves it"
        );
        assert_eq!(error.code().as_str(), "no_such_queue");
        assert!(!error.is_transient());
    }

    #[test]
    fn long_values_are_shortened() {
        let error = Error::invalid("priority", "9".repeat(5000), "too large");
        assert!(error.to_string().len() < 300);
    }
}
