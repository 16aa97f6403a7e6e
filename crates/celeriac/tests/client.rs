//! What a service sees of Celeriac: the client, over the reference broker and over SQLite.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use celeriac::core::{Cancelled, QueueChange, QueueName, Room, Timestamp};
use celeriac::prelude::*;
use celeriac::{Broker, Client, Enqueued, ErrorCode};
use celeriac_testkit::ReferenceBroker;

#[task(queue = "media", priority = 3)]
async fn thumbnail(path: String, width: u32) {
    let _ = (path, width);
}

#[task]
async fn blob(bytes: Vec<u8>) {
    let _ = bytes;
}

fn code<T: std::fmt::Debug>(result: celeriac::Result<T>) -> (ErrorCode, String) {
    let error = result.unwrap_err();
    (error.code(), error.full())
}

async fn media() -> Client {
    let broker: Arc<dyn Broker> = Arc::new(ReferenceBroker::new());
    broker.declare(QueueName::new("media").unwrap(), QueueChange::default()).await.unwrap();
    Client::new(broker)
}

#[tokio::test]
async fn an_enqueued_call_is_a_job_with_the_settings_of_its_task() {
    let client = media().await;
    let id = client.enqueue(thumbnail::call("a.png", 200)).await.unwrap().id();
    let found = client.job(id).await.unwrap().unwrap();
    assert_eq!(found.room, Room::Jobs);
    assert_eq!((found.job.queue.as_str(), found.job.task.as_str()), ("media", "thumbnail"));
    assert_eq!(found.job.priority.get(), 3);
    assert_eq!(found.job.payload.to_json().unwrap(), serde_json::json!({"path": "a.png", "width": 200}));
}

#[tokio::test]
async fn a_call_overrides_its_task() {
    let client = media().await;
    let call =
        thumbnail::call("a.png", 200).queue("default").priority(9).header("tenant", "7").max_attempts(2);
    let id = client.enqueue(call).await.unwrap().id();
    let job = client.job(id).await.unwrap().unwrap().job;
    assert_eq!((job.queue.as_str(), job.priority.get()), ("default", 9));
    assert_eq!(job.extras.headers["tenant"], "7");
    assert_eq!(job.extras.policy.max_attempts, Some(2));

    for call in [
        thumbnail::call("b", 1).delay(hours(1)),
        thumbnail::call("c", 1).run_at(Timestamp::from_micros(32_503_680_000_000_000)),
    ] {
        let id = client.enqueue(call).await.unwrap().id();
        assert_eq!(client.job(id).await.unwrap().unwrap().room, Room::Scheduled);
    }
}

#[tokio::test]
async fn many_calls_are_stored_together_or_not_at_all() {
    let client = media().await;
    let stored = client.enqueue_all((0..250).map(|width| thumbnail::call("a", width))).await.unwrap();
    let mut ids: Vec<_> = stored.iter().map(|one| one.id()).collect();
    assert_eq!(ids.len(), 250);
    assert!(ids.is_sorted(), "ids grow in the order of the calls");
    ids.dedup();
    assert_eq!(ids.len(), 250);
    assert!(client.enqueue_all([]).await.unwrap().is_empty());

    let bad = client.enqueue_all([thumbnail::call("a", 1), thumbnail::call("b", 1).priority(10)]).await;
    assert!(code(bad).1.contains("allowed are 0 to 9"));
    let bad = client.enqueue_all([thumbnail::call("a", 1), thumbnail::call("b", 1).queue("nowhere")]).await;
    assert_eq!(code(bad).0.as_str(), "no_such_queue");
    let stats = client.broker().stats().await.unwrap();
    let ready: Vec<_> = stats.queues.iter().map(|queue| (queue.name.as_str(), queue.ready)).collect();
    assert_eq!(ready, [("default", 0), ("media", 250)]);
}

#[tokio::test]
async fn a_key_stores_one_job_however_often_it_is_enqueued() {
    let client = media().await;
    let call = || thumbnail::call("a", 1).idempotency_key("order-1");
    let first = client.enqueue(call()).await.unwrap();
    assert!(matches!(first, Enqueued::New(_)));
    assert_eq!(client.enqueue(call()).await.unwrap(), Enqueued::Existed(first.id()));
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_by_name() {
    let client = media().await;
    let (kind, text) = code(client.enqueue(thumbnail::call("a", 1).queue("medai")).await);
    assert_eq!(kind.as_str(), "no_such_queue");
    assert!(text.contains("did you mean media?"), "{text}");

    let (kind, text) = code(client.enqueue(blob::call(vec![0; 2 << 20])).await);
    assert_eq!(kind.as_str(), "payload_too_large");
    assert!(text.contains("blob") && text.contains("1048576"), "{text}");
    let wide = client.clone().max_payload(8 << 20);
    wide.enqueue(blob::call(vec![0; 2 << 20])).await.unwrap();
    let narrow = client.max_payload(100);
    assert_eq!(code(narrow.enqueue(blob::call(vec![0; 100])).await).0.as_str(), "payload_too_large");
}

#[tokio::test]
async fn missing_queues_are_declared_on_request() {
    let client = media().await.declare_missing_queues();
    let id = client.enqueue(thumbnail::call("a", 1).queue("brand-new")).await.unwrap().id();
    assert_eq!(client.job(id).await.unwrap().unwrap().job.queue.as_str(), "brand-new");
}

#[tokio::test]
async fn a_waiting_job_can_be_cancelled() {
    let client = media().await;
    let id = client.enqueue(thumbnail::call("a", 1)).await.unwrap().id();
    assert_eq!(client.cancel(id).await.unwrap(), Cancelled::Removed(Room::Jobs));
    assert_eq!(client.job(id).await.unwrap(), None);
    assert_eq!(client.cancel(id).await.unwrap(), Cancelled::NotFound);
}

#[tokio::test]
async fn bad_urls_are_refused_before_anything_is_opened() {
    let (kind, text) = code(Client::connect("mysql://me:s3cret@host/db").await);
    assert_eq!(kind.as_str(), "unsupported_url");
    assert!(text.contains("known are sqlite:PATH") && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_file_keeps_what_was_enqueued() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let client = Client::connect(&url).await.unwrap();
    assert!(format!("{client:?}").contains("jobs.db"));
    let id = client.enqueue(blob::call(vec![1, 2, 3])).await.unwrap().id();
    drop(client);
    let again = Client::connect(&url).await.unwrap();
    let job = again.job(id).await.unwrap().unwrap().job;
    assert_eq!(job.payload.to_json().unwrap(), serde_json::json!({"bytes": [1, 2, 3]}));
}

#[test]
fn durations_are_as_they_are_said() {
    assert_eq!(mins(10), Duration::from_secs(600));
    assert_eq!(hours(2) + secs(1) + millis(5), Duration::from_millis(7_201_005));
    assert_eq!(days(1), hours(24));
    assert_eq!(days(u64::MAX), Duration::from_secs(u64::MAX));
}
