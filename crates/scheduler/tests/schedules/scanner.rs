//! A second, slow reading of the rules: it looks at every minute, one after the other.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, Days, NaiveDate, Offset, TimeZone};
use chrono_tz::Tz;

/// Five fields. Written to be plainly right, not fast; it knows numbers alone, no names.
#[derive(Debug)]
pub(crate) struct Pattern {
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: Vec<String>,
    months: BTreeSet<u32>,
    weekdays: Vec<String>,
    named_times: bool,
}

/// A minute at which the pattern fires, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minute {
    pub(crate) at: i64,
    pub(crate) moved: &'static str,
}

impl Pattern {
    pub(crate) fn read(text: &str) -> Self {
        let [minutes, hours, days, months, weekdays] =
            text.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let set = |text: &str, low, high| list(text).iter().flat_map(|part| plain(part, low, high)).collect();
        Self {
            minutes: set(minutes, 0, 59),
            hours: set(hours, 0, 23),
            days: list(days),
            months: set(months, 1, 12),
            weekdays: list(weekdays),
            named_times: !minutes.starts_with('*') && !hours.starts_with('*'),
        }
    }

    /// The fires after `from` up to and with `until`, both in minutes since 1970.
    pub(crate) fn scan(&self, zone: Tz, from: i64, until: i64) -> Vec<Minute> {
        // No gap and no fold is longer than a day.
        let margin = 26 * 60;
        let start = from - margin;
        let walls: Vec<i64> = (start..=until + margin).map(|minute| minute + offset(zone, minute)).collect();
        let mut day_cache = (i64::MIN, false);
        let mut matches = |wall: i64| {
            let (day, minute) = (wall.div_euclid(1440), wall.rem_euclid(1440));
            if day_cache.0 != day {
                let date =
                    NaiveDate::from_ymd_opt(1970, 1, 1).unwrap() + Days::new(u64::try_from(day).unwrap());
                day_cache = (day, self.day_matches(date));
            }
            let minute = u32::try_from(minute).unwrap();
            day_cache.1 && self.hours.contains(&(minute / 60)) && self.minutes.contains(&(minute % 60))
        };
        let mut fires = Vec::new();
        let mut reached = walls[0];
        for (index, wall) in walls.iter().copied().enumerate() {
            let at = start + i64::try_from(index).unwrap();
            if at > until {
                break;
            }
            let fire = if self.named_times {
                // A named time fires when the clock shows it, or has jumped over it, for the first time.
                let named = (reached + 1..=wall).any(&mut matches);
                let again = || walls[index + 1..].iter().take(1500).any(|later| *later == wall);
                match named {
                    true if !matches(wall) => Some("gap"),
                    true if again() => Some("fold"),
                    true => Some(""),
                    false => None,
                }
            } else {
                matches(wall).then_some("")
            };
            reached = reached.max(wall);
            if let Some(moved) = fire.filter(|_| at > from) {
                fires.push(Minute { at, moved });
            }
        }
        fires
    }

    fn day_matches(&self, date: NaiveDate) -> bool {
        let day = self.days.iter().any(|part| month_day(part, date));
        let weekday = self.weekdays.iter().any(|part| week_day(part, date));
        let starred = self.days[0].starts_with('*') || self.weekdays[0].starts_with('*');
        self.months.contains(&date.month()) && if starred { day && weekday } else { day || weekday }
    }
}

/// The instants, in minutes since 1970, at which the offset changes between two others.
pub(crate) fn changes(zone: Tz, from: i64, until: i64) -> Vec<i64> {
    let mut changes = Vec::new();
    let mut minute = from;
    while minute < until {
        let step = 6 * 60;
        if offset(zone, minute) != offset(zone, minute + step) {
            changes.extend((minute + 1..=minute + step).find(|m| offset(zone, *m) != offset(zone, m - 1)));
        }
        minute += step;
    }
    changes
}

/// Minutes since 1970 of a date's start in UTC.
pub(crate) fn minute_of(year: i32, month: u32, day: u32) -> i64 {
    NaiveDate::from_ymd_opt(year, month, day).unwrap().and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp()
        / 60
}

/// Minutes by which the wall clock is ahead of UTC.
pub(crate) fn offset(zone: Tz, minute: i64) -> i64 {
    let utc = DateTime::from_timestamp(minute * 60, 0).unwrap().naive_utc();
    i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc() / 60)
}

/// `*`, `7`, `2-9`, and each of them with a step.
fn plain(part: &str, low: u32, high: u32) -> Vec<u32> {
    let (base, step) = part.split_once('/').unwrap_or((part, "1"));
    let number = |text: &str| text.parse::<u32>().unwrap();
    let (from, to) = match base.split_once('-') {
        Some((from, to)) => (number(from), number(to)),
        None if base == "*" => (low, high),
        None if part.contains('/') => (number(base), high),
        None => (number(base), number(base)),
    };
    let mut round: Vec<u32> = Vec::new();
    let mut value = from;
    loop {
        round.push(value);
        if value == to {
            break;
        }
        value = if value == high { low } else { value + 1 };
    }
    round.into_iter().step_by(usize::try_from(number(step)).unwrap()).collect()
}

fn month_day(part: &str, date: NaiveDate) -> bool {
    let in_month = |day: &NaiveDate| (day.year(), day.month()) == (date.year(), date.month());
    let month: Vec<NaiveDate> =
        (1..=31).filter_map(|day| NaiveDate::from_ymd_opt(date.year(), date.month(), day)).collect();
    let workdays = || month.iter().filter(|day| day.weekday().num_days_from_monday() < 5);
    match part.strip_suffix('W') {
        Some("L") => workdays().next_back() == Some(&date),
        Some(day) => {
            let Some(wanted) = date.with_day(day.parse().unwrap()) else { return false };
            workdays().min_by_key(|day| (**day - wanted).num_days().abs()) == Some(&date)
        }
        None if part == "L" => !in_month(&(date + Days::new(1))),
        None => plain(part, 1, 31).contains(&date.day()),
    }
}

fn week_day(part: &str, date: NaiveDate) -> bool {
    let weekday = date.weekday().num_days_from_sunday();
    let same = |text: &str| text.parse::<u32>().unwrap() % 7 == weekday;
    if let Some((day, n)) = part.split_once('#') {
        let earlier = (1..date.day()).filter(|day| (date.day() - day).is_multiple_of(7)).count();
        return same(day) && earlier + 1 == n.parse::<usize>().unwrap();
    }
    if let Some(day) = part.strip_suffix('L') {
        return same(day) && (date + Days::new(7)).month() != date.month();
    }
    // From a day on to the end of the week, which is Sunday as 7.
    if let Some((day, step)) = part.split_once('/')
        && let Ok(day) = day.parse::<u32>()
    {
        return (day..=7).step_by(step.parse().unwrap()).any(|day| day % 7 == weekday);
    }
    plain(part, 0, 6).contains(&weekday)
}
