use celeriac_core::Error;
use rusqlite::ErrorCode;

/// What stops a piece of work inside the store: a refusal of ours, or the driver.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The store itself failed. Everything of the transaction is undone.
    Sql(rusqlite::Error),
    /// The caller asked for something that is not allowed.
    Refused(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Fault {
    /// The public error, named after what the caller can do about it.
    pub(crate) fn into_error(self, store: &str, operation: &'static str) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) => translate(store, operation, &error),
        }
    }
}

/// Maps a driver's error. The only place that knows SQLite's codes.
pub(crate) fn translate(store: &str, operation: &'static str, error: &rusqlite::Error) -> Error {
    let store = store.to_owned();
    let source = || error.to_string().into();
    let Some(code) = error.sqlite_error_code() else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => {
                Error::corrupt(format!("a row of {store}"), error.to_string())
            }
            _ => Error::Store { store, operation, source: source() },
        };
    };
    match code {
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Error::ReadOnly { store, source: source() },
        ErrorCode::DiskFull => Error::StoreFull { store, source: source() },
        ErrorCode::NotADatabase => Error::NotAStore {
            store,
            problem: "the file is no SQLite database; choose another file name".to_owned(),
        },
        ErrorCode::DatabaseCorrupt => Error::corrupt(store, error.to_string()),
        ErrorCode::CannotOpen
        | ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::OperationInterrupted
        | ErrorCode::SystemIoFailure => Error::Unavailable { store, operation, source: source() },
        _ => Error::Store { store, operation, source: source() },
    }
}
