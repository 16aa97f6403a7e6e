use std::fmt;
use std::str::FromStr;

use celeriac_core::nearest;
use chrono::{DateTime, FixedOffset, NaiveDateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

/// A time zone by its IANA name, such as `Europe/Berlin`. UTC by default.
///
/// Its rules are compiled in: every process of one version agrees on them, whatever its machine has installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Zone(Tz);

/// A text that is no time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such time zone: {value:?}{}; write an IANA name such as Europe/Berlin or UTC", did_you_mean(*.nearest))]
pub struct ZoneError {
    /// What was given; only its beginning if it was long.
    pub value: String,
    /// The zone most like it.
    pub nearest: Option<&'static str>,
}

/// What a time of the wall clock stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It comes twice. Instants in seconds since 1970.
    Fold { first: i64, second: i64 },
    /// It never comes: the clock jumps over it at this instant.
    Gap { end: i64 },
    /// It comes once.
    Once(i64),
}

impl Zone {
    /// Coordinated Universal Time, without clock changes.
    pub const UTC: Self = Self(Tz::UTC);

    /// Reads an IANA name, as it is written there.
    ///
    /// # Errors
    /// [`ZoneError`] offers the name most like it.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        let trimmed = text.trim();
        trimmed.parse::<Tz>().map(Self).map_err(|_| {
            let value: String = trimmed.chars().take(64).collect();
            let same = |tz: &&Tz| tz.name().eq_ignore_ascii_case(&value);
            let nearest = match TZ_VARIANTS.iter().find(same) {
                Some(tz) => Some(tz.name()),
                None => nearest(&value, TZ_VARIANTS.iter().map(|tz| tz.name())),
            };
            ZoneError { value, nearest }
        })
    }

    /// The IANA name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// The version of the zone rules that are compiled in, such as `2025b`.
    pub const fn rules_version() -> &'static str {
        chrono_tz::IANA_TZDB_VERSION
    }

    /// What the wall clock shows at an instant, in seconds since 1970.
    pub(crate) fn wall(self, instant: i64) -> Option<NaiveDateTime> {
        let utc = DateTime::from_timestamp(instant, 0)?.naive_utc();
        utc.checked_add_offset(self.offset(utc))
    }

    /// An instant with its offset, for people.
    pub(crate) fn local(self, instant: i64) -> Option<DateTime<FixedOffset>> {
        let utc = DateTime::from_timestamp(instant, 0)?;
        Some(utc.with_timezone(&self.offset(utc.naive_utc())))
    }

    /// When the wall clock shows `wall`.
    pub(crate) fn read(self, wall: NaiveDateTime) -> Option<Reading> {
        let found = self.0.from_local_datetime(&wall);
        match (found.earliest(), found.latest()) {
            (Some(first), Some(second)) if first == second => Some(Reading::Once(first.timestamp())),
            (Some(first), Some(second)) => {
                Some(Reading::Fold { first: first.timestamp(), second: second.timestamp() })
            }
            _ => {
                // No zone is as far from UTC as two days, and none changes its clock twice in four.
                let middle = wall.and_utc().timestamp();
                let reach = TimeDelta::days(2).num_seconds();
                let reached = |instant| self.wall(instant).is_some_and(|shown| shown >= wall);
                Some(Reading::Gap { end: first_that(middle - reach, middle + reach, reached) })
            }
        }
    }

    /// The instant of the clock change between two instants that have different offsets.
    pub(crate) fn change_between(self, before: i64, after: i64) -> i64 {
        let offset_at =
            |instant| DateTime::from_timestamp(instant, 0).map(|utc| self.offset(utc.naive_utc()));
        let old = offset_at(before);
        first_that(before, after, |instant| offset_at(instant) != old)
    }

    fn offset(self, utc: NaiveDateTime) -> FixedOffset {
        self.0.offset_from_utc_datetime(&utc).fix()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// The first instant after `low` for which `test` holds, if it does at `high` and does not at `low`.
fn first_that(mut low: i64, mut high: i64, test: impl Fn(i64) -> bool) -> i64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if test(middle) { high = middle } else { low = middle }
    }
    high
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}
