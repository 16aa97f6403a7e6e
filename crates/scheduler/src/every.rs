use std::fmt;
use std::time::Duration;

use celeriac_core::{Timestamp, format_duration};

/// A fixed interval, counted from an instant: the anchor, the anchor and one interval, and so on.
///
/// * The interval is one second to ten years, in whole microseconds.
/// * Ticks depend on the anchor alone. When a process starts, or is late, moves none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    interval: Duration,
    anchor: Timestamp,
}

/// An interval that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an interval of {} is out of bounds; allowed are 1s to 3650days", format_duration(*.interval))]
pub struct EveryError {
    /// What was given.
    pub interval: Duration,
}

impl Every {
    /// The shortest interval: what is needed more often is a loop, not a job.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest interval.
    pub const MAX: Duration = Duration::from_secs(3650 * 86_400);

    /// Each `interval`, counted from `anchor`. Parts of the interval below a microsecond are dropped.
    ///
    /// # Errors
    /// [`EveryError`] if the interval is shorter than [`MIN`](Self::MIN) or longer than [`MAX`](Self::MAX).
    pub fn new(interval: Duration, anchor: Timestamp) -> Result<Self, EveryError> {
        if !(Self::MIN..=Self::MAX).contains(&interval) {
            return Err(EveryError { interval });
        }
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        Ok(Self { interval: Duration::from_micros(micros), anchor })
    }

    /// The interval.
    pub const fn interval(self) -> Duration {
        self.interval
    }

    /// The instant from which it counts; the first tick.
    pub const fn anchor(self) -> Timestamp {
        self.anchor
    }

    /// The first tick after an instant. None at the end of time.
    pub(crate) fn next_after(self, after: Timestamp) -> Option<Timestamp> {
        if after < self.anchor {
            return Some(self.anchor);
        }
        // The interval has been checked to fit.
        let interval = i128::try_from(self.interval.as_micros()).ok()?;
        let anchor = i128::from(self.anchor.as_micros());
        let passed = (i128::from(after.as_micros()) - anchor) / interval;
        i64::try_from(anchor + (passed + 1) * interval).ok().map(Timestamp::from_micros)
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {}", format_duration(self.interval))
    }
}
