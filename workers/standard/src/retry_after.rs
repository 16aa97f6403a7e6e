use std::time::{Duration, SystemTime};

/// Reads the value of a `Retry-After` header: seconds, or an HTTP date in any of its three forms.
///
/// A date is compared with the answer's own `Date` where there is one, so that two clocks which disagree do not
/// matter; else with `now`. The result is within [`SHORTEST`] and [`LONGEST`].
pub(crate) fn parse(value: &str, date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let after = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are meant as "very long".
        value.parse().map_or(LONGEST, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(value).ok()?;
        let from = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
        until.duration_since(from).unwrap_or_default()
    };
    Some(after.clamp(SHORTEST, LONGEST))
}

/// A server that asks for "now" while it refuses would use all attempts up within a moment.
const SHORTEST: Duration = Duration::from_secs(1);

/// No server may put a job off for longer than a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// 6 November 1994, 08:49:37, the example of the standard.
    fn example() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(parse("120", None, example()), Some(Duration::from_secs(120)));
        assert_eq!(parse(" 7 ", None, example()), Some(Duration::from_secs(7)));
    }

    #[test]
    fn all_three_forms_of_a_date_are_read() {
        let now = example() - Duration::from_secs(37);
        for date in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(date, None, now), Some(Duration::from_secs(37)), "{date}");
        }
    }

    #[test]
    fn the_servers_own_clock_goes_before_ours() {
        let ours = example() + Duration::from_secs(100_000);
        let after = parse("Sun, 06 Nov 1994 08:49:37 GMT", Some("Sun, 06 Nov 1994 08:49:27 GMT"), ours);
        assert_eq!(after, Some(Duration::from_secs(10)));
    }

    #[test]
    fn the_delay_is_bounded_in_both_directions() {
        assert_eq!(parse("0", None, example()), Some(SHORTEST));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT", None, example()), Some(SHORTEST));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT", None, SystemTime::now()), Some(SHORTEST));
        assert_eq!(parse("99999999", None, example()), Some(LONGEST));
        assert_eq!(parse("99999999999999999999999999", None, example()), Some(LONGEST));
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT", None, example()), Some(LONGEST));
    }

    #[test]
    fn anything_else_is_no_delay() {
        for value in ["", "soon", "-5", "1.5", "5s", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse(value, None, example()), None, "{value:?}");
        }
    }
}
