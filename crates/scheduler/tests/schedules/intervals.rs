use std::time::Duration;

use celeriac_core::Timestamp;
use celeriac_scheduler::{Every, Timetable};
use proptest::prelude::*;

#[test]
fn ticks_are_counted_from_the_anchor() {
    let anchor = Timestamp::parse_rfc3339("2027-01-01T00:00:10Z").unwrap();
    let timetable = Timetable::Every(Every::new(Duration::from_secs(90), anchor).unwrap());
    let first = timetable.next_after(Timestamp::from_micros(0)).unwrap();
    assert_eq!((first.at, first.local.as_str()), (anchor, "2027-01-01T00:00:10+00:00"));
    let late = anchor.saturating_add(Duration::from_secs(1000));
    let next = timetable.next_after(late).unwrap();
    assert_eq!(next.local, "2027-01-01T00:18:10+00:00", "lateness moves no tick");
    assert_eq!(timetable.last_between(anchor, late).unwrap().local, "2027-01-01T00:16:40+00:00");
    assert_eq!(timetable.describe(), "every 1m 30s");
}

#[test]
fn intervals_have_bounds() {
    let anchor = Timestamp::from_micros(0);
    for millis in [0, 1, 999] {
        let error = Every::new(Duration::from_millis(millis), anchor).unwrap_err();
        assert!(error.to_string().contains("allowed are 1s to 3650days"), "{error}");
    }
    assert!(Every::new(Duration::from_secs(1), anchor).is_ok());
    assert!(Every::new(Every::MAX, anchor).is_ok());
    assert!(Every::new(Duration::MAX, anchor).is_err());
    let rare = Timetable::Every(Every::new(Every::MAX, anchor).unwrap());
    assert!(rare.first_fire(anchor).is_ok(), "a long interval is no mistake");
    assert_eq!(rare.next_after(Timestamp::from_micros(i64::MAX)), None);
}

proptest! {
    #[test]
    fn the_next_tick_is_on_the_grid_and_the_nearest(
        interval in 1_000_000i64..10_000_000_000,
        anchor in -1_000_000_000_000i64..2_000_000_000_000_000,
        after in 0i64..4_000_000_000_000_000,
    ) {
        let every = Every::new(Duration::from_micros(interval.unsigned_abs()), Timestamp::from_micros(anchor)).unwrap();
        let next = Timetable::Every(every).next_after(Timestamp::from_micros(after)).unwrap().at.as_micros();
        prop_assert!(next > after);
        prop_assert_eq!((next - anchor) % interval, 0);
        prop_assert!(next == anchor || next - interval <= after);
    }
}
