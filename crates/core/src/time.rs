use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// An instant of the store's clock, in microseconds since the Unix epoch (UTC).
///
/// Microseconds are what PostgreSQL keeps; 64 bits last until the year 294,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A text that is no duration, with what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is no duration: {problem}; write a number with its unit, such as 250ms, 30s, 10m, 2h or 1h 30m"
)]
pub struct InvalidDuration {
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// From the system's representation. Instants before 1970 become 1970.
    pub fn from_system_time(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// As the system's representation. Instants before 1970 become 1970.
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(u64::try_from(self.0).unwrap_or(0))
    }

    /// This instant and `duration` more; stays at the far end instead of overflowing.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// From RFC 3339 text, such as `2027-01-31T08:30:00Z`.
    ///
    /// # Errors
    /// [`InvalidDuration`] is not meant here; the text of the problem comes back as it is.
    pub fn parse_rfc3339(text: &str) -> Result<Self, String> {
        humantime::parse_rfc3339_weak(text)
            .map(Self::from_system_time)
            .map_err(|error| format!("{text:?} is no instant ({error}); write it as 2027-01-31T08:30:00Z"))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter panics past the year 9999.
        const LAST: i64 = 253_402_300_799_999_999;
        let shown = Self(self.0.clamp(0, LAST));
        humantime::format_rfc3339_millis(shown.to_system_time()).fmt(f)
    }
}

/// Reads `30s`, `10m`, `1h 30m`. A bare number is refused: its unit would be a guess.
///
/// # Errors
/// [`InvalidDuration`] says what is wrong and what is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let refuse = |problem: String| InvalidDuration { value: text.to_owned(), problem };
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(refuse("it is negative".to_owned()));
    }
    if trimmed == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = humantime::parse_duration(trimmed).map_err(|error| refuse(error.to_string()))?;
    // Past this bound a due time would leave the range of a timestamp; ten thousand years were meant by nobody.
    if duration.as_secs() > 315_360_000_000 {
        return Err(refuse("it is longer than 10,000 years".to_owned()));
    }
    Ok(duration)
}

/// Writes a duration as [`parse_duration`] reads it, without parts below a microsecond.
pub fn format_duration(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_micros(micros)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("1h 30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        assert!(parse_duration("5").unwrap_err().to_string().contains("with its unit"));
        assert!(parse_duration("-5s").unwrap_err().to_string().contains("negative"));
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("99999999999999999y").is_err());
        assert!(parse_duration("").is_err());
    }

    #[test]
    fn the_ends_of_time_print() {
        assert_eq!(Timestamp::from_micros(0).to_string(), "1970-01-01T00:00:00.000Z");
        let _ = Timestamp::from_micros(i64::MAX).to_string();
        let _ = Timestamp::from_micros(i64::MIN).to_string();
        assert_eq!(Timestamp::from_micros(5).since(Timestamp::from_micros(9)), Duration::ZERO);
    }
}
