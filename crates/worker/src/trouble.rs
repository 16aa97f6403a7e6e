//! Calls that fail for a while: one line in the log at each change of state, and growing pauses between.

use std::time::Duration;

use celeriac_core::{Error, format_duration};
use tokio::time::Instant;

/// The state of one kind of call to the store.
#[derive(Debug)]
pub(crate) struct Trouble {
    operation: &'static str,
    failures: u32,
    since: Option<Instant>,
}

impl Trouble {
    /// No trouble yet with this operation, which is named as in "cannot …".
    pub(crate) const fn new(operation: &'static str) -> Self {
        Self { operation, failures: 0, since: None }
    }

    /// Notes a failure and gives the pause before the next try.
    pub(crate) fn failed(&mut self, error: &Error) -> Duration {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            tracing::warn!(
                code = %error.code(),
                "cannot {}: {}; trying again until it works",
                self.operation,
                error.full()
            );
        }
        self.failures = self.failures.saturating_add(1);
        pause(self.failures, fastrand::f64())
    }

    /// Notes a success.
    pub(crate) fn passed(&mut self) {
        if let Some(since) = self.since.take() {
            let outage =
                Duration::from_millis(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
            tracing::info!(
                failures = self.failures,
                "can {} again after {}",
                self.operation,
                format_duration(outage)
            );
            self.failures = 0;
        }
    }
}

/// The pause after the `failures`-th failure in a row: doubled each time up to [`LONGEST`], and spread over its
/// upper half by `random` in `[0, 1)`, so that the workers of a store that comes back do not all knock at once.
pub(crate) fn pause(failures: u32, random: f64) -> Duration {
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST);
    doubled.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// Long enough for a lock to be released.
const FIRST: Duration = Duration::from_millis(50);

/// Short enough that a worker is back within seconds of its store, and within any lease.
const LONGEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_are_spread() {
        assert_eq!(pause(1, 1.0), FIRST);
        assert_eq!(pause(2, 1.0), FIRST * 2);
        assert_eq!(pause(50, 1.0), LONGEST);
        assert_eq!(pause(u32::MAX, 0.0), LONGEST / 2);
        assert!(pause(3, 0.2) < pause(3, 0.8));
    }
}
