use std::time::{Duration, Instant};

use celeriac::core::{Broker, Error, QueueName, QueueStats, nearest};

use crate::age::short;
use crate::failure::Failure;
use crate::output::Output;
use crate::store::{Missing, Store};

/// What was seen of a queue.
pub(super) struct Observed {
    /// Jobs enqueued, a second.
    pub(super) rate: f64,
    /// From the claim to the verdict; none if no job ended.
    pub(super) run_time: Option<Duration>,
}

/// Looks at a queue twice.
///
/// # Errors
/// When there is no such queue, or no job came.
pub(super) async fn observe(
    store: &Store,
    queue: &QueueName,
    window: Duration,
    output: &mut Output,
) -> Result<Observed, Failure> {
    let broker = store.open(Missing::Refuse).await?;
    let before = look(&*broker, queue).await?;
    let started = Instant::now();
    output.remark(format_args!("looking at queue {queue} for {}", short(window)));
    tokio::time::sleep(window).await;
    let after = look(&*broker, queue).await?;
    let seconds = started.elapsed().as_secs_f64();
    let came = after.enqueued.saturating_sub(before.enqueued);
    if came == 0 {
        return Err(Failure::failed(
            "no_rate",
            format!("no job came to queue {queue} within {}; look longer with --window", short(window)),
        ));
    }
    let ended = verdicts(&after).saturating_sub(verdicts(&before));
    // Little's law: as many are held as end in the time that one is held.
    let held = (before.held + after.held) as f64 / 2.0;
    let run_time = (ended > 0 && held > 0.0)
        .then(|| Duration::from_secs_f64(held * seconds / ended as f64).max(Duration::from_millis(1)));
    Ok(Observed { rate: came as f64 / seconds, run_time })
}

async fn look(broker: &dyn Broker, queue: &QueueName) -> Result<QueueStats, Failure> {
    let queues = broker.stats().await?.queues;
    let names: Vec<String> = queues.iter().map(|stats| stats.name.to_string()).collect();
    let found = queues.into_iter().find(|stats| stats.name == *queue);
    found.ok_or_else(|| {
        let nearest = nearest(queue.as_str(), names.iter().map(String::as_str)).map(str::to_owned);
        Error::NoSuchQueue { queue: queue.clone(), nearest }.into()
    })
}

const fn verdicts(stats: &QueueStats) -> u64 {
    stats.done + stats.retried + stats.buried
}
