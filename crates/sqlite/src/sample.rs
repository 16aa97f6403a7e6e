//! The figures that the store keeps of itself: one row, written by whoever first finds it too old.

use std::path::Path;
use std::time::Duration;

use celeriac_core::{Sample, Sampled, StorageFigures, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::Fault;
use crate::inspect;
use crate::transaction::Transaction;

/// The kept sample, if it is younger than `max_age`.
pub(crate) fn kept(
    connection: &Connection,
    max_age: Duration,
    now: Timestamp,
) -> Result<Option<Sampled>, Fault> {
    let found = last(connection)?;
    let fresh = found.taken_at.is_some_and(|taken| now.since(taken) < max_age);
    Ok(fresh.then(|| Sampled::new(found, now)))
}

/// Takes a sample and keeps it, unless another process was faster. `log` is the file of the write-ahead log.
pub(crate) fn take(
    transaction: &mut Transaction<'_>,
    max_age: Duration,
    log: Option<&Path>,
) -> Result<Sampled, Fault> {
    let now = transaction.now;
    if let Some(sampled) = kept(transaction.connection, max_age, now)? {
        return Ok(sampled);
    }
    transaction.flush()?;
    let connection = transaction.connection;
    let stats = inspect::stats(connection, now)?;
    let sample = Sample::take(&stats, storage(connection, log)?, &last(connection)?, now);
    connection
        .prepare_cached(
            "insert into samples (name, at, body) values ('store', ?1, ?2) \
             on conflict (name) do update set at = excluded.at, body = excluded.body",
        )?
        .execute(params![now.as_micros(), sample.to_text()])?;
    Ok(Sampled::new(sample, now))
}

fn last(connection: &Connection) -> Result<Sample, Fault> {
    let body: Option<String> = connection
        .prepare_cached("select body from samples where name = 'store'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(body.map(|body| Sample::from_text(&body)).unwrap_or_default())
}

/// Read from the header of the file: no page is looked at.
fn storage(connection: &Connection, log: Option<&Path>) -> Result<StorageFigures, Fault> {
    let number = |pragma: &str| -> Result<u64, Fault> {
        let number: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
        Ok(u64::try_from(number).unwrap_or(0))
    };
    let page = number("page_size")?;
    let mut figures = StorageFigures::default();
    figures.bytes.insert("file".to_owned(), number("page_count")?.saturating_mul(page));
    figures.bytes.insert("free".to_owned(), number("freelist_count")?.saturating_mul(page));
    // It may not be there yet, or any more.
    if let Some(size) = log.and_then(|log| log.metadata().ok()).map(|metadata| metadata.len()) {
        figures.bytes.insert("log".to_owned(), size);
    }
    Ok(figures)
}
