use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Broker, MaintainOptions};
use celeriac_metrics::WorkerMeters;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::trouble::Trouble;

/// Does the duties that any process may do, for as long as the worker lives.
pub(crate) async fn run_maintenance(broker: Arc<dyn Broker>, meters: Arc<WorkerMeters>) {
    loop {
        let mut rounds = JoinSet::new();
        rounds.spawn(run_rounds(Arc::clone(&broker), Arc::clone(&meters)));
        // They end only by a panic, and without them due and rescued jobs would wait for ever.
        if let Some(Err(error)) = rounds.join_next().await {
            tracing::error!("the maintenance failed and is started anew: {error}");
            sleep(AFTER_PANIC).await;
        }
    }
}

async fn run_rounds(broker: Arc<dyn Broker>, meters: Arc<WorkerMeters>) {
    let mut trouble = Trouble::new("do the maintenance");
    loop {
        let asked = Instant::now();
        let pause = match broker.maintain(MaintainOptions::default()).await {
            Ok(round) => {
                trouble.passed();
                meters.maintained(&round, asked.elapsed());
                if round.dead_workers > 0 {
                    tracing::warn!(
                        workers = round.dead_workers,
                        redelivered = round.redelivered,
                        buried = round.buried,
                        "took the jobs of dead workers back"
                    );
                }
                if round.mended > 0 {
                    tracing::error!(
                        jobs = round.mended,
                        "jobs that nothing led to were found and given back; unless a transaction was open for hours, \
                         this is an error of Celeriac: please report it"
                    );
                }
                if round.more {
                    // Let others have the store's lock in between.
                    tokio::task::yield_now().await;
                    continue;
                }
                next_round(round.next_due, fastrand::f64())
            }
            Err(error) => {
                meters.store_failed("maintain", &error);
                trouble.failed(&error)
            }
        };
        sleep(pause).await;
    }
}

/// The time until the next round: a second, spread over its upper half by `random` in `[0, 1)`, or less when a
/// scheduled job is due before.
fn next_round(next_due: Option<Duration>, random: f64) -> Duration {
    let usual = PERIOD.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0);
    next_due.map_or(usual, |due| due.max(SHORTEST).min(usual))
}

/// How late the rescue of a dead worker's jobs may be, beyond its lease.
const PERIOD: Duration = Duration::from_secs(1);

/// Between two rounds, whatever is due: jobs that are due within this time go together.
const SHORTEST: Duration = Duration::from_millis(10);

/// Before the maintenance is started anew after a panic, which may come again.
const AFTER_PANIC: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_job_shortens_the_pause() {
        assert_eq!(next_round(None, 1.0), PERIOD);
        assert_eq!(next_round(None, 0.0), PERIOD / 2);
        assert_eq!(next_round(Some(Duration::from_millis(70)), 0.5), Duration::from_millis(70));
        assert_eq!(next_round(Some(Duration::ZERO), 0.5), SHORTEST);
        assert_eq!(next_round(Some(Duration::from_secs(900)), 1.0), PERIOD);
    }
}
