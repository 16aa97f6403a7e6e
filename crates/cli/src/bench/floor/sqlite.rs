use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use celeriac_sqlite::Synchronous;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{DURATION, FILL, Load, Part, Rate};
use crate::failure::Failure;
use crate::store::Store;

/// A file of its own, one thread.
#[derive(Debug)]
pub(crate) struct SqliteFloor {
    path: PathBuf,
    synchronous: &'static str,
}

impl SqliteFloor {
    /// The floor of a store, in a file beside it and as durable.
    pub(crate) fn beside(store: &Store) -> Result<Self, Failure> {
        let Some(file) = store.file()? else {
            return Err(Failure::usage(format!("the floor of {} cannot be measured", store.engine()?)));
        };
        let mut name = file.into_os_string();
        name.push(".floor");
        let synchronous = match store.sqlite()?.map(|options| options.synchronous) {
            Some(Synchronous::Normal) => "normal",
            _ => "full",
        };
        Ok(Self { path: name.into(), synchronous })
    }

    /// Measures `part` on a thread of its own, in a fresh file that is removed afterwards.
    pub(crate) async fn measure(&self, part: Part, load: Load) -> Result<Rate, Failure> {
        let (path, synchronous) = (self.path.clone(), self.synchronous);
        tokio::task::spawn_blocking(move || {
            let file = FloorFile::create(path)?;
            let mut table = FloorTable::open(&file.0, synchronous)?;
            match part {
                Part::Insert => table.insert(load.batch, &load.payload),
                Part::InsertAndDelete => table.insert_and_delete(load.batch, &load.payload),
                Part::InsertSingly => table.insert(1, &load.payload),
                Part::ReadAndDelete => table.read_and_delete(load.jobs, load.batch, &load.payload),
            }
        })
        .await
        .map_err(|error| Failure::failed("bench", format!("the floor's thread failed: {error}")))?
        .map_err(|error: FloorError| Failure::failed("bench", format!("the floor failed: {}", error.0)))
    }
}

/// The file, gone when this is dropped.
struct FloorFile(PathBuf);

struct FloorTable(Connection);

/// Of the driver, or of the file system.
struct FloorError(String);

impl From<rusqlite::Error> for FloorError {
    fn from(error: rusqlite::Error) -> Self {
        Self(error.to_string())
    }
}

impl FloorFile {
    fn create(path: PathBuf) -> Result<Self, FloorError> {
        let file = Self(path);
        file.remove();
        if file.0.exists() {
            return Err(FloorError(format!("{} is in the way", file.0.display())));
        }
        Ok(file)
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.0.clone().into_os_string();
            name.push(suffix);
            let _ = fs::remove_file(name);
        }
    }
}

impl Drop for FloorFile {
    fn drop(&mut self) {
        self.remove();
    }
}

impl FloorTable {
    fn open(path: &Path, synchronous: &str) -> Result<Self, FloorError> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        // As the engine has it.
        connection.pragma_update(None, "cache_size", -16_384)?;
        connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
        connection
            .execute_batch("create table floor (id integer primary key, payload blob not null) strict")?;
        let mut table = Self(connection);
        table.lengthen_log()?;
        Ok(table)
    }

    /// Makes the write-ahead log as long as it ever gets and starts it anew. A commit that makes the file
    /// longer waits for the file system's own log too, which in a store that has run for a while none does.
    fn lengthen_log(&mut self) -> Result<(), FloorError> {
        let transaction = self.begin()?;
        {
            let mut statement = transaction.prepare("insert into floor (payload) values (zeroblob(4000))")?;
            for _ in 0..LOG_PAGES {
                statement.execute([])?;
            }
        }
        transaction.commit()?;
        self.0.execute_batch("delete from floor")?;
        // The first row of the answer says whether somebody was in the way; nobody else has this file.
        self.0.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(()))?;
        Ok(())
    }

    fn insert(&mut self, batch: usize, payload: &[u8]) -> Result<Rate, FloorError> {
        let mut next = 0;
        timed(batch, || self.insert_batch(&mut next, batch, payload))
    }

    fn insert_and_delete(&mut self, batch: usize, payload: &[u8]) -> Result<Rate, FloorError> {
        let mut next = 0;
        timed(batch, || {
            let first = next;
            self.insert_batch(&mut next, batch, payload)?;
            let transaction = self.begin()?;
            delete(&transaction, first, next)?;
            transaction.commit()?;
            Ok(())
        })
    }

    fn read_and_delete(&mut self, rows: u64, batch: usize, payload: &[u8]) -> Result<Rate, FloorError> {
        let mut next = 0;
        while u64::try_from(next).is_ok_and(|stored| stored < rows) {
            self.insert_batch(&mut next, FILL, payload)?;
        }
        let (start, mut deleted, mut times) = (Instant::now(), 0_u64, Vec::new());
        while deleted < rows {
            let one = Instant::now();
            let transaction = self.begin()?;
            let mut last = None;
            let mut read = 0_u64;
            {
                let mut statement =
                    transaction.prepare_cached("select id, payload from floor order by id limit ?1")?;
                let mut found = statement.query([i64::try_from(batch).unwrap_or(i64::MAX)])?;
                let mut first = None;
                while let Some(row) = found.next()? {
                    let id: i64 = row.get(0)?;
                    std::hint::black_box(row.get_ref(1)?.as_blob().map_or(0, <[u8]>::len));
                    first = first.or(Some(id));
                    last = Some((first.unwrap_or(id), id));
                    read += 1;
                }
            }
            let Some((first, last)) = last else { break };
            delete(&transaction, first, last + 1)?;
            transaction.commit()?;
            deleted += read;
            times.push(one.elapsed());
        }
        Ok(Rate::new(deleted, start.elapsed(), &mut times))
    }

    fn begin(&mut self) -> Result<Transaction<'_>, FloorError> {
        Ok(self.0.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    fn insert_batch(&mut self, next: &mut i64, batch: usize, payload: &[u8]) -> Result<(), FloorError> {
        let transaction = self.begin()?;
        {
            let mut statement =
                transaction.prepare_cached("insert into floor (id, payload) values (?1, ?2)")?;
            for _ in 0..batch {
                statement.execute(params![*next, payload])?;
                *next += 1;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

fn delete(transaction: &Transaction<'_>, first: i64, end: i64) -> Result<(), FloorError> {
    transaction
        .prepare_cached("delete from floor where id >= ?1 and id < ?2")?
        .execute(params![first, end])?;
    Ok(())
}

/// Repeats a step of `batch` jobs for [`DURATION`].
fn timed(batch: usize, mut step: impl FnMut() -> Result<(), FloorError>) -> Result<Rate, FloorError> {
    let (start, mut jobs, mut times) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < DURATION {
        let one = Instant::now();
        step()?;
        jobs += batch as u64;
        times.push(one.elapsed());
    }
    Ok(Rate::new(jobs, start.elapsed(), &mut times))
}

/// The pages that the log holds before it is written into the file and starts anew, and some more.
const LOG_PAGES: usize = 4_500;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_rate_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db.floor");
        {
            let file = FloorFile::create(path).unwrap_or_else(|error| panic!("{}", error.0));
            let mut table = FloorTable::open(&file.0, "normal").unwrap_or_else(|error| panic!("{}", error.0));
            let rate =
                table.read_and_delete(2_500, 100, b"abc").unwrap_or_else(|error| panic!("{}", error.0));
            assert!(rate.jobs_per_s > 0.0 && rate.p50_ms > 0.0);
            let left: i64 = table.0.query_row("select count(*) from floor", [], |row| row.get(0)).unwrap();
            assert_eq!(left, 500, "3,000 rows were stored and 2,500 deleted");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
