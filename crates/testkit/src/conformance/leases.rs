//! Cases of workers that come, renew, die, come back and go.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::collections::BTreeSet;
use std::time::Duration;

use celeriac_core::{
    AttemptKind, Claimed, DeadReason, Error, Holding, JobId, MaintainOptions, ParameterInfo, QueueName,
    Receipt, Renewal, Room, Settled, TaskInfo, TaskSpec, Verdict, WorkerId, WorkerInfo,
};
use uuid::Uuid;

use super::scene::{HOURS, Scene, claim_options, ids, reject, retry, task_name};

/// A lease so short that it has lapsed when anybody looks.
const SHORT: Duration = Duration::from_millis(1);

/// A renewal replaces the rest of the lease, and a worker with a lease is not rescued.
pub async fn a_lease_is_renewed(scene: &Scene) {
    let worker = scene.worker_with("host:1", SHORT, &[]).await;
    scene.put_one().await;
    scene.claim_one(worker).await;
    assert_eq!(scene.broker.renew(worker, HOURS).await.unwrap(), Renewal::Held);
    let stats = scene.broker.stats().await.unwrap();
    let left = stats.workers[0].lease_left;
    assert!(left > HOURS / 2 && left <= HOURS, "{left:?}");
    assert_eq!(scene.maintain().await.dead_workers, 0);
    assert_eq!(scene.other.renew(worker, HOURS).await.unwrap(), Renewal::Held);
    scene.sound().await;
}

/// A worker that was never registered, or has gone, is told so.
pub async fn unknown_workers_have_no_lease(scene: &Scene) {
    let stranger = WorkerId::from_uuid(Uuid::new_v4());
    assert_eq!(scene.broker.renew(stranger, HOURS).await.unwrap(), Renewal::Lost);
    scene.broker.retire(stranger).await.unwrap();
    let worker = scene.worker().await;
    scene.broker.retire(worker).await.unwrap();
    assert_eq!(scene.broker.renew(worker, HOURS).await.unwrap(), Renewal::Lost);
    scene.broker.retire(worker).await.unwrap();
    assert_eq!(scene.broker.cancellations(worker).await.unwrap(), []);
    scene.sound().await;
}

/// Rescue acts on a missed lease, never on a job's age or on another worker's death.
pub async fn a_live_worker_keeps_its_jobs(scene: &Scene) {
    let alive = scene.worker().await;
    let dead = scene.worker_with("host:2", SHORT, &[]).await;
    scene.fill("default", 4).await;
    let kept = scene.claim(alive, 2).await;
    scene.claim(dead, 2).await;
    let rescued = scene.rescue().await;
    assert_eq!((rescued.dead_workers, rescued.redelivered), (1, 2));
    for claimed in &kept {
        assert_eq!(scene.details(claimed.job.id).await.job.deliveries, 0);
        scene.apply(alive, claimed, Verdict::Done).await;
    }
    scene.sound().await;
}

/// A missed lease: each job is counted as a lost delivery, says so in its history, and can be claimed by another.
pub async fn a_lapsed_worker_loses_its_jobs(scene: &Scene) {
    let dead = scene.worker_with("dead:1", SHORT, &[]).await;
    let id = scene.put_one().await;
    let lost = scene.claim_one(dead).await;
    let rescued = scene.rescue().await;
    assert_eq!((rescued.dead_workers, rescued.redelivered, rescued.buried), (1, 1, 0));
    let details = scene.details(id).await;
    assert_eq!((details.room, details.held_by.clone()), (Room::Jobs, None));
    assert_eq!((details.job.attempt, details.job.deliveries), (0, 1));
    let entry = details.job.extras.history.last().unwrap();
    assert_eq!((entry.kind, entry.number, entry.worker.as_str()), (AttemptKind::WorkerLost, 1, "dead:1"));

    let alive = scene.worker().await;
    let again = scene.claim_one(alive).await;
    assert_eq!((again.job.id, again.is_suspect()), (id, true));
    assert_ne!(again.receipt, lost.receipt);
    scene.apply(alive, &again, Verdict::Done).await;
    let figures = scene.figures("default").await;
    assert_eq!((figures.redelivered, figures.done), (1, 1));
    scene.sound().await;
}

/// A lease that lapsed is lost when the worker is declared dead, not before: until then it may renew and settle.
pub async fn a_lapsed_worker_that_nobody_missed_goes_on(scene: &Scene) {
    let worker = scene.worker_with("late:1", Duration::ZERO, &[]).await;
    scene.fill("default", 2).await;
    let held = scene.claim(worker, 1).await;
    assert_eq!(scene.broker.renew(worker, Duration::ZERO).await.unwrap(), Renewal::Held);
    scene.apply(worker, &held[0], Verdict::Done).await;
    let held = scene.claim(worker, 1).await;
    assert_eq!(scene.broker.renew(worker, HOURS).await.unwrap(), Renewal::Held);
    assert_eq!(scene.maintain().await.dead_workers, 0);
    scene.apply(worker, &held[0], Verdict::Done).await;
    scene.sound().await;
}

/// After a rescue no verdict of the old holder has any effect, whether the job waits, is held again, or is gone.
pub async fn stale_verdicts_change_nothing(scene: &Scene) {
    let dead = scene.worker_with("dead:1", SHORT, &[]).await;
    scene.put_one().await;
    let lost = scene.claim_one(dead).await;
    scene.rescue().await;
    let all = [
        Verdict::Done,
        Verdict::Cancel,
        Verdict::Park,
        Verdict::Release,
        Verdict::Snooze { after: HOURS },
        retry(HOURS, "stale"),
        reject("stale"),
    ];
    let before = scene.details(lost.job.id).await;
    for verdict in &all {
        assert_eq!(scene.settle(dead, &lost, verdict.clone()).await, Settled::Stale);
        assert_eq!(scene.details(lost.job.id).await, before);
    }
    let alive = scene.worker().await;
    let again = scene.claim_one(alive).await;
    let before = scene.details(lost.job.id).await;
    for verdict in &all {
        assert_eq!(scene.settle(dead, &lost, verdict.clone()).await, Settled::Stale);
        assert_eq!(scene.settle(alive, &lost, verdict.clone()).await, Settled::Stale);
        assert_eq!(scene.details(lost.job.id).await, before);
    }
    assert_eq!(scene.broker.renew(dead, HOURS).await.unwrap(), Renewal::Lost);
    let error = scene.broker.claim(claim_options(dead, &["default"], 1)).await.unwrap_err();
    assert!(matches!(error, Error::LeaseLost { worker } if worker == dead), "{error}");
    scene.apply(alive, &again, Verdict::Done).await;
    for verdict in all {
        assert_eq!(scene.settle(dead, &lost, verdict).await, Settled::Stale);
    }
    assert_eq!(scene.find(lost.job.id).await, None);
    scene.sound().await;
}

/// A job that is no longer held must not be run: the acknowledgement says so, job by job.
pub async fn stale_acknowledgements_say_lost(scene: &Scene) {
    let (one, two) = (scene.worker().await, scene.worker().await);
    scene.fill("default", 3).await;
    let held = scene.claim(one, 3).await;
    let receipts: Vec<Receipt> = held.iter().map(|claimed| claimed.receipt).collect();
    scene.apply(one, &held[1], Verdict::Release).await;
    assert_eq!(scene.broker.acknowledge(two, receipts.clone()).await.unwrap(), [Holding::Lost; 3]);
    let answers = scene.broker.acknowledge(one, receipts.clone()).await.unwrap();
    assert_eq!(answers, [Holding::Held, Holding::Lost, Holding::Held]);
    scene.broker.retire(one).await.unwrap();
    assert_eq!(scene.broker.acknowledge(one, receipts).await.unwrap(), [Holding::Lost; 3]);
    assert_eq!(scene.broker.acknowledge(one, Vec::new()).await.unwrap(), []);
    scene.sound().await;
}

/// The same identity may register anew; what it held before stays lost.
pub async fn a_worker_that_comes_back_starts_with_nothing(scene: &Scene) {
    let worker = scene.worker_with("back:1", SHORT, &[]).await;
    scene.put_one().await;
    let lost = scene.claim_one(worker).await;
    scene.rescue().await;
    let info = WorkerInfo::new(worker, "back:1", [QueueName::default_queue()], HOURS);
    scene.broker.register(info).await.unwrap();
    assert_eq!(scene.settle(worker, &lost, Verdict::Done).await, Settled::Stale);
    assert_eq!(scene.broker.renew(worker, HOURS).await.unwrap(), Renewal::Held);
    let again = scene.claim_one(worker).await;
    assert_eq!(scene.settle(worker, &lost, Verdict::Done).await, Settled::Stale);
    scene.apply(worker, &again, Verdict::Done).await;
    scene.sound().await;
}

/// A worker that ends gives all it holds back at once, as a lost delivery.
pub async fn retiring_hands_back_at_once(scene: &Scene) {
    let (gone, alive) = (scene.worker().await, scene.worker().await);
    let stored = scene.fill("default", 3).await;
    let held = scene.claim(gone, 3).await;
    scene.apply(gone, &held[0], Verdict::Done).await;
    scene.broker.retire(gone).await.unwrap();
    assert_eq!(scene.settle(gone, &held[1], Verdict::Done).await, Settled::Stale);
    let mut back = Vec::new();
    for _ in 0..2 {
        let claimed = scene.claim_one(alive).await;
        assert_eq!((claimed.job.deliveries, claimed.job.attempt), (1, 0));
        scene.apply(alive, &claimed, Verdict::Done).await;
        back.push(claimed.job.id);
    }
    assert_eq!(back, stored[1..]);
    assert_eq!(scene.maintain().await.dead_workers, 0);
    assert_eq!(scene.figures("default").await.redelivered, 2);
    scene.sound().await;
}

/// Releasing everything and then retiring counts as no delivery and no attempt.
pub async fn an_orderly_stop_counts_nothing(scene: &Scene) {
    let (gone, alive) = (scene.worker().await, scene.worker().await);
    let stored = scene.fill("default", 20).await;
    let mut held = scene.claim(gone, 5).await;
    held.extend(scene.claim(gone, 5).await);
    assert_eq!(scene.settle_all(gone, &held, &Verdict::Release).await, [Settled::Applied; 10]);
    scene.broker.retire(gone).await.unwrap();
    let claimed = scene.claim(alive, 100).await;
    assert_eq!(ids(&claimed), stored);
    assert!(claimed.iter().all(|claimed| claimed.job.deliveries == 0 && claimed.job.attempt == 0));
    assert_eq!(scene.figures("default").await.redelivered, 0);
    scene.sound().await;
}

/// A dead worker loses what it held, not what it had settled.
pub async fn settled_jobs_are_not_rescued(scene: &Scene) {
    let dead = scene.worker_with("dead:1", SHORT, &[]).await;
    scene.fill("default", 6).await;
    let held = scene.claim(dead, 6).await;
    scene.apply(dead, &held[0], Verdict::Done).await;
    scene.apply(dead, &held[1], Verdict::Release).await;
    scene.apply(dead, &held[2], retry(HOURS, "x")).await;
    scene.apply(dead, &held[3], Verdict::Park).await;
    let rescued = scene.rescue().await;
    assert_eq!(rescued.redelivered, 2);
    for (claimed, deliveries) in [(&held[1], 0), (&held[2], 0), (&held[3], 0), (&held[4], 1), (&held[5], 1)] {
        assert_eq!(scene.details(claimed.job.id).await.job.deliveries, deliveries);
    }
    let again = scene.maintain().await;
    assert_eq!((again.dead_workers, again.redelivered), (0, 0), "nobody is rescued twice");
    scene.sound().await;
}

/// A rescue that is bounded goes on in the next round; the worker has lost its lease from the first one on.
pub async fn a_rescue_may_take_several_rounds(scene: &Scene) {
    let dead = scene.worker_with("dead:1", SHORT, &[]).await;
    let stored = scene.fill("default", 30).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.extend(scene.claim(dead, 10).await);
    }
    let mut options = MaintainOptions::default();
    options.limit = 7;
    let first = super::eventually("the rescue", || async {
        let round = scene.broker.maintain(options.clone()).await.unwrap();
        (round.redelivered > 0).then_some(round)
    })
    .await;
    assert_eq!(scene.broker.renew(dead, HOURS).await.unwrap(), Renewal::Lost);
    let (mut redelivered, mut more) = (first.redelivered, first.more);
    scene.sound().await;
    while more {
        let round = scene.broker.maintain(options.clone()).await.unwrap();
        redelivered += round.redelivered;
        more = round.more;
    }
    assert_eq!(redelivered, 30);
    for claimed in &held {
        assert_eq!(scene.settle(dead, claimed, Verdict::Done).await, Settled::Stale);
    }
    for id in stored {
        assert_eq!(scene.details(id).await.job.deliveries, 1);
    }
    scene.sound().await;
}

/// Any process may maintain at any time: a loss is counted once, however many look.
pub async fn two_rescuers_count_each_job_once(scene: &Scene) {
    let mut held: BTreeSet<JobId> = BTreeSet::new();
    for _ in 0..4 {
        let dead = scene.worker_with("dead:1", SHORT, &[]).await;
        scene.fill("default", 25).await;
        held.extend(ids(&scene.claim(dead, 25).await));
    }
    let rescuer = async |broker: &dyn celeriac_core::Broker| {
        let mut redelivered = 0;
        for _ in 0..50 {
            redelivered += broker.maintain(MaintainOptions::default()).await.unwrap().redelivered;
        }
        redelivered
    };
    let (a, b, c) = tokio::join!(rescuer(&*scene.broker), rescuer(&*scene.other), rescuer(&*scene.broker));
    let rest = scene.maintain_until("the last worker", |_| true).await.redelivered;
    super::eventually("the end of all workers", || async {
        scene.maintain().await;
        scene.broker.stats().await.unwrap().workers.is_empty().then_some(())
    })
    .await;
    for id in &held {
        assert_eq!(scene.details(*id).await.job.deliveries, 1);
    }
    assert!(a + b + c + rest <= 100, "{a} + {b} + {c} + {rest}");
    assert_eq!(scene.figures("default").await.redelivered, 100);
    scene.sound().await;
}

/// A registered worker is listed with what it said about itself.
pub async fn a_worker_is_shown_until_it_ends(scene: &Scene) {
    scene.declare(&["high"]).await;
    let id = WorkerId::from_uuid(Uuid::new_v4());
    let queues = [super::scene::queue_name("high"), QueueName::default_queue()];
    let mut info = WorkerInfo::new(id, "builder:9", queues.clone(), HOURS);
    info.concurrency = 12;
    info.tasks = vec![TaskInfo::new(&TaskSpec::new(task_name("mail")), Vec::new())];
    scene.broker.register(info).await.unwrap();
    let stats = scene.other.stats().await.unwrap();
    assert_eq!(stats.workers.len(), 1);
    let shown = &stats.workers[0];
    assert_eq!((shown.id, shown.label.as_str(), shown.concurrency), (id, "builder:9", 12));
    assert_eq!((&shown.queues[..], &shown.tasks[..]), (&queues[..], &[task_name("mail")][..]));
    assert!(shown.lease_left > Duration::ZERO);
    scene.broker.retire(id).await.unwrap();
    assert_eq!(scene.broker.stats().await.unwrap().workers, []);
    scene.sound().await;
}

/// What a worker said about its tasks outlives it; the newest word counts.
pub async fn tasks_are_remembered(scene: &Scene) {
    assert_eq!(scene.broker.tasks().await.unwrap(), []);
    let mut mail = TaskInfo::new(&TaskSpec::new(task_name("mail")), Vec::new());
    let bill = TaskInfo::new(&TaskSpec::new(task_name("bill")), Vec::new());
    let announce = async |tasks: Vec<TaskInfo>| {
        let id = WorkerId::from_uuid(Uuid::new_v4());
        let mut info = WorkerInfo::new(id, "host:1", [QueueName::default_queue()], HOURS);
        info.tasks = tasks;
        scene.broker.register(info).await.unwrap();
        scene.broker.retire(id).await.unwrap();
    };
    announce(vec![mail.clone()]).await;
    mail.parameters = vec![ParameterInfo { name: "to".into(), ty: "Option<String>".into() }];
    mail.ttl = Some(HOURS);
    announce(vec![mail.clone(), bill.clone()]).await;
    assert_eq!(scene.other.tasks().await.unwrap(), [bill, mail]);
    scene.sound().await;
}

/// Acknowledged before it ran: when its worker is lost, by its lease or by its end, it goes to the bin, not to another.
pub async fn acknowledged_jobs_run_at_most_once(scene: &Scene) {
    for retires in [true, false] {
        let lost = scene.worker_with("lost:1", SHORT, &[]).await;
        scene.fill("default", 2).await;
        let held: Vec<Claimed> = scene.claim(lost, 2).await;
        let receipts = vec![held[0].receipt];
        assert_eq!(scene.broker.acknowledge(lost, receipts).await.unwrap(), [Holding::Held]);
        if retires {
            scene.broker.retire(lost).await.unwrap();
        } else {
            let rescued = scene.rescue().await;
            assert_eq!((rescued.redelivered, rescued.buried), (1, 1));
        }
        let details = scene.details(held[0].job.id).await;
        assert_eq!((details.room, details.reason), (Room::Dead, Some(DeadReason::Interrupted)));
        let alive = scene.worker().await;
        let claimed = scene.claim(alive, 10).await;
        assert_eq!(ids(&claimed), [held[1].job.id], "the one that was not acknowledged comes again");
        scene.apply(alive, &claimed[0], Verdict::Done).await;
    }
    scene.sound().await;
}

/// After the acknowledgement the verdict still counts.
pub async fn an_acknowledged_job_may_end_well(scene: &Scene) {
    let worker = scene.worker().await;
    scene.fill("default", 2).await;
    let held = scene.claim(worker, 2).await;
    let receipts: Vec<Receipt> = held.iter().map(|claimed| claimed.receipt).collect();
    assert_eq!(scene.broker.acknowledge(worker, receipts.clone()).await.unwrap(), [Holding::Held; 2]);
    assert_eq!(scene.broker.acknowledge(worker, receipts).await.unwrap(), [Holding::Held; 2]);
    scene.apply(worker, &held[0], Verdict::Done).await;
    scene.apply(worker, &held[1], reject("no")).await;
    let figures = scene.figures("default").await;
    assert_eq!((figures.done, figures.dead, figures.held), (1, 1, 0));
    scene.sound().await;
}
