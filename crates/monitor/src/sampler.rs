use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use celeriac_core::{Broker, Sample, SampleOptions, format_duration};
use celeriac_metrics::StoreMeters;
use tokio::time::sleep;

/// Asks a store for its sample again and again, and shows it.
///
/// The store takes the sample once for all who ask, so this costs it one row a call, however many workers there are.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub(crate) latest: Arc<Latest>,
    period: Duration,
}

/// The newest sample that this process knows.
#[derive(Debug, Default)]
pub(crate) struct Latest(Mutex<Option<(Arc<Sample>, Instant)>>);

impl Sampler {
    pub(crate) fn new(period: Duration) -> Self {
        Self { latest: Arc::default(), period }
    }

    /// Never ends; to be spawned on the runtime that the broker was opened on.
    pub async fn run(self, broker: Arc<dyn Broker>) {
        let mut meters = StoreMeters::new();
        let mut since: Option<Instant> = None;
        loop {
            let mut options = SampleOptions::default();
            options.max_age = self.period;
            match broker.sample(options).await {
                Ok(sampled) => {
                    meters.show(&sampled);
                    if let Some(since) = since.take() {
                        let outage = Duration::from_secs(since.elapsed().as_secs());
                        tracing::info!(
                            "can read the store's figures again after {}",
                            format_duration(outage)
                        );
                    }
                    self.latest.set(Arc::new(sampled.sample), sampled.age);
                }
                Err(error) => {
                    meters.unreachable(&error);
                    if since.is_none() {
                        since = Some(Instant::now());
                        tracing::warn!(code = %error.code(), "cannot read the store's figures: {}", error.full());
                    }
                }
            }
            sleep(self.period).await;
        }
    }
}

impl Latest {
    fn set(&self, sample: Arc<Sample>, age: Duration) {
        let now = Instant::now();
        // A process that is younger than the sample knows no instant so old.
        *self.lock() = Some((sample, now.checked_sub(age).unwrap_or(now)));
    }

    /// The sample and its age now.
    pub(crate) fn get(&self) -> Option<(Arc<Sample>, Duration)> {
        self.lock().as_ref().map(|(sample, taken)| (Arc::clone(sample), taken.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Sample>, Instant)>> {
        // A pointer and an instant stay valid whatever panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
