use std::time::Duration;

use celeriac_core::{Error, TaskName};
use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::DbError;

/// What stops a call inside the engine: a refusal that has its own meaning, or the driver.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The caller asked for something that is not allowed.
    Refused(Error),
    /// `CJ001`: the queue's name or number.
    NoSuchQueue,
    /// `CJ002`: the queue's name, its length, its limit.
    QueueFull(String, u64, u64),
    /// `CJ003`: the task's name, the payload's size, the limit.
    PayloadTooLarge(String, u64, u64),
    /// `CJ004`.
    LeaseLost,
    /// `CJ010`: a verdict of the batch is stale.
    Stale,
    /// The driver's error.
    Driver(tokio_postgres::Error),
    /// The pool gave no connection.
    Pool(PoolError),
    /// The deadline passed.
    Late(Duration),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Self::Pool(other),
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(told) = error.as_db_error() else { return Self::Driver(error) };
        let numbers = |hint: Option<&str>| {
            let mut parts = hint.unwrap_or_default().split(' ').filter_map(|part| part.parse().ok());
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
        };
        match told.code().code() {
            "CJ001" => Self::NoSuchQueue,
            "CJ002" => {
                let (length, limit) = numbers(told.hint());
                Self::QueueFull(told.detail().unwrap_or_default().to_owned(), length, limit)
            }
            "CJ004" => Self::LeaseLost,
            "CJ003" => {
                let (size, limit) = numbers(told.hint());
                Self::PayloadTooLarge(told.detail().unwrap_or_default().to_owned(), size, limit)
            }
            "CJ005" | "CJ006" => Self::Refused(Error::invalid(
                told.message(),
                told.detail().unwrap_or_default(),
                told.hint().unwrap_or_default(),
            )),
            "CJ010" => Self::Stale,
            "CJ011" => Self::Refused(Error::invalid(
                "transaction",
                "the worker's",
                format!("{}: leave commit and rollback to the worker", told.message()),
            )),
            "25P02" => Self::Refused(Error::invalid(
                "transaction",
                "failed",
                "one of its statements failed before, so nothing of it can be committed; return that error, or use a \
                 savepoint",
            )),
            _ => Self::Driver(error),
        }
    }
}

impl Fault {
    /// Whether the statement was undone for a reason that lies in its neighbours: it may be sent again at once.
    pub(crate) fn is_collision(&self) -> bool {
        matches!(self.code(), Some("40001" | "40P01"))
    }

    /// Whether connections to this server are of no use any more, not only this one.
    pub(crate) fn spoils_the_pool(&self) -> bool {
        self.code().is_some_and(|code| {
            matches!(code, "25006" | "57P01" | "57P02" | "57P03") || code.starts_with("08")
        })
    }

    /// Whether the connection must not be used again.
    pub(crate) fn spoils_the_connection(&self) -> bool {
        match self {
            Self::Late(_) => true,
            Self::Driver(error) => error.as_db_error().is_none() || self.spoils_the_pool(),
            _ => false,
        }
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Driver(error) => error.code().map(tokio_postgres::error::SqlState::code),
            _ => None,
        }
    }

    /// The public error, named after what the caller can do about it. The only place that knows SQLSTATEs.
    pub(crate) fn into_error(self, store: &str, operation: &'static str) -> Error {
        let store = store.to_owned();
        match self {
            Self::Refused(error) => error,
            Self::PayloadTooLarge(task, size, limit) => match TaskName::new(task) {
                Ok(task) => Error::PayloadTooLarge { task, size: whole(size), limit: whole(limit) },
                Err(error) => error.into(),
            },
            Self::Late(after) => Error::DeadlinePassed { store, operation, after },
            Self::Pool(PoolError::Timeout(TimeoutType::Wait)) => Error::Unavailable {
                store,
                operation,
                source: "every connection of the pool is in use; raise pool_size".into(),
            },
            Self::Pool(error) => Error::Unavailable { store, operation, source: error.to_string().into() },
            Self::Driver(error) => {
                let Some(told) = error.as_db_error() else {
                    return Error::Unavailable { store, operation, source: chain(&error).into() };
                };
                let source = text(told).into();
                match told.code().code() {
                    "25006" => Error::ReadOnly { store, source },
                    "53100" => Error::StoreFull { store, source },
                    "57014" => Error::DeadlinePassed { store, operation, after: Duration::ZERO },
                    "3F000" | "42P01" | "42883" => {
                        Error::NotAStore { store, problem: format!("{}; run `celeriac migrate`", text(told)) }
                    }
                    "55P03" | "40001" | "40P01" => Error::Unavailable { store, operation, source },
                    code if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
                        Error::Unavailable { store, operation, source }
                    }
                    code if code.starts_with("XX") => Error::corrupt(store, text(told)),
                    _ => Error::Store { store, operation, source },
                }
            }
            // Those that know the caller's words replace these.
            Self::NoSuchQueue | Self::QueueFull(..) | Self::LeaseLost | Self::Stale => {
                Error::Store { store, operation, source: format!("{self:?}").into() }
            }
        }
    }
}

/// The driver prints "db error" and no more.
fn text(told: &DbError) -> String {
    let mut text = format!("{} (SQLSTATE {})", told.message(), told.code().code());
    for part in [told.detail(), told.hint(), told.where_()].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(part);
    }
    text
}

fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
