//! Times as people say them: "3m ago", "in 2h 5m".

use std::time::{Duration, SystemTime};

use celeriac::core::Timestamp;

/// This machine's idea of the time, to say how long ago a store's instant was. It decides nothing.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_system_time(SystemTime::now())
}

/// How long before `now` the instant was.
pub(crate) fn ago(instant: Timestamp, now: Timestamp) -> String {
    let since = now.since(instant);
    if since < Duration::from_secs(1) { "just now".to_owned() } else { format!("{} ago", short(since)) }
}

/// How far after `now` the instant is.
pub(crate) fn ahead(instant: Timestamp, now: Timestamp) -> String {
    let left = instant.since(now);
    if left.is_zero() { "now".to_owned() } else { format!("in {}", short(left)) }
}

/// A duration in its two largest units.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |major: u64, unit: &str, minor: u64, small: &str| match minor {
        0 => format!("{major}{unit}"),
        _ => format!("{major}{unit} {minor}{small}"),
    };
    match duration {
        d if d < Duration::from_secs(1) => format!("{}ms", d.as_millis()),
        _ if minutes == 0 => format!("{seconds}s"),
        _ if hours == 0 => two(minutes, "m", seconds % 60, "s"),
        _ if days == 0 => two(hours, "h", minutes % 60, "m"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_in_two_units() {
        let said = [0, 59, 60, 185, 3600, 7500, 86_400, 100_000].map(|s| short(Duration::from_secs(s)));
        assert_eq!(said, ["0ms", "59s", "1m", "3m 5s", "1h", "2h 5m", "1d", "1d 3h"]);
        assert_eq!(short(Duration::from_millis(250)), "250ms");
    }

    #[test]
    fn instants_are_said_from_now() {
        let now = Timestamp::from_micros(1_000_000_000);
        assert_eq!(ago(Timestamp::from_micros(820_000_000), now), "3m ago");
        assert_eq!(ago(Timestamp::from_micros(2_000_000_000), now), "just now");
        assert_eq!(ahead(Timestamp::from_micros(1_300_000_000), now), "in 5m");
        assert_eq!(ahead(Timestamp::from_micros(0), now), "now");
    }
}
