use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Fire, Moved, Timetable, Zone};
use chrono_tz::{TZ_VARIANTS, Tz};
use proptest::prelude::*;

use crate::scanner::{Minute, Pattern, changes, minute_of};

/// Every clock change of these zones from 2000 to 2037, three days around each.
#[test]
fn every_clock_change_of_many_zones() {
    let mut seen = 0;
    for name in ZONES {
        let zone: Tz = name.parse().unwrap();
        for change in changes(zone, minute_of(2000, 1, 1), minute_of(2038, 1, 1)) {
            // Which expressions meet which change goes round, so that each zone sees all of them.
            for (index, text) in EXPRESSIONS.iter().enumerate() {
                if (index + seen) % EXPRESSIONS.len() == 0 {
                    compare(text, zone, change - 25 * 60, change + 26 * 60);
                }
            }
            seen += 1;
        }
    }
    assert!(seen > 1_000, "{seen} changes");
}

#[test]
fn whole_years_of_single_zones() {
    for (name, year) in [("Australia/Lord_Howe", 2030), ("Africa/Casablanca", 2026)] {
        for text in ["45 1-2 * * *", "*/45 1-3 L * 0"] {
            compare(text, name.parse().unwrap(), minute_of(year, 1, 1), minute_of(year + 1, 1, 1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn any_expression_in_any_zone(
        text in expression(),
        zone in prop::sample::select(&TZ_VARIANTS[..]),
        year in 2000..2038,
        day in 0i64..365,
        near in any::<prop::sample::Index>(),
        at_change in any::<bool>(),
    ) {
        let start = minute_of(year, 1, 1);
        let around = changes(zone, start, minute_of(year + 1, 1, 1));
        let middle = match at_change && !around.is_empty() {
            true => *near.get(&around),
            false => start + day * 1440,
        };
        compare(&text, zone, middle - 2 * 1440, middle + 5 * 1440);
    }
}

/// Expressions as people write them, and as they do not.
pub(crate) fn expression() -> impl Strategy<Value = String> {
    let days = prop_oneof![
        4 => Just("*".to_owned()),
        4 => field(1, 31),
        1 => Just("L".to_owned()),
        1 => Just("LW".to_owned()),
        1 => (1u32..=31).prop_map(|day| format!("{day}W")),
        1 => (1u32..=31).prop_map(|day| format!("{day},L")),
    ];
    let weekdays = prop_oneof![
        4 => Just("*".to_owned()),
        4 => field(0, 6),
        1 => (0u32..=7).prop_map(|day| format!("{day}L")),
        1 => (0u32..=7, 1u32..=5).prop_map(|(day, n)| format!("{day}#{n}")),
    ];
    let months = prop_oneof![6 => Just("*".to_owned()), 1 => field(1, 12)];
    let hours = prop_oneof![2 => field(0, 23), 2 => field(0, 3)];
    (field(0, 59), hours, days, months, weekdays)
        .prop_map(|(minutes, hours, days, months, weekdays)| {
            format!("{minutes} {hours} {days} {months} {weekdays}")
        })
        .prop_filter("it has a day", |text| Cron::parse(text).is_ok())
}

fn field(low: u32, high: u32) -> impl Strategy<Value = String> {
    let one = low..=high;
    prop_oneof![
        2 => Just("*".to_owned()),
        1 => (1..=high).prop_map(|step| format!("*/{step}")),
        3 => one.clone().prop_map(|value| value.to_string()),
        2 => (one.clone(), one.clone()).prop_map(|(a, b)| format!("{a}-{b}")),
        1 => (one.clone(), one.clone(), 1..=high).prop_map(|(a, b, step)| format!("{a}-{b}/{step}")),
        1 => (one.clone(), 1..=high).prop_map(|(a, step)| format!("{a}/{step}")),
        1 => prop::collection::vec(one, 2..5).prop_map(|values| {
            values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        }),
    ]
}

#[track_caller]
fn compare(text: &str, zone: Tz, from: i64, until: i64) {
    let timetable = Timetable::Cron(Cron::parse(text).unwrap(), Zone::parse(zone.name()).unwrap());
    let instant = |minute: i64| Timestamp::from_micros(minute * 60_000_000);
    let given: Vec<Minute> =
        timetable.fires_between(instant(from), instant(until), usize::MAX).iter().map(minute).collect();
    let expected = Pattern::read(text).scan(zone, from, until);
    assert_eq!(given, expected, "{text} in {zone} from {}", instant(from));
    let last = timetable.last_between(instant(from), instant(until));
    assert_eq!(last.as_ref().map(minute), expected.last().copied(), "the last of {text} in {zone}");
}

fn minute(fire: &Fire) -> Minute {
    let moved = match fire.moved {
        Moved::Fold => "fold",
        Moved::Gap => "gap",
        _ => "",
    };
    Minute { at: fire.at.as_micros() / 60_000_000, moved }
}

const EXPRESSIONS: [&str; 8] = [
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0-4 * * *",
    "*/20 * * * *",
    "30 * * * *",
    "10 */2 * * *",
    "0 1 L * 0",
    "59 23 * * *",
];

const ZONES: [&str; 26] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/London",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
];
