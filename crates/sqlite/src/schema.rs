use celeriac_core::{Error, QueueName, QueueSettings, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::fault::Fault;
use crate::options::{Place, SqliteOptions};
use crate::state::QueueState;

/// Marks a file as a Celeriac store (`PRAGMA application_id`): "CELR".
pub(crate) const APPLICATION_ID: i64 = 0x4345_4C52;
/// The newest schema that this program knows (`PRAGMA user_version`).
pub(crate) const VERSION: i64 = 4;

/// Each entry takes the schema from its index to the next version. Only additive: an older program of the
/// previous version may still be running.
const MIGRATIONS: [&str; VERSION as usize] = [V1, V2, V3, V4];

// A job's row has the same columns in every room; `key` orders a room.
//
// In `jobs` the key is queue << 48 | lane << 44 | seq: one B-tree, and a claim is a range scan of it. Rows are
// never updated there. Where a job stands (after the cursor, in a hole, in a claim) is written once per batch,
// in `queues` and `claims`.
//
// `jobs` alone is not strict: a type check may abort a statement, and one of several rows that may abort copies every
// page before it changes it. Measured at a third of the instructions of an enqueue.
const V1: &str = "
create table queues (
  queue integer primary key,
  name text not null unique,
  settings text not null,
  paused integer not null default 0,
  lanes blob not null,
  holes blob not null,
  ready integer not null default 0,
  suspects integer not null default 0,
  held integer not null default 0,
  scheduled integer not null default 0,
  parked integer not null default 0,
  dead integer not null default 0,
  enqueued integer not null default 0,
  done integer not null default 0,
  retried integer not null default 0,
  buried integer not null default 0,
  redelivered integer not null default 0,
  cancelled integer not null default 0,
  dropped integer not null default 0
) strict;

create table jobs (
  key integer primary key,
  id blob not null,
  task text not null,
  payload blob not null,
  attempt integer not null,
  deliveries integer not null,
  priority integer not null,
  enqueued_at integer not null,
  due_at integer not null,
  expires_at integer,
  extras blob not null
);
create index jobs_id on jobs (id);
create index jobs_expires on jobs (expires_at) where expires_at is not null;

create table scheduled (
  key integer primary key autoincrement,
  id blob not null,
  task text not null,
  payload blob not null,
  attempt integer not null,
  deliveries integer not null,
  priority integer not null,
  enqueued_at integer not null,
  due_at integer not null,
  expires_at integer,
  extras blob not null,
  queue integer not null,
  since integer not null
) strict;
create index scheduled_due on scheduled (due_at);
create index scheduled_id on scheduled (id);

create table parked (
  key integer primary key autoincrement,
  id blob not null,
  task text not null,
  payload blob not null,
  attempt integer not null,
  deliveries integer not null,
  priority integer not null,
  enqueued_at integer not null,
  due_at integer not null,
  expires_at integer,
  extras blob not null,
  queue integer not null,
  since integer not null,
  waits_for text not null
) strict;
create index parked_waits on parked (queue, waits_for);
create index parked_id on parked (id);
create index parked_expires on parked (expires_at) where expires_at is not null;
create table parked_counts (waits_for text primary key, jobs integer not null) strict, without rowid;
create trigger parked_came after insert on parked begin
  insert into parked_counts (waits_for, jobs) values (new.waits_for, 1)
    on conflict (waits_for) do update set jobs = jobs + 1;
end;
create trigger parked_went after delete on parked begin
  update parked_counts set jobs = jobs - 1 where waits_for = old.waits_for;
  delete from parked_counts where waits_for = old.waits_for and jobs <= 0;
end;

create table dead (
  key integer primary key autoincrement,
  id blob not null,
  task text not null,
  payload blob not null,
  attempt integer not null,
  deliveries integer not null,
  priority integer not null,
  enqueued_at integer not null,
  due_at integer not null,
  expires_at integer,
  extras blob not null,
  queue integer not null,
  since integer not null,
  reason text not null
) strict;
create index dead_since on dead (queue, since);
create index dead_id on dead (id);

create table claims (
  claim integer primary key autoincrement,
  worker blob not null,
  queue integer not null,
  keys blob not null,
  acknowledged blob not null
) strict;
create index claims_worker on claims (worker);

create table workers (
  worker blob primary key,
  label text not null,
  queues text not null,
  tasks text not null,
  concurrency integer not null,
  started_at integer not null,
  lease_until integer not null
) strict, without rowid;

create table tasks (name text primary key, info text not null, seen_at integer not null) strict, without rowid;
create table cancellations (id blob primary key, asked_at integer not null) strict, without rowid;
create table remembered (id blob primary key, at integer not null) strict, without rowid;
create index remembered_at on remembered (at);
";

/// When the full check is due; 0 before the first maintenance.
const V2: &str = "
create table patrol (id integer primary key check (id = 1), due_at integer not null, found integer not null) strict;
insert into patrol (id, due_at, found) values (1, 0, 0);
";

/// Texts about the store that all its users share: see `sample.rs`.
const V3: &str = "
create table samples (name text primary key, at integer not null, body text not null) strict, without rowid;
";

/// Jobs that are done, of queues that keep a history: a row for each batch, `ids` one after the other, between `low` and
/// `high`.
const V4: &str = "
create table history (
  n integer primary key,
  at integer not null,
  queue integer not null,
  worker text not null,
  low blob not null,
  high blob not null,
  ids blob not null
) strict;
create index history_high on history (high);
create index history_at on history (queue, at);
";

/// The newest schema that this program knows.
pub const SCHEMA_VERSION: i64 = VERSION;

/// The schema version of a store; 0 if there is none. Opens the file for reading only, and makes none.
///
/// # Errors
/// `SchemaTooNew`, `NotAStore` for a file of another kind, and those of a file that cannot be read.
pub fn schema_version(options: &SqliteOptions) -> Result<i64> {
    let store = options.to_string();
    let Place::File(path) = &options.place else { return Ok(0) };
    if !path.exists() {
        return Ok(0);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let found = Connection::open_with_flags(path, flags).map_err(Fault::from).and_then(|connection| {
        connection.busy_timeout(options.busy_timeout)?;
        version(&connection, &store)
    });
    found.map_err(|fault| fault.into_error(&store, "read the schema's version"))
}

/// The SQL that takes a schema of version `from` (0: there is none) to the newest, for people who want to read it
/// first. The store's own migration does the same in one transaction and also declares the queue `default`.
pub fn migration_sql(from: i64) -> String {
    let mut text: String =
        MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)).map(|step| step.trim_start()).collect();
    if from == 0 {
        text.push_str(&format!("pragma application_id = {APPLICATION_ID};\n"));
    }
    if from < VERSION {
        text.push_str(&format!("pragma user_version = {VERSION};\n"));
    }
    text
}

/// Creates the schema, or takes it to [`VERSION`], under the write lock: of several programs one does it and
/// the others find it done.
pub(crate) fn migrate(connection: &mut Connection, store: &str) -> Result<(), Fault> {
    // One snapshot: between two looks another program may have made the schema, and then neither is true.
    let seen = version(&*connection.transaction()?, store)?;
    if seen == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction, store)?;
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    if found == 0 {
        let state = QueueState::new(&QueueSettings::default());
        state.insert(&transaction, 1, &QueueName::default_queue())?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    if found < VERSION {
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The schema version of the file; 0 for an empty one.
fn version(connection: &Connection, store: &str) -> Result<i64, Fault> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application == APPLICATION_ID {
        if version > VERSION {
            return Err(
                Error::SchemaTooNew { store: store.to_owned(), found: version, supported: VERSION }.into()
            );
        }
        return Ok(version);
    }
    let tables: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 || application != 0 {
        return Err(Error::NotAStore {
            store: store.to_owned(),
            problem: "it is a SQLite database of another program; choose another file name".to_owned(),
        }
        .into());
    }
    Ok(0)
}
