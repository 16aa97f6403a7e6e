//! Another library, written by others, as a second opinion. Where it differs, the reason stands here.

use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Timetable, Zone};
use chrono::{DateTime, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::parser::{CronParser, Seconds};
use proptest::prelude::*;

use crate::against_scanner::expression;
use crate::scanner::{changes, minute_of, offset};

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
        // Through gaps of more than two hours they do not look: Samoa skipped a day, Antarctic stations three hours.
        let mut around = changes(zone, minute_of(year, 1, 1), minute_of(year + 1, 1, 1));
        around.retain(|change| offset(zone, *change) - offset(zone, change - 1) <= 120);
        // More than half of all zones and years have no change.
        if around.is_empty() {
            return Ok(());
        }
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
    // A day field that starts with a star and has a step: Vixie's source wants both fields, they take either. The first odd
    // date after New Year is a Sunday, the 3rd; the first Monday with an odd date is the 11th.
    let day = 86_400;
    assert_eq!(theirs("0 0 */2 * 1").unwrap().fires(Tz::UTC, new_year, i64::MAX, 1), [new_year + 2 * day]);
    assert_eq!(mine("0 0 */2 * 1", Tz::UTC, new_year, 1), [new_year + 10 * day]);
    // Several named times: for them a list recurs and is skipped with the gap, for us each time is named and is kept.
    let eve = minute_of(2027, 3, 27) * 60 + day / 2;
    let gap = minute_of(2027, 3, 28) * 60 + 3600;
    assert_eq!(
        theirs("0,30 2 * * *").unwrap().fires(Tz::Europe__Berlin, eve, i64::MAX, 1),
        [gap + day - 3600]
    );
    assert_eq!(mine("0,30 2 * * *", Tz::Europe__Berlin, eve, 1), [gap]);
    // A gap of a whole day: they give up, we fire at its end.
    let before = minute_of(2011, 12, 29) * 60 + 20 * 3600;
    let end = minute_of(2011, 12, 30) * 60 + 10 * 3600;
    assert_ne!(theirs("0 9 * * *").unwrap().fires(Tz::Pacific__Apia, before, i64::MAX, 1), [end]);
    assert_eq!(mine("0 9 * * *", Tz::Pacific__Apia, before, 1), [end]);
}

/// `*/2` in a day field. Vixie's source takes any field that starts with `*` as a star, so the other field must match too. They take
/// only a bare `*` so, and for them either is enough.
fn reads_day_fields_otherwise(text: &str) -> bool {
    let fields: Vec<&str> = text.split(' ').collect();
    let (days, weekdays) = (fields[2], fields[4]);
    (days.starts_with("*/") && weekdays != "*") || (weekdays.starts_with("*/") && days != "*")
}

/// What their parser refuses and ours reads: ranges that wrap.
fn is_unknown_there(text: &str) -> bool {
    text.split([' ', ',', '/'])
        .filter_map(|part| part.split_once('-'))
        .any(|(from, to)| from.parse::<u32>().unwrap() > to.parse::<u32>().unwrap())
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
