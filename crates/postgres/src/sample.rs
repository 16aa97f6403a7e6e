//! The figures that the store keeps of itself.
//!
//! Whoever finds the sample too old takes the turn with one update of one row, which only one can win, and then reads
//! and keeps the figures. Nobody waits for another: who comes meanwhile gets the sample before. A turn whose taker died
//! comes again after the same time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use celeriac_core::{Result, Sample, SampleOptions, Sampled, StorageFigures, Timestamp};

use crate::broker::PostgresBroker;
use crate::row::instant;
use crate::statement::Statement;
use crate::store::micros;

/// The store's clock as this process knows it: asked for now and then, and counted on with our own monotonic clock in
/// between. Good for figures, never for a decision about a job.
#[derive(Debug, Default)]
pub(crate) struct StoreClock(Mutex<Option<(Timestamp, Instant)>>);

impl StoreClock {
    fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
    }

    /// Now, unless the clock was not asked lately.
    fn now(&self) -> Option<Timestamp> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (then, at) = known?;
        let passed = at.elapsed();
        (passed < ASKED_EVERY).then(|| then.saturating_add(passed))
    }
}

impl PostgresBroker {
    /// The store's clock, to some milliseconds.
    pub(crate) async fn about_now(&self) -> Result<Timestamp> {
        if let Some(now) = self.clock.now() {
            return Ok(now);
        }
        let now = self.store_now().await?;
        self.clock.set(now);
        Ok(now)
    }

    pub(crate) async fn share_sample(&self, options: &SampleOptions) -> Result<Sampled> {
        let (kept, now) = self.kept_sample().await?;
        let fresh = kept.taken_at.is_some_and(|taken| now.since(taken) < options.max_age);
        if fresh {
            return Ok(Sampled::new(kept, now));
        }
        let rows =
            self.store.query("take a sample", Statement::SampleTurn, &[&micros(options.max_age)]).await?;
        let Some(row) = rows.first() else {
            // Another has the turn. Before the very first sample there is nothing to share.
            if kept.taken_at.is_some() {
                return Ok(Sampled::new(kept, now));
            }
            let sample = Sample::take(&self.read_stats().await?, self.storage().await?, &kept, now);
            return Ok(Sampled::new(sample, now));
        };
        let before = Sample::from_text(row.get(0));
        let now = instant(row.get(1));
        let sample = Sample::take(&self.read_stats().await?, self.storage().await?, &before, now);
        self.store.query("keep a sample", Statement::SampleKeep, &[&sample.to_text()]).await?;
        Ok(Sampled::new(sample, now))
    }

    async fn kept_sample(&self) -> Result<(Sample, Timestamp)> {
        let rows = self.store.query("read the sample", Statement::Sample, &[]).await?;
        let Some(row) = rows.first() else { return Ok((Sample::default(), self.store_now().await?)) };
        let now = instant(row.get(1));
        self.clock.set(now);
        Ok((Sample::from_text(row.get(0)), now))
    }

    /// Sizes and dead rows by the server's own statistics: nothing is counted.
    async fn storage(&self) -> Result<StorageFigures> {
        let mut figures = StorageFigures::default();
        let number = |value: i64| u64::try_from(value).unwrap_or(0);
        for row in self.store.query("read the figures", Statement::SampleStorage, &[]).await? {
            let part: String = row.get(0);
            figures.bytes.insert(part.clone(), number(row.get(1)));
            figures.dead_rows.insert(part, number(row.get(2)));
            figures.oldest_snapshot =
                row.get::<_, Option<i64>>(3).map(|micros| Duration::from_micros(number(micros)));
            figures.connections = row.get::<_, Option<i64>>(4).map(number);
            figures.max_connections = row.get::<_, Option<i64>>(5).map(number);
        }
        Ok(figures)
    }
}

/// Between two looks at the server's clock. Two quartz clocks part by milliseconds in this time.
const ASKED_EVERY: Duration = Duration::from_secs(60);
