use std::time::Duration;

use celeriac::postgres::tokio_postgres::{Config, NoTls};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

use crate::Failure;

/// One URL for the orders and for their jobs: a transaction reaches both only in the same database.
pub(crate) fn url() -> Result<String, Failure> {
    std::env::var("DATABASE_URL")
        .map_err(|_| "name the database in DATABASE_URL, such as postgres://me@localhost/shop".into())
}

/// The service's own connections; Celeriac keeps its own.
pub(crate) fn pool(url: &str) -> Result<Pool, Failure> {
    let config: Config = url.parse()?;
    // On one machine. Over a network it would be a connector with certificates: `tokio-postgres-rustls`.
    let manager =
        Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let wait = Some(Duration::from_secs(5));
    let pool = Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        .max_size(8)
        .wait_timeout(wait)
        .create_timeout(wait)
        .build()?;
    Ok(pool)
}

/// Makes the tables; of several that start at once one does it.
pub(crate) async fn prepare(pool: &Pool) -> Result<(), Failure> {
    const TABLES: &str = "
        begin;
        select pg_advisory_xact_lock(7001);
        create table if not exists stock (item text primary key, available int not null check (available >= 0));
        create table if not exists orders (
            id bigint generated always as identity primary key,
            item text not null references stock,
            quantity int not null check (quantity > 0),
            job uuid,
            shipped_at timestamptz
        );
        insert into stock values ('lamp', 100), ('chair', 3) on conflict do nothing;
        commit;";
    pool.get().await?.batch_execute(TABLES).await?;
    Ok(())
}
