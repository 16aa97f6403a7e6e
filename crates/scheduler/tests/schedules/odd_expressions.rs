use celeriac_core::Timestamp;
use celeriac_scheduler::{Cron, Fire, Moved, Timetable, Zone};

#[test]
fn odd_expressions_fire_as_the_table_says() {
    let mut lines = 0;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [expression, zone, from, fires] =
            line.split('|').map(str::trim).collect::<Vec<_>>().try_into().unwrap();
        let timetable = Timetable::Cron(Cron::parse(expression).unwrap(), Zone::parse(zone).unwrap());
        let from = Timestamp::parse_rfc3339(from).unwrap();
        let expected: Vec<&str> = fires.split_whitespace().collect();
        let far = Timestamp::from_micros(i64::MAX);
        let given = timetable.fires_between(from, far, expected.len());
        assert_eq!(given.iter().map(shown).collect::<Vec<_>>(), expected, "{line}");
        lines += 1;
    }
    assert!(lines > 20, "the table was read");
}

fn shown(fire: &Fire) -> String {
    let mark = match fire.moved {
        Moved::Fold => "(fold)",
        Moved::Gap => "(gap)",
        _ => "",
    };
    format!("{}{mark}", fire.local)
}

const TABLE: &str = include_str!("odd_expressions.txt");
