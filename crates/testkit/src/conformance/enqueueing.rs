//! Cases of [`Broker::enqueue`](celeriac_core::Broker::enqueue) and of the room `scheduled`.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::time::Duration;

use celeriac_core::{
    Cancelled, DeadReason, EnqueueOptions, Enqueued, Error, JobId, Payload, Priority, Room, Start, Timestamp,
    Verdict,
};

use super::scene::{HOURS, Scene, ids, task_name};

/// Everything that was enqueued comes back, by `find` and by `claim`.
pub async fn a_stored_job_is_what_was_enqueued(scene: &Scene) {
    scene.declare(&["media"]).await;
    let mut job = scene.job("media");
    job.task = task_name("reports/daily.v2");
    job.priority = Priority::constant(7);
    job.headers.insert("traceparent".into(), "00-é-\u{0}".into());
    job.policy.max_attempts = Some(9);
    job.policy.retry = Some("exponential(base=1s, factor=3, max=1h)".parse().unwrap());
    job.policy.timeout = Some(Duration::from_millis(1500));
    job.ttl = Some(HOURS);
    scene.put(vec![job.clone()]).await;

    let details = scene.details(job.id).await;
    let stored = &details.job;
    assert_eq!((details.room, details.held_by, details.reason), (Room::Jobs, None, None));
    assert_eq!((stored.id, &stored.queue, &stored.task), (job.id, &job.queue, &job.task));
    assert_eq!((stored.priority, &stored.payload), (job.priority, &job.payload));
    assert_eq!((stored.attempt, stored.deliveries), (0, 0));
    assert_eq!((&stored.extras.headers, &stored.extras.policy), (&job.headers, &job.policy));
    assert!(stored.extras.history.is_empty());
    assert_eq!(stored.due_at, stored.enqueued_at);
    assert_eq!(stored.expires_at, Some(stored.due_at.saturating_add(HOURS)));

    let worker = scene.worker().await;
    let claimed = scene.claim_from(worker, &["media"], 5).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].job, details.job);
    assert!(!claimed[0].is_suspect());
    scene.sound().await;
}

/// One answer for each job, in the order of the jobs; nothing for nothing.
pub async fn answers_come_in_order(scene: &Scene) {
    assert_eq!(scene.broker.enqueue(Vec::new(), EnqueueOptions::default()).await.unwrap(), []);
    let old = scene.idempotent_job("default");
    scene.put(vec![old.clone()]).await;
    let (first, last) = (scene.job("default"), scene.job("default"));
    let expected = [Enqueued::New(first.id), Enqueued::Existed(old.id), Enqueued::New(last.id)];
    let answers = scene.broker.enqueue(vec![first, old, last], EnqueueOptions::default()).await.unwrap();
    assert_eq!(answers, expected);
    assert_eq!(scene.figures("default").await.enqueued, 3);
    scene.sound().await;
}

/// One bad job, wherever it stands, and nothing of its batch is stored.
pub async fn a_batch_is_stored_whole_or_not_at_all(scene: &Scene) {
    scene.declare(&["high"]).await;
    let mut large = scene.job("high");
    large.payload = Payload::from_stored(vec![1; 2 * 1024 * 1024]);
    let mut wordy = scene.job("high");
    wordy.headers.insert("x".into(), "y".repeat(9000));
    for (bad, code) in
        [(scene.job("nowhere"), "no_such_queue"), (large, "payload_too_large"), (wordy, "invalid")]
    {
        for place in [0, 1, 2] {
            let mut batch = vec![scene.job("default"), scene.idempotent_job("high")];
            batch.insert(place, bad.clone());
            let batch_ids: Vec<JobId> = batch.iter().map(|job| job.id).collect();
            assert_eq!(scene.refused(batch.clone()).await.code().as_str(), code);
            for id in batch_ids {
                assert_eq!(scene.find(id).await, None, "nothing of the batch is stored");
            }
            // Not even the memory of an id: the corrected batch is new.
            batch.remove(place);
            scene.put(batch).await;
        }
    }
    scene.sound().await;
}

/// A typing error is refused, and the declared name that is most like it is offered.
pub async fn an_unknown_queue_is_refused_with_the_nearest_name(scene: &Scene) {
    scene.declare(&["high", "low"]).await;
    let error = scene.refused(vec![scene.job("hihg")]).await;
    let Error::NoSuchQueue { queue, nearest } = error else { panic!("{error}") };
    assert_eq!((queue.as_str(), nearest.as_deref()), ("hihg", Some("high")));
    let error = scene.refused(vec![scene.job("zzzz")]).await;
    let Error::NoSuchQueue { nearest, .. } = error else { panic!("{error}") };
    assert_eq!(nearest, None);
    scene.sound().await;
}

/// `declare_missing` makes the queue with default settings.
pub async fn a_missing_queue_is_declared_on_request(scene: &Scene) {
    let mut options = EnqueueOptions::default();
    options.declare_missing = true;
    let job = scene.job("fresh");
    let id = job.id;
    assert_eq!(scene.broker.enqueue(vec![job], options).await.unwrap(), [Enqueued::New(id)]);
    assert_eq!(scene.figures("fresh").await.ready, 1);
    scene.fill("fresh", 1).await;
    scene.sound().await;
}

/// The limit is the caller's; a payload of exactly its size is stored.
pub async fn a_payload_over_the_limit_is_refused(scene: &Scene) {
    let mut job = scene.job("default");
    job.payload = Payload::from_stored(vec![1; 1024 * 1024 + 1]);
    let error = scene.refused(vec![job.clone()]).await;
    let Error::PayloadTooLarge { size, limit, .. } = error else { panic!("{error}") };
    assert_eq!((size, limit), (1024 * 1024 + 1, 1024 * 1024));
    assert_eq!(scene.find(job.id).await, None);

    let bytes: Vec<u8> = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
    job.payload = Payload::from_stored(bytes);
    scene.put(vec![job.clone()]).await;
    assert_eq!(scene.details(job.id).await.job.payload, job.payload);

    let mut small = scene.job("default");
    small.payload = Payload::from_stored(vec![1; 100]);
    let mut options = EnqueueOptions::default();
    options.max_payload = 99;
    let error = scene.broker.enqueue(vec![small.clone()], options.clone()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "payload_too_large");
    options.max_payload = 100;
    scene.broker.enqueue(vec![small], options).await.unwrap();
    scene.sound().await;
}

/// 32 headers and 8 KiB; what is within is kept.
pub async fn headers_over_their_limits_are_refused(scene: &Scene) {
    let mut many = scene.job("default");
    many.headers = (0..33).map(|n| (format!("h{n}"), String::new())).collect();
    assert_eq!(scene.refused(vec![many.clone()]).await.code().as_str(), "invalid");
    many.headers.remove("h32");
    let mut long = scene.job("default");
    long.headers.insert("h".into(), "x".repeat(8 * 1024));
    assert_eq!(scene.refused(vec![long.clone()]).await.code().as_str(), "invalid");
    long.headers.insert("h".into(), "x".repeat(8 * 1024 - 1));
    scene.put(vec![many.clone(), long.clone()]).await;
    for job in [many, long] {
        assert_eq!(scene.details(job.id).await.job.extras.headers, job.headers);
    }
    scene.sound().await;
}

/// A job that may never run is a mistake.
pub async fn zero_attempts_are_refused(scene: &Scene) {
    let mut job = scene.job("default");
    job.policy.max_attempts = Some(0);
    assert_eq!(scene.refused(vec![job.clone()]).await.code().as_str(), "invalid");
    assert_eq!(scene.find(job.id).await, None);
    scene.sound().await;
}

/// Bytes that nobody can decode are stored, handed out and buried as they are.
pub async fn damaged_payloads_are_kept_byte_by_byte(scene: &Scene) {
    let worker = scene.worker().await;
    for bytes in [vec![], vec![9, 1, 2], vec![1, 0xc1, 0xff, 0], vec![2, b'{'], vec![0; 300]] {
        let mut job = scene.job("default");
        job.payload = Payload::from_stored(bytes.clone());
        let id = scene.put(vec![job]).await[0];
        let claimed = scene.claim_one(worker).await;
        assert_eq!(claimed.job.payload.as_bytes(), bytes);
        scene
            .apply(worker, &claimed, Verdict::Reject { reason: DeadReason::Undecodable, failure: None })
            .await;
        assert_eq!(scene.details(id).await.job.payload.as_bytes(), bytes);
    }
    scene.sound().await;
}

/// The second enqueue of an id answers `Existed`, through any handle, and changes nothing.
pub async fn an_idempotent_id_is_stored_once(scene: &Scene) {
    let job = scene.idempotent_job("default");
    scene.put(vec![job.clone()]).await;
    let mut changed = job.clone();
    changed.payload = Payload::from_json("{}").unwrap();
    for broker in [&scene.broker, &scene.other] {
        let answers = broker.enqueue(vec![changed.clone()], EnqueueOptions::default()).await.unwrap();
        assert_eq!(answers, [Enqueued::Existed(job.id)]);
    }
    assert_eq!(scene.details(job.id).await.job.payload, job.payload);
    let figures = scene.figures("default").await;
    assert_eq!((figures.ready, figures.enqueued), (1, 1));
    scene.sound().await;
}

/// An id is remembered when its job is done, cancelled or purged.
pub async fn an_idempotent_id_is_remembered_after_its_job_is_gone(scene: &Scene) {
    let worker = scene.worker().await;
    let (finished, cancelled) = (scene.idempotent_job("default"), scene.idempotent_job("default"));
    scene.put(vec![finished.clone(), cancelled.clone()]).await;
    assert_eq!(scene.broker.cancel(cancelled.id).await.unwrap(), Cancelled::Removed(Room::Jobs));
    let claimed = scene.claim_one(worker).await;
    assert_eq!(claimed.job.id, finished.id);
    scene.apply(worker, &claimed, Verdict::Done).await;
    for job in [finished, cancelled] {
        let id = job.id;
        assert_eq!(scene.find(id).await, None);
        let answers = scene.other.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
        assert_eq!(answers, [Enqueued::Existed(id)]);
    }
    assert!(scene.claim(worker, 10).await.is_empty());
    scene.sound().await;
}

/// Within one batch too, the second of two equal ids stores nothing.
pub async fn an_idempotent_id_twice_in_a_batch_is_stored_once(scene: &Scene) {
    let job = scene.idempotent_job("default");
    let batch = vec![job.clone(), scene.job("default"), job.clone()];
    let answers = scene.broker.enqueue(batch, EnqueueOptions::default()).await.unwrap();
    assert_eq!((answers[0], answers[2]), (Enqueued::New(job.id), Enqueued::Existed(job.id)));
    assert_eq!(scene.figures("default").await.ready, 2);
    scene.sound().await;
}

/// A delayed job is in `scheduled`, is not handed out, and says when it is due.
pub async fn delayed_jobs_wait_in_their_room(scene: &Scene) {
    let worker = scene.worker().await;
    let mut later = scene.job("default");
    later.start = Start::After(HOURS);
    let mut at = scene.job("default");
    let now = scene.details(scene.put_one().await).await.job.enqueued_at;
    at.start = Start::At(now.saturating_add(2 * HOURS));
    scene.put(vec![later.clone(), at.clone()]).await;
    assert_eq!(scene.claim(worker, 10).await.len(), 1, "only the job without a delay");
    let maintenance = scene.maintain().await;
    assert_eq!(maintenance.promoted, 0);
    let next = maintenance.next_due.unwrap();
    assert!(next <= HOURS && next > HOURS / 2, "{next:?}");
    let waiting = scene.details(later.id).await;
    assert_eq!(waiting.room, Room::Scheduled);
    assert_eq!(waiting.job.due_at, waiting.job.enqueued_at.saturating_add(HOURS));
    assert_eq!(scene.details(at.id).await.job.due_at, now.saturating_add(2 * HOURS));
    assert_eq!(scene.figures("default").await.scheduled, 2);
    scene.sound().await;
}

/// When its time comes, maintenance moves a job to its queue, and it can be claimed.
pub async fn a_due_job_is_moved_to_its_queue(scene: &Scene) {
    let worker = scene.worker().await;
    let mut job = scene.job("default");
    job.start = Start::After(Duration::from_millis(30));
    job.priority = Priority::constant(4);
    scene.put(vec![job.clone()]).await;
    scene.maintain_until("the delayed job", |total| total.promoted == 1).await;
    let details = scene.details(job.id).await;
    assert_eq!(details.room, Room::Jobs);
    assert!(details.job.due_at >= details.job.enqueued_at.saturating_add(Duration::from_millis(30)));
    let claimed = scene.claim_one(worker).await;
    assert_eq!((claimed.job.id, claimed.job.priority), (job.id, job.priority));
    assert_eq!(scene.maintain().await.next_due, None);
    scene.sound().await;
}

/// No delay and an instant that has passed both mean at once, without any maintenance.
pub async fn an_instant_in_the_past_means_now(scene: &Scene) {
    let worker = scene.worker().await;
    let starts = [Start::After(Duration::ZERO), Start::At(Timestamp::from_micros(0)), Start::Now];
    let jobs = starts.map(|start| {
        let mut job = scene.job("default");
        job.start = start;
        job
    });
    let stored = scene.put(jobs.to_vec()).await;
    let claimed = scene.claim(worker, 10).await;
    assert_eq!(ids(&claimed), stored);
    for claimed in claimed {
        assert!(claimed.job.due_at >= claimed.job.enqueued_at, "due no earlier than it was stored");
    }
    scene.sound().await;
}

/// A delay past the end of time waits for ever.
pub async fn absurd_delays_do_not_overflow(scene: &Scene) {
    let mut after = scene.job("default");
    after.start = Start::After(Duration::MAX);
    let mut at = scene.job("default");
    at.start = Start::At(Timestamp::from_micros(i64::MAX));
    let mut both = scene.job("default");
    both.start = Start::After(Duration::MAX);
    both.ttl = Some(Duration::MAX);
    for id in scene.put(vec![after, at, both]).await {
        assert_eq!(scene.room(id).await, Some(Room::Scheduled));
    }
    assert_eq!(scene.maintain().await.promoted, 0);
    scene.sound().await;
}

/// Jobs come out of `scheduled` in the order of their due times, whatever the order they went in.
pub async fn promoted_jobs_come_in_the_order_of_their_due_times(scene: &Scene) {
    let worker = scene.worker().await;
    let mut jobs = Vec::new();
    for millis in [40, 10, 30, 20] {
        let mut job = scene.job("default");
        job.start = Start::After(Duration::from_millis(millis));
        jobs.push(job);
    }
    let stored = scene.put(jobs).await;
    scene.maintain_until("four jobs", |total| total.promoted == 4).await;
    let order = [stored[1], stored[3], stored[2], stored[0]];
    assert_eq!(ids(&scene.claim(worker, 4).await), order);
    scene.sound().await;
}
