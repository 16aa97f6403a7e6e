use celeriac_postgres::tokio_postgres::Client;
use rusqlite::Connection;

use super::server::refused;
use crate::failure::Failure;
use crate::store::Store;

/// A session that keeps looking at the database as it was: a report, a backup, a forgotten `psql`. While it does, nothing
/// that is deleted can be cleared away.
pub(crate) enum Snapshot {
    Postgres(Client),
    Sqlite(Connection),
}

impl Snapshot {
    pub(crate) async fn hold(store: &Store) -> Result<Self, Failure> {
        if let Some(options) = store.postgres()? {
            let client = options.connect().await?;
            // The store's own sessions may not idle in a transaction for long; this one is here to do that.
            client
                .batch_execute(
                    "begin isolation level repeatable read read only; \
                     set local idle_in_transaction_session_timeout = 0; select count(*) from pg_class",
                )
                .await
                .map_err(refused)?;
            return Ok(Self::Postgres(client));
        }
        let path = store.file()?.ok_or_else(|| Failure::usage("a store in memory has no other sessions"))?;
        let open = || {
            let connection = Connection::open(path)?;
            connection.execute_batch("begin")?;
            connection.query_row("select count(*) from sqlite_schema", [], |_| Ok(()))?;
            Ok(connection)
        };
        open().map(Self::Sqlite).map_err(failed)
    }

    /// Ends the session; an error if it had ended before.
    pub(crate) async fn release(self) -> Result<(), Failure> {
        match self {
            Self::Postgres(client) => client.batch_execute("commit").await.map_err(refused),
            Self::Sqlite(connection) => connection.execute_batch("commit").map_err(failed),
        }
    }
}

fn failed(error: rusqlite::Error) -> Failure {
    Failure::failed("bench", format!("the session with the old snapshot failed: {error}"))
}
