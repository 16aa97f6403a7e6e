//! Cases of a queue's settings: time to live, length, retention.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::time::Duration;

use celeriac_core::{
    DeadReason, Declared, EnqueueOptions, Enqueued, Error, Filter, NewJob, OnExpire, Overflow, Paused,
    QueueChange, QueueSettings, Room, Start, Verdict,
};

use super::scene::{HOURS, Scene, ids, queue_name, reject, retry};

/// A time to live that has passed when anybody looks.
const SHORT: Duration = Duration::from_millis(1);

fn mortal(scene: &Scene, ttl: Duration) -> NewJob {
    let mut job = scene.job("default");
    job.ttl = Some(ttl);
    job
}

/// A job whose time has passed goes to the bin on the way of a claim, and those behind it are handed out.
pub async fn an_expired_job_is_not_handed_out(scene: &Scene) {
    let worker = scene.worker().await;
    let stored =
        scene.put(vec![mortal(scene, Duration::ZERO), scene.job("default"), mortal(scene, HOURS)]).await;
    super::eventually("the end of its time", || async {
        let expires = scene.details(stored[0]).await.job.expires_at?;
        // Any job that was stored later shows the store's clock.
        let now = scene.details(scene.fill("default", 1).await[0]).await.job.enqueued_at;
        (now > expires).then_some(())
    })
    .await;
    let claimed = ids(&scene.claim(worker, 2).await);
    assert_eq!(claimed, stored[1..]);
    let details = scene.details(stored[0]).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::Expired)));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 0));
    assert_eq!(scene.figures("default").await.buried, 1);
    scene.sound().await;
}

/// Nobody need claim: maintenance moves what has expired to the bin.
pub async fn maintenance_expires_waiting_jobs(scene: &Scene) {
    let worker = scene.worker().await;
    let mut jobs: Vec<NewJob> = (0..5).map(|_| mortal(scene, SHORT)).collect();
    jobs.insert(2, scene.job("default"));
    jobs[4].priority = celeriac_core::Priority::HIGHEST;
    let stored = scene.put(jobs).await;
    let total = scene.maintain_until("five expired jobs", |total| total.expired == 5).await;
    assert_eq!(total.pruned, 0);
    for (place, id) in stored.iter().enumerate() {
        let details = scene.details(*id).await;
        let expected = if place == 2 { (Room::Jobs, None) } else { (Room::Dead, Some(DeadReason::Expired)) };
        assert_eq!((details.room, details.reason), expected);
    }
    scene.sound().await;
    assert_eq!(ids(&scene.claim(worker, 10).await), [stored[2]]);
    scene.sound().await;
}

/// By the queue's setting what expires is dropped, and counted.
pub async fn a_queue_may_drop_what_expires(scene: &Scene) {
    let worker = scene.worker().await;
    let mut change = QueueChange::default();
    change.on_expire = Some(OnExpire::Drop);
    scene.change("default", change).await;
    let by_maintenance = scene.put(vec![mortal(scene, SHORT)]).await[0];
    scene.maintain_until("an expired job", |total| total.expired == 1).await;
    assert_eq!(scene.find(by_maintenance).await, None);
    let by_claim = scene.put(vec![mortal(scene, SHORT)]).await[0];
    super::eventually("the end of its time", || async {
        let now = scene.details(scene.fill("default", 1).await[0]).await.job.enqueued_at;
        let expires = scene.find(by_claim).await?.job.expires_at?;
        (now > expires).then_some(())
    })
    .await;
    assert!(!ids(&scene.claim(worker, 1_000).await).contains(&by_claim));
    assert_eq!(scene.find(by_claim).await, None);
    let figures = scene.figures("default").await;
    assert_eq!((figures.dropped, figures.buried, figures.dead), (2, 0, 0));
    scene.sound().await;
}

/// A job may name a shorter or a longer time than its queue.
pub async fn the_time_to_live_of_a_job_goes_before_its_queues(scene: &Scene) {
    let mut change = QueueChange::default();
    change.ttl = Some(Some(HOURS));
    scene.change("default", change.clone()).await;
    let stored =
        scene.put(vec![scene.job("default"), mortal(scene, 2 * HOURS), mortal(scene, HOURS / 2)]).await;
    for (id, ttl) in stored.into_iter().zip([HOURS, 2 * HOURS, HOURS / 2]) {
        let job = scene.details(id).await.job;
        assert_eq!(job.expires_at, Some(job.due_at.saturating_add(ttl)));
    }
    change.ttl = Some(None);
    scene.change("default", change).await;
    assert_eq!(scene.details(scene.put_one().await).await.job.expires_at, None);
    scene.sound().await;
}

/// A delayed job does not use up its time while it waits for its due time.
pub async fn the_time_to_live_starts_when_the_job_is_due(scene: &Scene) {
    let mut job = mortal(scene, SHORT);
    job.start = Start::After(HOURS);
    let id = scene.put(vec![job]).await[0];
    let details = scene.details(id).await;
    assert_eq!(details.job.expires_at, Some(details.job.due_at.saturating_add(SHORT)));
    assert_eq!(scene.maintain().await.expired, 0);
    assert_eq!(scene.room(id).await, Some(Room::Scheduled));
    scene.sound().await;
}

/// The time to live is for the first start: a job that was tried comes back whatever the time.
pub async fn a_started_job_does_not_expire(scene: &Scene) {
    let worker = scene.worker().await;
    let ttl = Duration::from_secs(2);
    for verdict in [retry(ttl, "x"), Verdict::Snooze { after: ttl }] {
        let id = scene.put(vec![mortal(scene, ttl)]).await[0];
        let claimed = scene.claim_one(worker).await;
        scene.apply(worker, &claimed, verdict).await;
        // It becomes due after its first time to live has passed.
        let total = scene.maintain_until("the second try", |total| total.promoted == 1).await;
        assert_eq!(total.expired, 0);
        scene.maintain().await;
        assert_eq!(ids(&scene.claim(worker, 10).await), [id]);
    }
    scene.sound().await;
}

/// Waiting for a worker that knows its task is waiting too.
pub async fn a_parked_job_expires(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.put(vec![mortal(scene, Duration::from_millis(300))]).await[0];
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Park).await;
    scene.maintain_until("the parked job's end", |total| total.expired == 1).await;
    let details = scene.details(id).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::Expired)));
    scene.sound().await;
}

async fn bound(scene: &Scene, limit: u64, overflow: Overflow) {
    let mut change = QueueChange::default();
    change.max_length = Some(Some(limit));
    change.overflow = Some(overflow);
    scene.change("default", change).await;
}

/// At its limit a queue refuses, names length and limit, and takes more when there is room again.
pub async fn a_full_queue_refuses(scene: &Scene) {
    let worker = scene.worker().await;
    bound(scene, 3, Overflow::Refuse).await;
    let stored = scene.fill("default", 3).await;
    let error = scene.refused(vec![scene.job("default")]).await;
    assert!(error.is_transient());
    let Error::QueueFull { queue, length, limit } = error else { panic!("{error}") };
    assert_eq!((queue.as_str(), length, limit), ("default", 3, 3));
    assert_eq!(ids(&scene.claim(worker, 1).await), stored[..1]);
    scene.put_one().await;
    assert_eq!(scene.refused(vec![scene.job("default")]).await.code().as_str(), "queue_full");
    let mut change = QueueChange::default();
    change.max_length = Some(None);
    scene.change("default", change).await;
    scene.fill("default", 10).await;
    scene.sound().await;
}

/// A batch that would pass the limit is refused whole, for the other queues in it too.
pub async fn a_full_queue_refuses_a_batch_whole(scene: &Scene) {
    scene.declare(&["free"]).await;
    bound(scene, 5, Overflow::Refuse).await;
    scene.fill("default", 3).await;
    let mut batch: Vec<NewJob> = (0..3).map(|_| scene.job("default")).collect();
    batch.push(scene.job("free"));
    let error = scene.refused(batch.clone()).await;
    let Error::QueueFull { length, limit, .. } = error else { panic!("{error}") };
    assert_eq!((length, limit), (3, 5));
    assert_eq!((scene.figures("default").await.ready, scene.figures("free").await.ready), (3, 0));
    batch.remove(0);
    scene.put(batch).await;
    let again = scene.idempotent_job("free");
    scene.put(vec![again.clone()]).await;
    let error = scene.refused(vec![scene.job("free"), scene.job("default")]).await;
    assert_eq!(error.code().as_str(), "queue_full");
    scene.sound().await;
}

/// A repeated enqueue of a job that is there, or was, is answered as such: it needs no room.
pub async fn a_full_queue_knows_what_it_has(scene: &Scene) {
    let worker = scene.worker().await;
    bound(scene, 2, Overflow::Refuse).await;
    let (done, there) = (scene.idempotent_job("default"), scene.idempotent_job("default"));
    scene.put(vec![done.clone()]).await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Done).await;
    scene.put(vec![there.clone(), scene.job("default")]).await;
    let expected = [Enqueued::Existed(done.id), Enqueued::Existed(there.id), Enqueued::Existed(there.id)];
    let batch = vec![done, there.clone(), there.clone()];
    assert_eq!(scene.broker.enqueue(batch, EnqueueOptions::default()).await.unwrap(), expected);
    let error = scene.refused(vec![there, scene.idempotent_job("default")]).await;
    assert_eq!(error.code().as_str(), "queue_full");
    scene.sound().await;
}

/// Held, delayed and dead jobs do not wait to run, and a release is never refused.
pub async fn only_ready_jobs_count_against_the_length(scene: &Scene) {
    let worker = scene.worker().await;
    bound(scene, 2, Overflow::Refuse).await;
    let mut later = scene.job("default");
    later.start = Start::After(HOURS);
    scene.put(vec![scene.job("default"), later.clone(), scene.job("default")]).await;
    later.id = super::scene::fresh_id();
    scene.put(vec![later]).await;
    let held = scene.claim(worker, 2).await;
    scene.apply(worker, &held[0], reject("no")).await;
    scene.fill("default", 2).await;
    scene.apply(worker, &held[1], Verdict::Release).await;
    assert_eq!(scene.figures("default").await.ready, 3, "over the limit, and nothing lost");
    let error = scene.refused(vec![scene.job("default")]).await;
    assert!(matches!(error, Error::QueueFull { length: 3, limit: 2, .. }), "{error}");
    scene.sound().await;
}

/// With `DropOldest` the enqueue succeeds, and the oldest ready jobs go to the bin to make room.
pub async fn a_full_queue_drops_its_oldest(scene: &Scene) {
    let worker = scene.worker().await;
    bound(scene, 3, Overflow::DropOldest).await;
    let first = scene.fill("default", 4).await;
    assert_eq!(scene.details(first[0]).await.reason, Some(DeadReason::MaxLength));
    let held = scene.claim(worker, 1).await;
    assert_eq!(ids(&held), [first[1]]);
    let second = scene.fill("default", 2).await;
    let details = scene.details(first[2]).await;
    assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::MaxLength)));
    assert_eq!(scene.room(first[1]).await, Some(Room::Jobs), "a held job is left alone");
    let large = scene.fill("default", 10).await;
    for id in [first[3], second[0], second[1], large[0], large[6]] {
        assert_eq!(scene.details(id).await.reason, Some(DeadReason::MaxLength));
    }
    assert_eq!(ids(&scene.claim(worker, 10).await), large[7..]);
    assert_eq!(scene.figures("default").await.buried, 12);
    scene.apply(worker, &held[0], Verdict::Done).await;
    scene.sound().await;
}

/// Nothing vanishes from the bin without somebody's decision.
pub async fn dead_jobs_are_kept_for_ever_by_default(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.bury_one(worker, scene.job("default"), "no").await;
    assert_eq!(scene.maintain().await.pruned, 0);
    let mut change = QueueChange::default();
    change.dead_retention = Some(Some(HOURS));
    scene.change("default", change).await;
    assert_eq!(scene.maintain().await.pruned, 0);
    assert_eq!(scene.room(id).await, Some(Room::Dead));
    scene.sound().await;
}

/// With a retention set, maintenance removes what is older, in that queue alone, and counts it.
pub async fn dead_jobs_are_pruned_after_their_retention(scene: &Scene) {
    scene.declare(&["kept"]).await;
    let worker = scene.worker().await;
    let mut change = QueueChange::default();
    change.dead_retention = Some(Some(Duration::ZERO));
    scene.change("default", change).await;
    let kept = scene.bury_one(worker, scene.job("kept"), "no").await;
    for _ in 0..3 {
        scene.bury_one(worker, scene.job("default"), "no").await;
    }
    let waiting = scene.put_one().await;
    scene.maintain_until("three pruned jobs", |total| total.pruned == 3).await;
    assert_eq!(scene.list_all(&Filter::room(Room::Dead), 10).await.len(), 1);
    assert_eq!((scene.room(kept).await, scene.room(waiting).await), (Some(Room::Dead), Some(Room::Jobs)));
    let figures = scene.figures("default").await;
    assert_eq!((figures.dropped, figures.buried, figures.dead), (3, 3, 0));
    scene.sound().await;
}

/// Limits of zero are refused, and change nothing.
pub async fn bad_settings_are_refused(scene: &Scene) {
    let mut no_delivery = QueueChange::default();
    no_delivery.delivery_limit = Some(0);
    no_delivery.ttl = Some(Some(HOURS));
    let mut no_length = QueueChange::default();
    no_length.max_length = Some(Some(0));
    no_length.paused = Some(Paused::Yes);
    for change in [no_delivery, no_length] {
        for name in ["default", "new"] {
            let error = scene.broker.declare(queue_name(name), change.clone()).await.unwrap_err();
            assert_eq!(error.code().as_str(), "invalid");
        }
    }
    let figures = scene.figures("default").await;
    assert_eq!((figures.settings, figures.paused), (QueueSettings::default(), Paused::No));
    assert_eq!(scene.refused(vec![scene.job("new")]).await.code().as_str(), "no_such_queue");
    scene.sound().await;
}

/// What a change does not name stays, and every handle sees it.
pub async fn settings_change_one_by_one(scene: &Scene) {
    let mut change = QueueChange::default();
    change.delivery_limit = Some(7);
    change.ttl = Some(Some(HOURS));
    change.max_length = Some(Some(1_000_000));
    assert_eq!(scene.change("media", change).await, Declared::Created);
    let mut change = QueueChange::default();
    change.ttl = Some(None);
    change.overflow = Some(Overflow::DropOldest);
    change.on_expire = Some(OnExpire::Drop);
    change.dead_retention = Some(Some(Duration::from_micros(1_500_000)));
    change.paused = Some(Paused::Yes);
    assert_eq!(scene.change("media", change).await, Declared::Existed);
    assert_eq!(scene.change("media", QueueChange::default()).await, Declared::Existed);
    let mut expected = QueueSettings::default();
    expected.delivery_limit = 7;
    expected.max_length = Some(1_000_000);
    expected.overflow = Overflow::DropOldest;
    expected.on_expire = OnExpire::Drop;
    expected.dead_retention = Some(Duration::from_micros(1_500_000));
    let stats = scene.other.stats().await.unwrap();
    let names: Vec<&str> = stats.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["default", "media"]);
    assert_eq!((&stats.queues[1].settings, stats.queues[1].paused), (&expected, Paused::Yes));
    scene.sound().await;
}

/// `default` needs no declaration.
pub async fn the_default_queue_exists(scene: &Scene) {
    scene.put_one().await;
    assert_eq!(scene.change("default", QueueChange::default()).await, Declared::Existed);
    scene.sound().await;
}
