use std::fmt;
use std::time::Duration;

use celeriac_core::Timestamp;
use chrono::{DateTime, Datelike, FixedOffset, NaiveDateTime, SecondsFormat, TimeDelta, Weekday};

use crate::cron_expression::Cron;
use crate::every::Every;
use crate::zone::{Reading, Zone};

/// When a periodic job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "a process has as many as it has schedules: tens")]
pub enum Timetable {
    /// By the clock on the wall of a zone.
    Cron(Cron, Zone),
    /// At a fixed interval, whatever the clocks on the walls do.
    Every(Every),
}

/// One time that a timetable gives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fire {
    /// When. It names the tick: a timetable gives each instant at most once.
    pub at: Timestamp,
    /// The same by the clock on the wall, as RFC 3339 with its offset: `2027-03-28T03:00:00+02:00`.
    pub local: String,
    /// The weekday there, such as `Mon`.
    pub weekday: &'static str,
    /// Whether a clock change had a say in it.
    pub moved: Moved,
}

/// What a clock change did to a fire. Only named times are ever moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moved {
    /// The time comes twice on that day. It fires the first time, and not again.
    Fold,
    /// The time does not exist on that day. It fires at the first instant after the gap.
    Gap,
    /// Nothing.
    No,
}

/// A timetable that gives no fire within [`Timetable::HORIZON_YEARS`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{timetable} does not fire within {} years after {from}", Timetable::HORIZON_YEARS)]
pub struct NeverFires {
    /// The timetable, as it prints.
    pub timetable: String,
    /// From when on was looked.
    pub from: Timestamp,
}

impl Timetable {
    /// How far ahead [`first_fire`](Self::first_fire) looks. 29 February is at most eight years away, and most often four.
    pub const HORIZON_YEARS: u32 = 5;

    /// The first fire after an instant. None past the year 2100, where the rules of zones end.
    pub fn next_after(&self, after: Timestamp) -> Option<Fire> {
        match self {
            Self::Cron(cron, zone) => {
                let after = after.as_micros().div_euclid(MICROS);
                // Before 1970 nothing was scheduled, and after 2100 nothing is known.
                if after >= END {
                    return None;
                }
                let (instant, moved) = next_tick(cron, *zone, after.max(-1))?;
                let at = Timestamp::from_micros(instant.checked_mul(MICROS)?);
                Some(Fire::new(at, zone.local(instant)?, moved))
            }
            Self::Every(every) => {
                let at = every.next_after(after)?;
                let utc = DateTime::from_timestamp_micros(at.as_micros())?;
                Some(Fire::new(at, utc.fixed_offset(), Moved::No))
            }
        }
    }

    /// The fires after `after` up to and with `until`, the earliest first, at most `limit` of them.
    pub fn fires_between(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Fire> {
        let mut fires = Vec::new();
        let mut from = after;
        while fires.len() < limit {
            let Some(fire) = self.next_after(from).filter(|fire| fire.at <= until) else { break };
            from = fire.at;
            fires.push(fire);
        }
        fires
    }

    /// The latest fire after `after` up to and with `until`. Costs the same whether there are three or three million between.
    pub fn last_between(&self, after: Timestamp, until: Timestamp) -> Option<Fire> {
        let next_in = |from: Timestamp| self.next_after(from).filter(|fire| fire.at <= until);
        let mut last = next_in(after)?;
        // The latest fire follows the latest instant that still has one after it.
        let (mut low, mut high) = (last.at.as_micros(), until.as_micros());
        while low < high {
            let middle = low + (high - low).div_euclid(2);
            match next_in(Timestamp::from_micros(middle)) {
                Some(fire) => {
                    low = fire.at.as_micros();
                    last = fire;
                }
                None => high = middle,
            }
        }
        Some(last)
    }

    /// The first fire after `from`, for a timetable that is about to be stored.
    ///
    /// # Errors
    /// [`NeverFires`] if there is none within [`HORIZON_YEARS`](Self::HORIZON_YEARS): such an entry is a mistake that nobody would see.
    pub fn first_fire(&self, from: Timestamp) -> Result<Fire, NeverFires> {
        // A leap day more than needed.
        let horizon = Duration::from_secs(u64::from(Self::HORIZON_YEARS) * 366 * 86_400);
        let until = match self {
            Self::Cron(..) => from.saturating_add(horizon),
            // An interval may be longer, and its next tick is never in doubt.
            Self::Every(_) => Timestamp::from_micros(i64::MAX),
        };
        self.next_after(from)
            .filter(|fire| fire.at <= until)
            .ok_or_else(|| NeverFires { timetable: self.to_string(), from })
    }

    /// A sentence in plain words, without a dot at its end.
    pub fn describe(&self) -> String {
        match self {
            Self::Cron(cron, Zone::UTC) => format!("{}, UTC", cron.describe()),
            Self::Cron(cron, zone) => format!("{}, {zone} time", cron.describe()),
            Self::Every(every) => every.to_string(),
        }
    }
}

impl Fire {
    fn new(at: Timestamp, local: DateTime<FixedOffset>, moved: Moved) -> Self {
        let weekday = match local.weekday() {
            Weekday::Mon => "Mon",
            Weekday::Tue => "Tue",
            Weekday::Wed => "Wed",
            Weekday::Thu => "Thu",
            Weekday::Fri => "Fri",
            Weekday::Sat => "Sat",
            Weekday::Sun => "Sun",
        };
        Self { at, local: local.to_rfc3339_opts(SecondsFormat::AutoSi, false), weekday, moved }
    }
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(cron, zone) => write!(f, "cron \"{cron}\" in {zone}"),
            Self::Every(every) => every.fmt(f),
        }
    }
}

/// The first instant after `after` at which the expression fires in the zone, in seconds since 1970.
fn next_tick(cron: &Cron, zone: Zone, after: i64) -> Option<(i64, Moved)> {
    if cron.follows_real_time() {
        next_real_time(cron, zone, after).map(|instant| (instant, Moved::No))
    } else {
        next_named_time(cron, zone, after)
    }
}

/// A named time fires when the wall clock first shows it or a later one.
fn next_named_time(cron: &Cron, zone: Zone, after: i64) -> Option<(i64, Moved)> {
    let shown = zone.wall(after)?;
    // The latest time that the wall clock has ever shown: in the second pass of a fold, the end of the first.
    let reached = match zone.read(shown)? {
        Reading::Fold { first, second } if after == second => {
            zone.wall(zone.change_between(first, second) - 1)?
        }
        _ => shown,
    };
    let next = cron.next_local(reached)?;
    Some(match zone.read(next)? {
        Reading::Once(instant) => (instant, Moved::No),
        Reading::Fold { first, .. } => (first, Moved::Fold),
        // Where the gap ends is perhaps a named time itself; then it is in its place.
        Reading::Gap { end } if cron.includes(zone.wall(end)?) => (end, Moved::No),
        Reading::Gap { end } => (end, Moved::Gap),
    })
}

/// In real time every instant at which the wall clock shows a matching time fires.
fn next_real_time(cron: &Cron, zone: Zone, after: i64) -> Option<i64> {
    let mut from = zone.wall(after)?;
    if let Reading::Fold { first, second } = zone.read(from)?
        && after == first
    {
        // The rest of the first pass; then the clock is set back.
        let change = zone.change_between(first, second);
        let instant = first + (cron.next_local(from)? - from).num_seconds();
        if instant < change {
            return Some(instant);
        }
        from = before(zone.wall(change)?)?;
    }
    loop {
        let next = cron.next_local(from)?;
        match zone.read(next)? {
            Reading::Once(instant) => return Some(instant),
            Reading::Fold { first, second } => return Some(if first > after { first } else { second }),
            // Nothing matches before the end of the gap. It is later than `next`, so the loop moves on.
            Reading::Gap { end } => from = before(zone.wall(end)?)?,
        }
    }
}

/// A second earlier.
fn before(wall: NaiveDateTime) -> Option<NaiveDateTime> {
    wall.checked_sub_signed(TimeDelta::seconds(1))
}

const MICROS: i64 = 1_000_000;
/// 2101-01-01 in UTC.
const END: i64 = 4_133_980_800;
