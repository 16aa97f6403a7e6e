use std::fs::OpenOptions;
use std::io::ErrorKind;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use celeriac_core::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::fault::{Fault, translate};
use crate::options::{Place, SqliteOptions, Synchronous};

/// Opens one connection with the settings that every connection of ours has. The only place that opens any.
pub(crate) fn open(options: &SqliteOptions) -> Result<Connection, Fault> {
    let mut connection = match &options.place {
        Place::Memory => Connection::open_in_memory()?,
        Place::File(path) => {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
                && !folder.is_dir()
            {
                let problem = format!("the folder {} does not exist; create it first", folder.display());
                return Err(Error::NotAStore { store: options.to_string(), problem }.into());
            }
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags).map_err(|error| {
                // SQLite says the same of a file that may not be opened and of one that cannot be.
                may_not_write(path, options).map_or_else(|| Fault::from(error), Fault::from)
            })?;
            // It falls back to reading by itself, and the first write would fail in one of many ways.
            if connection.is_readonly(rusqlite::MAIN_DB)? {
                let source = "it can be opened for reading only".into();
                return Err(Error::ReadOnly { store: options.to_string(), source }.into());
            }
            connection
        }
    };
    wait_when_busy(&mut connection, options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(128);
    // The planner's stability guarantee. Without it a statement with a range is planned anew for each bound value:
    // measured at a thirtieth of all instructions of a drain.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if options.place != Place::Memory {
        use_wal(&connection, options)?;
    }
    connection.pragma_update(None, "synchronous", options.synchronous.word())?;
    // Room for the hot end of a deep queue; the default of 2 MiB thrashes with large payloads.
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // A checkpoint stalls the thread that commits. Each moves more pages at once when they come less often.
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    Ok(connection)
}

/// The file as it was when it was opened.
///
/// A file that is removed or replaced under its users goes on working for those who have it open, and for nobody
/// else: what they store there is lost. So every call looks whether the path still leads to the same file.
#[derive(Clone, Debug)]
pub(crate) struct OpenedFile {
    path: Option<PathBuf>,
    identity: Option<(u64, u64)>,
}

impl OpenedFile {
    pub(crate) fn of(options: &SqliteOptions) -> Self {
        let path = match &options.place {
            Place::File(path) => Some(path.clone()),
            Place::Memory => None,
        };
        let identity = path.as_deref().and_then(identity);
        Self { path, identity }
    }

    /// Refuses when the path leads elsewhere by now.
    pub(crate) fn check(&self, store: &str) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        if self.identity == identity(path) {
            return Ok(());
        }
        let problem = "the file was removed or replaced while this program had it open; restart the program";
        Err(Error::NotAStore { store: store.to_owned(), problem: problem.to_owned() })
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Other systems do not let a file be removed while it is open.
#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<(u64, u64)> {
    None
}

impl Synchronous {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

/// The error to report if the file, or its folder, may not be written.
fn may_not_write(path: &Path, options: &SqliteOptions) -> Option<Error> {
    let denied = OpenOptions::new().write(true).create(true).truncate(false).open(path).err()?;
    let read_only = matches!(denied.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
    read_only.then(|| Error::ReadOnly { store: options.to_string(), source: denied.into() })
}

/// SQLite's own back-off sleeps up to 100 ms, in which a lock that is held for a millisecond at a time is
/// never met free. Short sleeps give every process its turn.
fn wait_when_busy(connection: &mut Connection, timeout: Duration) -> Result<(), Fault> {
    let mut started = Instant::now();
    connection.busy_handler(Some(move |count: i32| {
        if count == 0 {
            started = Instant::now();
        }
        let waited = started.elapsed();
        let pause = if waited < Duration::from_millis(20) { 40 } else { 500 };
        std::thread::sleep(Duration::from_micros(pause));
        waited < timeout
    }))?;
    Ok(())
}

/// Changing the journal mode does not ask the busy handler, so a start beside other starts is repeated here.
fn use_wal(connection: &Connection, options: &SqliteOptions) -> Result<(), Fault> {
    let started = Instant::now();
    loop {
        let mode = connection
            .pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))
            .and_then(|mode| {
                if mode == "wal" {
                    return Ok(mode);
                }
                connection.query_row("pragma journal_mode = wal", [], |row| row.get(0))
            });
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let problem = format!(
                    "its journal mode stays {mode:?} where wal is needed; put it on a local disk, not on a network \
                     file system"
                );
                return Err(Error::NotAStore { store: options.to_string(), problem }.into());
            }
            Err(error) => {
                let error = translate(&options.to_string(), "open the file", &error);
                let busy = matches!(error, Error::Unavailable { .. });
                if !busy || started.elapsed() > options.busy_timeout {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}
