//! Cases of what operators do: cancel, replay, purge, look.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::time::Duration;

use celeriac_core::{
    AttemptKind, BulkAct, BulkOptions, Cancelled, CheckOptions, DeadReason, Filter, JobId, NewJob,
    QueueChange, Room, Start, Verdict,
};

use super::scene::{HOURS, Scene, claim_options, fresh_id, ids, queue_name, reject, retry, task_name};

fn dead() -> Filter {
    Filter::room(Room::Dead)
}

fn replay() -> BulkAct {
    BulkAct::Replay { queue: None }
}

/// A job that waits, for whatever, is removed and counted as cancelled.
pub async fn waiting_jobs_are_cancelled_in_every_room(scene: &Scene) {
    let worker = scene.worker().await;
    let dead = scene.bury_one(worker, scene.job("default"), "no").await;
    let parked = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Park).await;
    let mut later = scene.job("default");
    later.start = Start::After(HOURS);
    let scheduled = scene.put(vec![later]).await[0];
    let ready = scene.fill("default", 3).await;
    for (id, room) in [
        (dead, Room::Dead),
        (parked, Room::Parked),
        (scheduled, Room::Scheduled),
        (ready[1], Room::Jobs),
        (ready[0], Room::Jobs),
    ] {
        assert_eq!(scene.room(id).await, Some(room));
        assert_eq!(scene.broker.cancel(id).await.unwrap(), Cancelled::Removed(room));
        assert_eq!(scene.find(id).await, None);
        assert_eq!(scene.other.cancel(id).await.unwrap(), Cancelled::NotFound);
        scene.sound().await;
    }
    assert_eq!(ids(&scene.claim(worker, 10).await), ready[2..]);
    assert_eq!(scene.figures("default").await.cancelled, 5);
    scene.sound().await;
}

/// What never was and what is done give the same answer.
pub async fn what_is_gone_cannot_be_cancelled(scene: &Scene) {
    let worker = scene.worker().await;
    assert_eq!(scene.broker.cancel(fresh_id()).await.unwrap(), Cancelled::NotFound);
    let id = scene.put_one().await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Done).await;
    assert_eq!(scene.broker.cancel(id).await.unwrap(), Cancelled::NotFound);
    assert_eq!(scene.figures("default").await.cancelled, 0);
    scene.sound().await;
}

/// A job in a worker's hands: the worker is told, and its verdict removes the job.
pub async fn a_held_job_is_cancelled_through_its_worker(scene: &Scene) {
    let (worker, bystander) = (scene.worker().await, scene.worker().await);
    scene.fill("default", 3).await;
    let held = scene.claim(worker, 2).await;
    scene.claim(bystander, 1).await;
    assert_eq!(scene.broker.cancellations(worker).await.unwrap(), []);
    let id = held[1].job.id;
    assert_eq!(scene.other.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(scene.broker.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(scene.room(id).await, Some(Room::Jobs), "it is there until its worker says so");
    assert_eq!(scene.broker.cancellations(worker).await.unwrap(), [id]);
    assert_eq!(scene.broker.cancellations(bystander).await.unwrap(), []);
    scene.apply(worker, &held[1], Verdict::Cancel).await;
    assert_eq!(scene.find(id).await, None);
    assert_eq!(scene.broker.cancellations(worker).await.unwrap(), []);
    scene.apply(worker, &held[0], Verdict::Done).await;
    let figures = scene.figures("default").await;
    assert_eq!((figures.cancelled, figures.done), (1, 1));
    scene.sound().await;
}

/// A cancellation that came too late loses against the truth.
pub async fn a_cancelled_job_may_still_succeed(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 2).await;
    let held = scene.claim(worker, 2).await;
    for claimed in &held {
        assert_eq!(scene.broker.cancel(claimed.job.id).await.unwrap(), Cancelled::Requested);
    }
    scene.apply(worker, &held[0], Verdict::Done).await;
    scene.apply(worker, &held[1], reject("no")).await;
    let figures = scene.figures("default").await;
    assert_eq!((figures.done, figures.dead, figures.cancelled), (1, 1, 0));
    assert_eq!(scene.broker.cancellations(worker).await.unwrap(), []);
    scene.sound().await;
}

/// Who asked for an end was told that it is on its way: the job does not run again, whatever its worker says and even
/// if the worker dies.
pub async fn a_cancelled_job_is_never_given_back(scene: &Scene) {
    let worker = scene.worker().await;
    let verdicts = [
        Verdict::Release,
        Verdict::Park,
        retry(Duration::ZERO, "x"),
        Verdict::Snooze { after: Duration::ZERO },
    ];
    let stored = scene.fill("default", verdicts.len() + 1).await;
    let held = scene.claim(worker, 10).await;
    for id in &stored {
        assert_eq!(scene.broker.cancel(*id).await.unwrap(), Cancelled::Requested);
    }
    for (claimed, verdict) in held.iter().zip(verdicts) {
        scene.apply(worker, claimed, verdict).await;
        assert_eq!(scene.find(claimed.job.id).await, None);
    }
    scene.broker.retire(worker).await.unwrap();
    assert_eq!(scene.find(stored[4]).await, None);
    let figures = scene.figures("default").await;
    assert_eq!((figures.cancelled, figures.redelivered), (5, 0));
    scene.sound().await;
}

/// Back from the bin: counters at zero, the history kept, behind the others of its lane.
pub async fn a_replayed_job_starts_again(scene: &Scene) {
    let worker = scene.worker().await;
    let mut job = scene.job("default");
    job.headers.insert("tenant".into(), "7".into());
    job.policy.max_attempts = Some(3);
    let id = scene.bury_one(worker, job.clone(), "no such user").await;
    let other = scene.put_one().await;
    assert_eq!(scene.bulk(dead(), replay()).await, [id]);
    let details = scene.details(id).await;
    assert_eq!((details.room, details.reason), (Room::Jobs, None));
    let claimed = scene.claim(worker, 10).await;
    assert_eq!(ids(&claimed), [other, id]);
    let again = &claimed[1].job;
    assert_eq!((again.attempt, again.deliveries), (0, 0));
    assert_eq!((&again.payload, &again.extras.headers), (&job.payload, &job.headers));
    assert_eq!(again.extras.policy, job.policy);
    let kinds: Vec<AttemptKind> = again.extras.history.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [AttemptKind::Rejected, AttemptKind::Replayed]);
    assert_eq!(again.extras.history[0].error, "no such user");
    scene.apply(worker, &claimed[1], Verdict::Done).await;
    scene.sound().await;
}

/// A replay may send jobs elsewhere.
pub async fn a_replayed_job_may_change_its_queue(scene: &Scene) {
    scene.declare(&["repair"]).await;
    let worker = scene.worker().await;
    let id = scene.bury_one(worker, scene.job("default"), "no").await;
    let act = BulkAct::Replay { queue: Some(queue_name("repair")) };
    assert_eq!(scene.bulk(dead(), act).await, [id]);
    assert!(scene.claim(worker, 10).await.is_empty());
    let claimed = scene.claim_from(worker, &["repair"], 10).await;
    assert_eq!((ids(&claimed), claimed[0].job.queue.as_str()), (vec![id], "repair"));
    scene.apply(worker, &claimed[0], Verdict::Done).await;
    scene.sound().await;
}

/// A person wants it to run: a time to live that has passed does not bury it again.
pub async fn a_replayed_job_does_not_expire_again(scene: &Scene) {
    let worker = scene.worker().await;
    let mut job = scene.job("default");
    job.ttl = Some(Duration::from_millis(1));
    let id = scene.put(vec![job]).await[0];
    scene.maintain_until("an expired job", |total| total.expired == 1).await;
    assert_eq!(scene.bulk(dead(), replay()).await, [id]);
    assert_eq!(scene.maintain().await.expired, 0);
    assert_eq!(ids(&scene.claim(worker, 10).await), [id]);
    scene.sound().await;
}

/// Every part of a filter counts; what does not match stays in the bin.
pub async fn a_replay_goes_by_filter(scene: &Scene) {
    scene.declare(&["media"]).await;
    let worker = scene.worker().await;
    let mut mail = scene.job("default");
    mail.task = task_name("mail");
    let mail = scene.bury_one(worker, mail, "connection refused").await;
    let media = scene.bury_one(worker, scene.job("media"), "connection reset").await;
    let plain = scene.bury_one(worker, scene.job("default"), "no").await;
    let expired = {
        let mut job = scene.job("default");
        job.ttl = Some(Duration::from_millis(1));
        let id = scene.put(vec![job]).await[0];
        scene.maintain_until("an expired job", |total| total.expired == 1).await;
        id
    };
    let filter = |change: &dyn Fn(&mut Filter)| {
        let mut filter = dead();
        change(&mut filter);
        filter
    };
    let cases: [(Filter, &[JobId]); 9] = [
        (filter(&|f| f.older_than = Some(HOURS)), &[]),
        (filter(&|f| f.id = Some(fresh_id())), &[]),
        (filter(&|f| f.error = Some("CONNECTION".into())), &[]),
        (filter(&|f| (f.queue, f.task) = (Some(queue_name("media")), Some(task_name("mail")))), &[]),
        (filter(&|f| f.task = Some(task_name("mail"))), &[mail]),
        (filter(&|f| f.reason = Some(DeadReason::Expired)), &[expired]),
        (filter(&|f| f.error = Some("connection".into())), &[media]),
        (filter(&|f| f.id = Some(plain)), &[plain]),
        (dead(), &[]),
    ];
    for (filter, expected) in cases {
        assert_eq!(scene.bulk(filter.clone(), BulkAct::Nothing).await, expected, "{filter:?}");
        assert_eq!(scene.bulk(filter.clone(), replay()).await, expected, "{filter:?}");
        for id in expected {
            assert_eq!(scene.room(*id).await, Some(Room::Jobs));
        }
    }
    scene.sound().await;
}

/// Only what is in the bin can be sent back from it, and only to where there is something.
pub async fn impossible_replays_are_refused(scene: &Scene) {
    let worker = scene.worker().await;
    let id = scene.bury_one(worker, scene.job("default"), "no").await;
    let act = BulkAct::Replay { queue: Some(queue_name("defualt")) };
    let error = scene.broker.bulk(dead(), act, BulkOptions::default()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "no_such_queue");
    for room in [Room::Jobs, Room::Scheduled, Room::Parked] {
        let error =
            scene.broker.bulk(Filter::room(room), replay(), BulkOptions::default()).await.unwrap_err();
        assert_eq!(error.code().as_str(), "invalid");
    }
    assert_eq!(scene.room(id).await, Some(Room::Dead));
    scene.sound().await;
}

/// A purge removes what waits, for good, and counts it; what is held runs on.
pub async fn a_purge_leaves_held_jobs_alone(scene: &Scene) {
    scene.declare(&["side"]).await;
    let worker = scene.worker().await;
    let stored = scene.fill("default", 6).await;
    let side = scene.fill("side", 1).await;
    let held = scene.claim(worker, 2).await;
    let mut filter = Filter::room(Room::Jobs);
    filter.queue = Some(queue_name("default"));
    assert_eq!(scene.bulk(filter.clone(), BulkAct::Nothing).await, stored[2..]);
    assert_eq!(scene.bulk(filter.clone(), BulkAct::Purge).await, stored[2..]);
    assert!(scene.bulk(filter, BulkAct::Purge).await.is_empty());
    assert!(scene.claim(worker, 10).await.is_empty());
    for claimed in &held {
        scene.apply(worker, claimed, Verdict::Done).await;
    }
    assert_eq!(scene.room(side[0]).await, Some(Room::Jobs));
    let figures = scene.figures("default").await;
    assert_eq!((figures.dropped, figures.done, figures.ready), (4, 2, 0));
    scene.sound().await;
}

/// The dry run of an act gives exactly the jobs that the act then takes, and changes nothing.
pub async fn a_dry_run_names_what_the_act_takes(scene: &Scene) {
    let worker = scene.worker().await;
    let mut expected = Vec::new();
    for number in 0..5 {
        let id = scene.bury_one(worker, scene.job("default"), &format!("error {}", number % 2)).await;
        if number % 2 == 1 {
            expected.push(id);
        }
    }
    let mut filter = dead();
    filter.error = Some("error 1".into());
    for _ in 0..2 {
        assert_eq!(scene.bulk(filter.clone(), BulkAct::Nothing).await, expected);
    }
    assert_eq!(scene.figures("default").await.dead, 5);
    assert_eq!(scene.bulk(filter, BulkAct::Purge).await, expected);
    assert_eq!(scene.figures("default").await.dead, 3);
    scene.sound().await;
}

/// Steps of any size reach every job once, in each room.
pub async fn an_act_goes_in_steps(scene: &Scene) {
    let mut limit = BulkOptions::default();
    for bad in [0, 1_001] {
        limit.limit = bad;
        let error = scene.broker.bulk(dead(), BulkAct::Purge, limit.clone()).await.unwrap_err();
        assert_eq!(error.code().as_str(), "invalid");
    }
    let in_steps = async |room: Room, act: BulkAct| {
        let mut options = BulkOptions::default();
        options.limit = 7;
        let mut all = Vec::new();
        loop {
            let page = scene.broker.bulk(Filter::room(room), act.clone(), options.clone()).await.unwrap();
            assert!(page.jobs.len() <= 7);
            all.extend(page.jobs.iter().map(|details| details.job.id));
            options.after = page.next;
            if options.after.is_none() {
                return all;
            }
        }
    };
    let worker = scene.worker().await;
    let mut stored = scene.fill("default", 30).await;
    for claimed in scene.claim(worker, 30).await {
        scene.apply(worker, &claimed, reject("no")).await;
    }
    assert_eq!(in_steps(Room::Dead, BulkAct::Nothing).await, stored);
    assert_eq!(in_steps(Room::Dead, replay()).await, stored);
    scene.sound().await;
    let mut later = scene.job("default");
    later.start = Start::After(HOURS);
    let later: Vec<NewJob> = (0..15)
        .map(|_| {
            later.id = fresh_id();
            later.clone()
        })
        .collect();
    let scheduled = scene.put(later).await;
    let mut purged = in_steps(Room::Scheduled, BulkAct::Purge).await;
    purged.sort_unstable();
    assert_eq!(purged, scheduled);
    let mut purged = in_steps(Room::Jobs, BulkAct::Purge).await;
    purged.sort_unstable();
    stored.sort_unstable();
    assert_eq!(purged, stored);
    let figures = scene.figures("default").await;
    assert_eq!((figures.dropped, figures.ready, figures.scheduled), (45, 0, 0));
    scene.sound().await;
}

/// A new store has one queue, nothing in it, and nothing wrong with it.
pub async fn a_fresh_store_is_sound(scene: &Scene) {
    let stats = scene.broker.stats().await.unwrap();
    assert_eq!((stats.queues.len(), stats.workers.len(), stats.parked.len()), (1, 0, 0));
    let queue = &stats.queues[0];
    assert_eq!((queue.name.as_str(), queue.ready, queue.enqueued, queue.oldest_due), ("default", 0, 0, None));
    let mut repair = CheckOptions::default();
    repair.repair = true;
    let report = scene.broker.check(repair).await.unwrap();
    assert_eq!((report.jobs, report.violations.len()), (0, 0));
    let maintenance = scene.maintain().await;
    assert_eq!((maintenance.more, maintenance.next_due), (false, None));
    assert!(!scene.broker.to_string().is_empty());
    scene.sound().await;
}

/// A walk through every room: at each step the figures are right, and a repair finds nothing to do.
pub async fn figures_follow_every_move(scene: &Scene) {
    let worker = scene.worker().await;
    let mut repair = CheckOptions::default();
    repair.repair = true;
    scene.change("default", QueueChange::default()).await;
    scene.fill("default", 12).await;
    assert!(scene.figures("default").await.oldest_due.is_some());
    scene.sound().await;
    let held = scene.claim(worker, 10).await;
    scene.sound().await;
    for (place, claimed) in held.iter().enumerate() {
        let verdict = match place % 6 {
            0 => Verdict::Done,
            1 => retry(Duration::ZERO, "x"),
            2 => Verdict::Park,
            3 => reject("no"),
            4 => Verdict::Release,
            _ => Verdict::Snooze { after: HOURS },
        };
        scene.apply(worker, claimed, verdict).await;
        scene.sound().await;
    }
    scene.maintain_until("two retries", |total| total.promoted == 2).await;
    scene.sound().await;
    let mut options = claim_options(worker, &["default"], 100);
    options.tasks = std::sync::Arc::from([task_name("work")]);
    scene.other.claim(options).await.unwrap();
    scene.sound().await;
    scene.broker.retire(worker).await.unwrap();
    scene.sound().await;
    scene.bulk(dead(), replay()).await;
    let report = scene.other.check(repair).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    scene.sound().await;
}
