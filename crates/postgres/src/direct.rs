use celeriac_core::Result;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::fault::Fault;
use crate::options::PostgresOptions;
use crate::store::session_config;
use crate::tls::connector;

impl PostgresOptions {
    /// Opens one connection with these settings for statements of your own: the same hosts, TLS and deadlines as the
    /// store's. A task of the runtime drives it until the client is dropped.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use celeriac_postgres::PostgresOptions;
    ///
    /// let options = PostgresOptions::from_url("postgres://app@db.example/shop?sslmode=verify-full")?;
    /// let database = options.connect().await?;
    /// database.execute("insert into orders default values", &[]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached, `UnsupportedUrl` for certificates that cannot be read.
    pub async fn connect(&self) -> Result<Client> {
        let tls = connector(self)?;
        let config = session_config(&self.config, self.pooler, self.deadline);
        let connected = match timeout(self.deadline, config.connect(tls)).await {
            Ok(connected) => connected.map_err(Fault::from),
            Err(_) => Err(Fault::Late(self.deadline)),
        };
        let (client, connection) =
            connected.map_err(|fault| fault.into_error(&self.shown, "connect to the database"))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whoever uses the client gets an error of their own; this is for the log.
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok(client)
    }

    /// The schema of the store.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}
