//! Durations as they are said, for `.delay(mins(10))`.

use std::time::Duration;

/// This many milliseconds.
pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// This many seconds.
pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// This many minutes. Beyond what a duration can hold, the longest duration.
pub const fn mins(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(60))
}

/// This many hours. Beyond what a duration can hold, the longest duration.
pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(60 * 60))
}

/// This many days of 24 hours. Beyond what a duration can hold, the longest duration.
pub const fn days(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(24 * 60 * 60))
}
