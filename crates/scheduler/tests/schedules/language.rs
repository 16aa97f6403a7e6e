use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Field, Timetable, Zone};

#[test]
fn expressions_print_in_one_form() {
    for (text, printed) in [
        ("  0  9 * *\tMon-Fri ", "0 9 * * Mon-Fri"),
        ("0 9 * * 1-5", "0 9 * * Mon-Fri"),
        ("0 9 * * monday-FRIDAY", "0 9 * * Mon-Fri"),
        ("0 9 * * 0,7", "0 9 * * Sun,Sun"),
        ("0 9 * 1,feb *", "0 9 * Jan,Feb *"),
        ("00 09 ? * ?", "0 9 * * *"),
        ("*/5 22-2/2 l lw *", "refused"),
        ("*/1 5/15 * * *", "* 5-23/15 * * *"),
        ("0 0 0 15w,L * 5l,1#3", "0 0 0 15W,L * FriL,Mon#3"),
        ("0 0 * * 0-7", "0 0 * * Sun-Sat"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@weekly", "0 0 * * Sun"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 Jan *"),
        ("@annually", "0 0 1 Jan *"),
    ] {
        match Cron::parse(text) {
            Ok(cron) => assert_eq!(cron.to_string(), printed),
            Err(error) => assert_eq!(printed, "refused", "{error}"),
        }
    }
    assert_eq!(Cron::parse("0 9 * * 1").unwrap(), Cron::parse("0 9 ? * Mon").unwrap());
}

#[test]
fn errors_point_at_the_place_and_say_what_is_allowed() {
    for (text, printed) in [
        ("0 25 * * *", "hours: 25 is too large; allowed are 0 to 23\n  0 25 * * *\n    ^^"),
        (
            "0 0 0 * *",
            "days of the month: 0 is too small; allowed are 1 to 31, L, LW and 15W\n  0 0 0 * *\n      ^",
        ),
        (
            "*/0 * * * *",
            "minutes: a step of 0 would never move on; a step is 1 or more\n  */0 * * * *\n    ^",
        ),
        (
            "*/90 * * * *",
            "minutes: a step of 90 is too large; allowed are 1 to 60, use an interval for more\n  */90 * * * *\n    ^^",
        ),
        (
            "0 9 * * Mon-Fry",
            "weekdays: \"Fry\" is not known here; allowed are 0 to 7, Sun to Sat, 5L and Fri#2\n  0 9 * * Mon-Fry\n              ^^^",
        ),
        ("1,,2 * * * *", "minutes: an entry of the list is empty\n  1,,2 * * * *\n    ^"),
        ("1- * * * *", "minutes: a range needs a value on both sides of its dash\n  1- * * * *\n    ^"),
        (
            "0 0 * * L",
            "weekdays: L stands after a single weekday: 5L and FriL are the last Friday\n  0 0 * * L\n          ^",
        ),
        (
            "0 0 * * 5#6",
            "weekdays: after # stands which one of the month, 1 to 5\n  0 0 * * 5#6\n            ^",
        ),
        (
            "0 0 W * *",
            "days of the month: W stands after a single day, such as 15W, or as LW\n  0 0 W * *\n      ^",
        ),
        ("? 0 * * *", "minutes: ? is for the day fields alone; write *\n  ? 0 * * *\n  ^"),
        (
            "* * * *",
            "it has 4 fields; write five: minutes, hours, days of the month, months and weekdays, or six with seconds in front\n  * * * *\n  ^^^^^^^",
        ),
        (
            "0 0 0 1 1 * 2027",
            "it has 7 fields, and years are not supported; write five: minutes, hours, days of the month, months and weekdays, or six with seconds in front\n  0 0 0 1 1 * 2027\n  ^^^^^^^^^^^^^^^^",
        ),
        (
            "",
            "the expression is empty; write five: minutes, hours, days of the month, months and weekdays, or six with seconds in front",
        ),
        (
            "@fortnightly",
            "it is not known; allowed are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually\n  @fortnightly\n  ^^^^^^^^^^^^",
        ),
        ("é * * * *", "minutes: \"é\" is not known here; allowed are 0 to 59\n  é * * * *\n  ^"),
        ("* é,99 * * *", "hours: \"é\" is not known here; allowed are 0 to 23\n  * é,99 * * *\n    ^"),
    ] {
        assert_eq!(Cron::parse(text).unwrap_err().to_string(), printed);
    }
}

#[test]
fn an_error_has_its_parts() {
    let error = Cron::parse("0 9 * 13 *").unwrap_err();
    assert_eq!((error.field(), error.span().clone()), (Some(Field::Months), 6..8));
    assert_eq!(error.problem(), "months: 13 is too large; allowed are 1 to 12 and Jan to Dec");
    assert_eq!(error.expression(), "0 9 * 13 *");
}

#[test]
fn hints_lead_on() {
    for (text, part) in [
        ("@reboot", "when the service starts"),
        ("@every 5m", "as an interval"),
        ("0 0 ?/2 * *", "write * with a step"),
        ("0 0 L/2 * *", "takes no step"),
        ("0 0 L-3 * *", "not known here"),
        ("0 0 1-5W * *", "a single day"),
        ("0 0 * * Mon-FriL", "a single weekday"),
        ("H * * * *", "not known here"),
    ] {
        let error = Cron::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text} gave {error}");
    }
}

#[test]
fn dates_that_no_year_has_are_refused() {
    for text in
        ["0 0 31 2 *", "0 0 30,31 2 *", "0 0 31 4,6,9,11 *", "0 0 30W 2 *", "0 0 31 2 */2", "0 0 31 2 ?"]
    {
        let error = Cron::parse(text).unwrap_err();
        assert_eq!(error.field(), Some(Field::Days), "{error}");
        assert!(error.problem().contains("no such day"), "{error}");
    }
    for text in ["0 0 29 2 *", "0 0 31 2,3 *", "0 0 31 2 Mon", "0 0 L 2 *", "0 0 31,1 2 *", "0 0 29W 2 *"] {
        assert!(Cron::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn what_does_not_fire_in_five_years_is_refused() {
    // The 29th of February that is a Sunday too: 2032, and then 2060.
    let rare = Timetable::Cron(Cron::parse("0 0 29 2 */7").unwrap(), Zone::UTC);
    let at = |text| Timestamp::parse_rfc3339(text).unwrap();
    let error = rare.first_fire(at("2033-01-01T00:00:00Z")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cron \"0 0 29 Feb */7\" in UTC does not fire within 5 years after 2033-01-01T00:00:00.000Z"
    );
    assert_eq!(rare.next_after(at("2033-01-01T00:00:00Z")).unwrap().local, "2060-02-29T00:00:00+00:00");
    assert!(rare.first_fire(at("2030-01-01T00:00:00Z")).is_ok());
    // Both fields must match, and the second Monday is never the first of a month.
    let never = Timetable::Cron(Cron::parse("0 0 */31 * Mon#2").unwrap(), Zone::UTC);
    assert!(never.first_fire(at("2027-01-01T00:00:00Z")).is_err());
    assert_eq!(never.next_after(at("2027-01-01T00:00:00Z")), None);
    // Past the rules of zones nothing fires any more.
    let daily = Timetable::Cron(Cron::parse("@daily").unwrap(), Zone::UTC);
    assert!(daily.first_fire(at("2101-01-01T00:00:00Z")).is_err());
}
