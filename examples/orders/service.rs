use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use celeriac::Client;
use deadpool_postgres::Pool;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::shipping::ship;

#[derive(Clone)]
struct Shop {
    database: Pool,
    celeriac: Client,
}

#[derive(Deserialize)]
struct NewOrder {
    item: String,
    quantity: i32,
}

#[derive(Serialize)]
struct Order {
    id: i64,
    item: String,
    quantity: i32,
    shipped: bool,
}

pub(crate) fn routes(database: Pool, celeriac: Client) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{id}", get(show))
        .with_state(Shop { database, celeriac })
}

/// The order, its job and the stock change together, or not at all.
async fn place(State(shop): State<Shop>, Json(new): Json<NewOrder>) -> Result<Response, Refusal> {
    if !(1..=1_000).contains(&new.quantity) {
        return Err(Refusal::Wrong("the quantity is 1 to 1000"));
    }
    let mut connection = shop.database.get().await?;
    let transaction = connection.transaction().await?;
    let known = transaction.query_opt("select 1 from stock where item = $1", &[&new.item]).await?;
    if known.is_none() {
        return Err(Refusal::Wrong("no such item"));
    }
    let order: i64 = transaction
        .query_one(
            "insert into orders (item, quantity) values ($1, $2) returning id",
            &[&new.item, &new.quantity],
        )
        .await?
        .get(0);
    let job = shop.celeriac.enqueue_in(&transaction, ship::call(order)).await?.id();
    let taken = transaction
        .execute(
            "update stock set available = available - $2 where item = $1 and available >= $2",
            &[&new.item, &new.quantity],
        )
        .await?;
    if taken == 0 {
        // The transaction is rolled back where it is dropped: neither the order nor its job ever were.
        return Err(Refusal::SoldOut);
    }
    transaction.commit().await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": order, "job": job.to_string() }))).into_response())
}

async fn show(State(shop): State<Shop>, Path(id): Path<i64>) -> Result<Json<Order>, Refusal> {
    let row = shop
        .database
        .get()
        .await?
        .query_opt("select item, quantity, shipped_at is not null from orders where id = $1", &[&id])
        .await?;
    let row = row.ok_or(Refusal::Unknown)?;
    Ok(Json(Order { id, item: row.get(0), quantity: row.get(1), shipped: row.get(2) }))
}

/// Why a request was not served.
enum Refusal {
    SoldOut,
    Unknown,
    Wrong(&'static str),
    /// Logged here and not told to strangers.
    Broken(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::SoldOut => (StatusCode::CONFLICT, "sold out"),
            Self::Unknown => (StatusCode::NOT_FOUND, "no such order"),
            Self::Wrong(text) => (StatusCode::UNPROCESSABLE_ENTITY, text),
            Self::Broken(error) => {
                eprintln!("error: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "try again later")
            }
        };
        (status, Json(json!({ "error": text }))).into_response()
    }
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self::Broken(text)
    }
}
