use celeriac_postgres::PostgresOptions;
use celeriac_postgres::tokio_postgres::Client;

use super::server::refused;
use crate::failure::Failure;

/// A schema of the benchmark's own beside the store's, for tables to compare with.
pub(crate) struct Scratch {
    client: Client,
    schema: String,
}

impl Scratch {
    /// Makes the schema and runs `sql` in it; `@.` stands for its name. What an earlier run left is removed first.
    pub(crate) async fn create(options: &PostgresOptions, sql: &str) -> Result<Self, Failure> {
        let scratch =
            Self { client: options.connect().await?, schema: format!("{}_bench", options.schema()) };
        scratch.drop_tables().await?;
        scratch
            .client
            .batch_execute(&format!("create schema if not exists \"{}\"", scratch.schema))
            .await
            .map_err(refused)?;
        scratch.client.batch_execute(&scratch.named(sql)).await.map_err(refused)?;
        Ok(scratch)
    }

    /// `sql` with the schema's name in it.
    pub(crate) fn named(&self, sql: &str) -> String {
        sql.replace("@.", &format!("\"{}\".", self.schema))
    }

    pub(crate) async fn remove(self) -> Result<(), Failure> {
        self.drop_tables().await?;
        // Only if nothing of others is in it.
        let _ = self.client.batch_execute(&format!("drop schema \"{}\"", self.schema)).await;
        Ok(())
    }

    async fn drop_tables(&self) -> Result<(), Failure> {
        self.client
            .batch_execute(&self.named("drop table if exists @.floor; drop table if exists @.usual"))
            .await
            .map_err(refused)
    }
}
