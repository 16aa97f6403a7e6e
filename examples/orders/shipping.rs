use celeriac::prelude::*;
use deadpool_postgres::Pool;

/// Ships an order. It may run twice, as any job: the condition makes the second run do nothing.
#[task(queue = "shipping", timeout = "30s", retry = "1s, 10s, 1m, 10m")]
pub(crate) async fn ship(order: i64, database: State<Pool>) -> Result<(), TaskError> {
    let database = database.get().await?;
    let shipped = database
        .execute("update orders set shipped_at = now() where id = $1 and shipped_at is null", &[&order])
        .await?;
    println!("order {order}: {}", if shipped == 1 { "shipped" } else { "was shipped before" });
    Ok(())
}
