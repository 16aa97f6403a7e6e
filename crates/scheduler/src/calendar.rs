use chrono::{Datelike, NaiveDate, Weekday};

use crate::item::{Item, Values};

/// Which days both day fields allow together.
///
/// The rule of Vixie's cron: if one of the fields starts with `*`, a day must match both; if neither does, one is enough.
pub(crate) fn day_matches(days: &Values, weekdays: &Values, date: NaiveDate) -> bool {
    let day = field_matches(days, date.day(), date);
    let weekday = field_matches(weekdays, date.weekday().num_days_from_sunday(), date);
    if days.is_starred() || weekdays.is_starred() { day && weekday } else { day || weekday }
}

/// Whether the days of the month can ever occur in one of these months.
pub(crate) fn day_exists(days: &Values, months: &Values) -> bool {
    // 2024 is a leap year.
    let longest = months.list().into_iter().filter_map(|month| length_of(2024, u32::from(month))).max();
    let longest = longest.unwrap_or(31);
    days.items.iter().any(|item| match *item {
        Item::NearestWorkday(day) => u32::from(day) <= longest,
        Item::LastDay | Item::LastWorkday => true,
        _ => false,
    }) || days.list().first().is_some_and(|day| u32::from(*day) <= longest)
}

fn field_matches(values: &Values, value: u32, date: NaiveDate) -> bool {
    values.bits() >> value & 1 == 1 || values.items.iter().any(|item| item_matches(*item, date))
}

/// Whether an entry that depends on the month means this day.
fn item_matches(item: Item, date: NaiveDate) -> bool {
    let length = length_of(date.year(), date.month()).unwrap_or(31);
    let weekday_is = |day: u8| date.weekday().num_days_from_sunday() == u32::from(day);
    match item {
        Item::LastDay => date.day() == length,
        Item::LastOf(day) => weekday_is(day) && date.day() + 7 > length,
        Item::LastWorkday => nearest_workday(date, length, length) == Some(date.day()),
        Item::NearestWorkday(day) => nearest_workday(date, u32::from(day), length) == Some(date.day()),
        Item::NthOf(day, n) => weekday_is(day) && (date.day() - 1) / 7 + 1 == u32::from(n),
        Item::Span { .. } | Item::Star { .. } => false,
    }
}

/// The day from Monday to Friday that is nearest to `day` in the month of `date`.
fn nearest_workday(date: NaiveDate, day: u32, length: u32) -> Option<u32> {
    match date.with_day(day)?.weekday() {
        Weekday::Sat if day > 1 => Some(day - 1),
        Weekday::Sat => Some(day + 2),
        Weekday::Sun if day < length => Some(day + 1),
        Weekday::Sun => Some(day - 2),
        _ => Some(day),
    }
}

fn length_of(year: i32, month: u32) -> Option<u32> {
    let (year, month) = if month == 12 { (year.checked_add(1)?, 1) } else { (year, month + 1) };
    NaiveDate::from_ymd_opt(year, month, 1)?.pred_opt().map(|last| last.day())
}
