use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Timetable, Zone};
use proptest::prelude::*;

#[test]
fn numbers_of_any_size_are_refused_where_they_stand() {
    for (text, place) in [
        ("*/99999999999 * * * *", "99999999999"),
        ("0-4294967295 * * * *", "4294967295"),
        ("1--100000000 * * * *", "-100000000"),
        ("* 18446744073709551616 * * *", "18446744073709551616"),
        ("* * 256 * *", "256"),
        ("* * * * Mon#99999999999999999999", "99999999999999999999"),
        ("* * 300W * *", "300"),
        ("* * * * 4294967296L", "4294967296"),
        ("* * * 1/256 *", "256"),
    ] {
        let error = Cron::parse(text).unwrap_err();
        assert_eq!(&text[error.span().clone()], place, "{error}");
    }
}

#[test]
fn long_input_is_refused_by_its_length() {
    for text in ["*,".repeat(5_000_000), " ".repeat(10_000_000), "é".repeat(200), "@".repeat(300)] {
        let error = Cron::parse(&text).unwrap_err();
        assert!(error.problem().contains("at most 256 bytes"), "{error}");
        assert!(error.to_string().len() < 500);
    }
    let error = Zone::parse(&"Europe/".repeat(1_000_000)).unwrap_err();
    assert!(error.to_string().len() < 500);
}

#[test]
fn the_ends_of_time_give_no_panic() {
    let cron = Timetable::Cron(Cron::parse("* * * * *").unwrap(), Zone::parse("Asia/Tokyo").unwrap());
    for micros in [i64::MIN, i64::MIN + 1, -1, 0, 4_133_980_800_000_000, i64::MAX - 1, i64::MAX] {
        let instant = Timestamp::from_micros(micros);
        let _ = cron.next_after(instant);
        let _ = cron.first_fire(instant);
        assert_eq!(cron.last_between(instant, instant), None);
    }
    let first = cron.next_after(Timestamp::from_micros(i64::MIN)).unwrap();
    assert_eq!(first.local, "1970-01-01T09:00:00+09:00", "before 1970 there is nothing");
    assert_eq!(cron.next_after(Timestamp::from_micros(i64::MAX)), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        try_it(&text)?;
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        try_it(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn no_likely_text_panics(text in "[0-9*/,LW#?@ -]{0,40}") {
        try_it(&text)?;
    }

    #[test]
    fn no_likely_fields_panic(text in "([0-9]{1,2}|[*]|[*]/[0-9]|[0-9]-[0-9]|L|[0-9]L|[A-Za-z]{3}|[0-9]#[0-9]|[0-9]W)( ([0-9]{1,2}|[*]|[*]/[0-9]|[0-9]-[0-9]|L|[0-9]L|Mon|Jan|[0-9]#[0-9]|[0-9]W)){4,5}") {
        try_it(&text)?;
    }

}

proptest! {
    // Each is compared with every name.
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn no_zone_panics(text in any::<String>()) {
        let _ = Zone::parse(&text).map_err(|error| error.to_string());
    }
}

fn try_it(text: &str) -> Result<(), TestCaseError> {
    match Cron::parse(text) {
        Ok(cron) => {
            let again = Cron::parse(&cron.to_string());
            prop_assert_eq!(again.as_ref(), Ok(&cron), "it prints as it is read");
            prop_assert_eq!(again.unwrap().describe(), cron.describe());
            let timetable = Timetable::Cron(cron, Zone::parse("America/New_York").unwrap());
            let _ = timetable.first_fire(Timestamp::from_micros(1_800_000_000_000_000));
        }
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            prop_assert!(error.span().start <= error.span().end);
        }
    }
    Ok(())
}
