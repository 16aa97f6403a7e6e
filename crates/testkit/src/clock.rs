use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use celeriac_core::Timestamp;

/// A clock that moves only when a test says so.
///
/// Clones share one time. It starts in the year 2027, so that instants before "now" can be written down too.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// 2027-01-15T08:00:00Z.
    const START: i64 = 1_800_000_000_000_000;

    /// A clock at its start.
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(Self::START)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the reference store takes its time from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// A test moves it.
    Manual(ManualClock),
    /// The system's.
    Real,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Manual(clock) => clock.now(),
            Self::Real => Timestamp::from_system_time(SystemTime::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_time() {
        let clock = ManualClock::new();
        let before = clock.now();
        let same = clock.clone();
        same.advance(Duration::from_secs(3));
        assert_eq!(clock.now().since(before), Duration::from_secs(3));
    }
}
