//! Cases of [`Broker::wait`]: a hint, but one that comes.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use celeriac_core::{Broker, Claimed, Paused, QueueChange, Room, Start, Verdict, WaitOptions, WorkerId};
use tokio::task::JoinHandle;

use super::scene::{HOURS, Scene, claim_options, queue_name};

/// The poll underneath every wait of these cases. A job that comes much sooner was announced.
const POLL: Duration = Duration::from_secs(40);

/// What is still taken for an announcement, on a machine that is busy with other things.
const PROMPT: Duration = Duration::from_secs(20);

/// Waits and claims as a worker does, until there is a job. Gives it, and how long it took.
fn idle_worker(broker: &Arc<dyn Broker>, worker: WorkerId) -> JoinHandle<(Claimed, Duration)> {
    let broker = Arc::clone(broker);
    tokio::spawn(async move {
        let started = Instant::now();
        loop {
            let mut claimed = broker.claim(claim_options(worker, &["default"], 1)).await.unwrap();
            if let Some(claimed) = claimed.pop() {
                return (claimed, started.elapsed());
            }
            broker.wait(WaitOptions::new([queue_name("default")], POLL)).await.unwrap();
        }
    })
}

/// Lets an idle worker begin to wait, makes something happen, and asserts that it did not sleep through it.
async fn wakes(scene: &Scene, event: impl AsyncFnOnce()) {
    let worker = scene.worker().await;
    let idle = idle_worker(&scene.broker, worker);
    // Gives the worker time to fall asleep. Should it not be enough, the case passes all the same.
    tokio::time::sleep(Duration::from_millis(50)).await;
    event().await;
    let (claimed, took) = idle.await.unwrap();
    assert!(took < PROMPT, "the job came after {took:?}: nobody announced it");
    scene.apply(worker, &claimed, Verdict::Done).await;
    scene.sound().await;
}

/// With nothing to wait for, a wait ends when its time is over.
pub async fn a_wait_ends_at_its_limit(scene: &Scene) {
    let worker = scene.worker().await;
    assert!(scene.claim(worker, 1).await.is_empty());
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        scene.broker.wait(WaitOptions::new([queue_name("default")], limit)).await.unwrap();
        scene.broker.wait(WaitOptions::new([], limit)).await.unwrap();
    }
    scene.sound().await;
}

/// An enqueue through the same handle.
pub async fn an_enqueue_wakes_who_waits(scene: &Scene) {
    wakes(scene, async || {
        scene.put_one().await;
    })
    .await;
}

/// An enqueue through another handle: another process, if the engine serves several.
pub async fn an_enqueue_elsewhere_wakes_who_waits(scene: &Scene) {
    for _ in 0..5 {
        wakes(scene, async || {
            scene.other.enqueue(vec![scene.job("default")], Default::default()).await.unwrap();
        })
        .await;
    }
}

/// A job that another worker gives back.
pub async fn a_release_wakes_who_waits(scene: &Scene) {
    let holder = scene.worker().await;
    scene.put_one().await;
    let claimed = scene.claim_one(holder).await;
    wakes(scene, async || scene.apply(holder, &claimed, Verdict::Release).await).await;
}

/// A job of a worker that has gone.
pub async fn a_rescue_wakes_who_waits(scene: &Scene) {
    let holder = scene.worker().await;
    scene.put_one().await;
    scene.claim_one(holder).await;
    wakes(scene, async || scene.other.retire(holder).await.unwrap()).await;
}

/// A queue that goes on.
pub async fn a_resumed_queue_wakes_who_waits(scene: &Scene) {
    let mut change = QueueChange::default();
    change.paused = Some(Paused::Yes);
    scene.change("default", change.clone()).await;
    scene.put_one().await;
    change.paused = Some(Paused::No);
    wakes(scene, async || {
        scene.other.declare(queue_name("default"), change).await.unwrap();
    })
    .await;
}

/// A delayed job that maintenance, anywhere, moved to its queue.
pub async fn a_due_job_wakes_who_waits(scene: &Scene) {
    let mut job = scene.job("default");
    job.start = Start::After(Duration::from_millis(80));
    let id = scene.put(vec![job]).await[0];
    wakes(scene, async || {
        // The worker may claim it, and settle nothing, before this looks again: then it is in `jobs` all the same.
        super::eventually("the promotion", || async {
            scene.other.maintain(Default::default()).await.unwrap();
            (scene.room(id).await == Some(Room::Jobs)).then_some(())
        })
        .await;
    })
    .await;
}

/// A job that was left over by the last claim, or came since, ends the wait at once.
pub async fn a_job_that_is_there_ends_the_wait(scene: &Scene) {
    let worker = scene.worker_with("host:1", HOURS, &[]).await;
    assert!(scene.claim(worker, 1).await.is_empty());
    scene.put_one().await;
    let started = Instant::now();
    scene.broker.wait(WaitOptions::new([queue_name("default")], POLL)).await.unwrap();
    assert!(started.elapsed() < PROMPT, "the job was there already");
    scene.claim_one(worker).await;
    scene.sound().await;
}
