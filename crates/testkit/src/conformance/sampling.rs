//! Cases of [`Broker::sample`], and of the time that a claim carries.

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, Paused, QueueChange, SampleOptions, Sampled, Verdict};

use super::scene::{HOURS, Scene, task_name};

/// Taken anew, whatever there is.
const NOW: Duration = Duration::ZERO;

async fn sample(broker: &Arc<dyn Broker>, max_age: Duration) -> Sampled {
    let mut options = SampleOptions::default();
    options.max_age = max_age;
    broker.sample(options).await.unwrap()
}

/// The same numbers as in the figures, beside what only live workers tell.
pub async fn a_sample_has_the_figures_of_the_store(scene: &Scene) {
    let mut pause = QueueChange::default();
    pause.paused = Some(Paused::Yes);
    scene.change("halted", pause).await;
    let worker = scene.worker_with("host:1", HOURS, &["known"]).await;
    let mut unknown = scene.job("default");
    unknown.task = task_name("unknown");
    scene.put(vec![unknown]).await;
    let claimed = scene.claim_one(worker).await;
    scene.apply(worker, &claimed, Verdict::Park).await;
    scene.fill("default", 5).await;
    scene.claim(worker, 2).await;
    let sampled = sample(&scene.broker, NOW).await;
    assert!(sampled.sample.taken_at.is_some());
    assert_eq!(sampled.sample.workers, 1);
    assert_eq!(sampled.sample.orphans, [(task_name("unknown"), 1)]);
    let find = |name: &str| {
        let queue = sampled.sample.queues.iter().find(|queue| queue.name.as_str() == name);
        queue.unwrap().figures.clone()
    };
    let figures = find("default");
    assert_eq!((figures.ready, figures.held, figures.parked, figures.enqueued), (3, 2, 1, 6));
    assert_eq!((figures.workers, figures.slots, figures.paused), (1, 1, 0));
    assert!(figures.oldest_due.is_some());
    let halted = find("halted");
    assert_eq!((halted.workers, halted.slots, halted.paused), (0, 0, 1));
}

/// Whoever asks later gets what the first took, until it is too old for him.
pub async fn a_fresh_sample_is_shared(scene: &Scene) {
    let first = sample(&scene.broker, HOURS).await.sample;
    scene.fill("default", 4).await;
    assert_eq!(sample(&scene.other, HOURS).await.sample, first);
    assert_eq!(sample(&scene.broker, HOURS).await.sample, first);
    let anew = sample(&scene.other, NOW).await.sample;
    assert_eq!(anew.queues[0].figures.ready, 4);
    assert!(anew.taken_at > first.taken_at);
    assert_eq!(sample(&scene.broker, HOURS).await.sample, anew);
}

/// Nobody waits for the one who is at it, and nobody goes away without figures.
pub async fn of_many_who_ask_all_get_figures(scene: &Scene) {
    scene.fill("default", 3).await;
    let askers: Vec<_> = (0..16)
        .map(|number| {
            let broker = Arc::clone(if number % 2 == 0 { &scene.broker } else { &scene.other });
            tokio::spawn(async move { sample(&broker, HOURS).await })
        })
        .collect();
    for asker in askers {
        let sampled = asker.await.unwrap();
        assert_eq!(sampled.sample.queues[0].figures.ready, 3);
    }
    let kept = sample(&scene.broker, HOURS).await.sample;
    assert_eq!(sample(&scene.other, HOURS).await.sample, kept);
}

/// By the store's clock: not before the job was due, and not long after.
pub async fn a_claim_knows_its_time(scene: &Scene) {
    let worker = scene.worker().await;
    scene.put_one().await;
    let first = scene.claim_one(worker).await;
    let waited = first.claimed_at.since(first.job.due_at);
    assert!(waited < Duration::from_secs(300), "{waited:?}");
    // An engine may know it a little less exactly than it knows when the job came.
    let early = first.job.due_at.since(first.claimed_at);
    assert!(early < Duration::from_secs(1), "{early:?}");
    scene.put_one().await;
    assert!(scene.claim_one(worker).await.claimed_at >= first.claimed_at);
}
