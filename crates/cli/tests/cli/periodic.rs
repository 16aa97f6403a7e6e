use crate::program::{bare, run};

const ODD_EXPRESSIONS: &str = include_str!("../../../scheduler/tests/schedules/odd_expressions.txt");

#[test]
fn a_preview_shows_what_comes_and_marks_what_is_moved() {
    for (name, words) in [
        ("preview_workdays", vec!["--cron", "0 9 * * Mon-Fri", "--zone", "Europe/Berlin", "-n", "4"]),
        ("preview_every", vec!["--every", "90m", "-n", "3"]),
        ("preview_in_utc", vec!["--cron", "*/20 * * * *", "-n", "3"]),
    ] {
        let mut all = vec!["periodic", "preview", "--from", "2027-01-01T00:00:00Z"];
        all.extend(words);
        let run = run(&mut bare(&all));
        assert_eq!(run.code, 0, "{run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
    for (name, from) in [("preview_gap", "2027-03-26T23:00:00Z"), ("preview_fold", "2027-10-29T23:00:00Z")] {
        let words = [
            "periodic",
            "preview",
            "--cron",
            "30 2 * * *",
            "--zone",
            "Europe/Berlin",
            "--from",
            from,
            "-n",
            "3",
        ];
        insta::assert_snapshot!(name, run(&mut bare(&words)).shown(None));
    }
}

#[test]
fn a_preview_for_programs() {
    let from = ["--from", "2027-03-27T12:00:00Z", "-n", "2", "--json"];
    let words = ["periodic", "preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin"];
    insta::assert_snapshot!("preview_json", run(&mut bare(&[&words[..], &from].concat())).shown(None));
    let words = ["periodic", "preview", "--every", "1h 30m"];
    insta::assert_snapshot!("preview_every_json", run(&mut bare(&[&words[..], &from].concat())).shown(None));
}

#[test]
fn mistakes_are_usage_errors() {
    for (name, words) in [
        ("preview_without_timetable", vec![]),
        ("preview_of_both", vec!["--cron", "@daily", "--every", "30s"]),
        ("preview_zone_of_interval", vec!["--every", "30s", "--zone", "Europe/Berlin"]),
        ("preview_bad_field", vec!["--cron", "0 25 * * *"]),
        ("preview_bad_field_json", vec!["--cron", "0 25 * * *", "--json"]),
        ("preview_bad_zone", vec!["--cron", "@daily", "--zone", "Europe/Belrin"]),
        ("preview_every_too_short", vec!["--every", "500ms"]),
        ("preview_never", vec!["--cron", "0 0 29 2 */7", "--from", "2033-01-01T00:00:00Z"]),
        ("preview_no_such_day", vec!["--cron", "0 0 31 2 *"]),
        ("preview_number_0", vec!["--cron", "@daily", "-n", "0"]),
    ] {
        let mut all = vec!["periodic", "preview"];
        all.extend(words);
        let run = run(&mut bare(&all));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{name}: {run:?}");
        insta::assert_snapshot!(name, run.shown(None));
    }
}

/// The same table that the rules themselves are tested with.
#[test]
fn previews_of_odd_expressions_agree_with_the_table() {
    for line in ODD_EXPRESSIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [expression, zone, from, fires] =
            line.split('|').map(str::trim).collect::<Vec<_>>().try_into().unwrap();
        let expected: Vec<&str> = fires.split_whitespace().collect();
        let number = expected.len().to_string();
        let words =
            ["periodic", "preview", "--cron", expression, "--zone", zone, "--from", from, "-n", &number];
        let run = run(bare(&words).arg("--json"));
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{line}");
        let document: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        let given: Vec<String> = (document["fires"].as_array().unwrap().iter())
            .map(|fire| match fire["moved"].as_str() {
                Some(moved) => format!("{}({moved})", fire["local"].as_str().unwrap()),
                None => fire["local"].as_str().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(given, expected, "{line}");
    }
}
