//! Another library, written by others, as a second opinion. Where it differs, the reason stands here.

use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Timetable, Zone};
use chrono::{DateTime, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::parser::{CronParser, Seconds};
use proptest::prelude::*;

use crate::against_scanner::expression;
use crate::scanner::{changes, minute_of};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The language, without clock changes.
    #[test]
    fn the_language_means_the_same(text in expression(), from in 946_684_800i64..2_145_916_800) {
        prop_assume!(!reads_day_fields_otherwise(&text));
        let Some(theirs) = theirs(&text) else {
            prop_assert!(is_unknown_there(&text), "{}", text);
            return Ok(());
        };
        let mine = mine(&text, Tz::UTC, from, COUNT);
        let far = mine.last().copied().unwrap_or(i64::MAX);
        prop_assert_eq!(theirs.fires(Tz::UTC, from, far, COUNT), mine, "{} from {}", text, from);
    }

    /// Clock changes, for what both call named times: one hour and one minute.
    #[test]
    fn named_times_are_moved_alike(
        hour in 0u32..5,
        minute in 0u32..60,
        zone in prop::sample::select(&TZ_VARIANTS[..]),
        year in 2000..2038,
        near in any::<prop::sample::Index>(),
    ) {
        let around = changes(zone, minute_of(year, 1, 1), minute_of(year + 1, 1, 1));
        prop_assume!(!around.is_empty());
        let from = (near.get(&around) - 36 * 60) * 60;
        let text = format!("{minute} {hour} * * *");
        let theirs = theirs(&text).unwrap();
        let mine = mine(&text, zone, from, 4);
        prop_assert_eq!(theirs.fires(zone, from, mine[3], 4), mine, "{} in {} from {}", text, zone, from);
    }
}

#[test]
fn known_differences() {
    let new_year = minute_of(2027, 1, 1) * 60;
    // Ranges that wrap are unknown there.
    assert!(theirs("0 22-2 * * *").is_none());
    assert_eq!(mine("0 22-2 * * *", Tz::UTC, new_year, 1), [new_year + 3600]);
}

/// `*/2` in a day field. Vixie's source takes any field that starts with `*` as a star, so the other field must match too. They take
/// only a bare `*` so, and for them either is enough.
fn reads_day_fields_otherwise(text: &str) -> bool {
    let fields: Vec<&str> = text.split(' ').collect();
    let (days, weekdays) = (fields[2], fields[4]);
    (days.starts_with("*/") && weekdays != "*") || (weekdays.starts_with("*/") && days != "*")
}

/// What their parser refuses and ours reads: ranges that wrap, and steps larger than what is left of the range.
fn is_unknown_there(text: &str) -> bool {
    text.split([' ', ',']).any(|part| part.contains('-') || part.contains('/'))
}

/// Its reading of an expression; none where the languages differ.
fn theirs(text: &str) -> Option<Theirs> {
    CronParser::builder().seconds(Seconds::Optional).sloppy_ranges(true).build().parse(text).ok().map(Theirs)
}

struct Theirs(croner::Cron);

impl Theirs {
    fn fires(&self, zone: Tz, from: i64, until: i64, count: usize) -> Vec<i64> {
        let start = DateTime::from_timestamp(from, 0).unwrap().with_timezone(&zone);
        self.0
            .iter_after(start)
            .map(|fire| fire.with_timezone(&Utc).timestamp())
            .take_while(|fire| *fire <= until)
            .take(count)
            .collect()
    }
}

fn mine(text: &str, zone: Tz, from: i64, count: usize) -> Vec<i64> {
    let timetable = Timetable::Cron(Cron::parse(text).unwrap(), Zone::parse(zone.name()).unwrap());
    let far = Timestamp::from_micros(i64::MAX);
    timetable
        .fires_between(Timestamp::from_micros(from * 1_000_000), far, count)
        .iter()
        .map(|fire| fire.at.as_micros() / 1_000_000)
        .collect()
}

const COUNT: usize = 20;
