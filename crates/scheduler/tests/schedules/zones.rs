use celeriac_scheduler::{Zone, ZoneError};

#[test]
fn zones_are_read_by_their_names() {
    for name in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
        let zone = Zone::parse(name).unwrap();
        assert_eq!((zone.name(), zone.to_string().as_str()), (name, name));
    }
    assert_eq!(Zone::default(), Zone::UTC);
    assert!(Zone::rules_version().starts_with("20"));
}

#[test]
fn a_wrong_name_offers_the_nearest() {
    for (text, nearest) in [
        ("Europe/Belrin", Some("Europe/Berlin")),
        ("europe/berlin", Some("Europe/Berlin")),
        ("America/NewYork", Some("America/New_York")),
        ("", None),
        ("+02:00", None),
    ] {
        let error: ZoneError = Zone::parse(text).unwrap_err();
        assert_eq!(error.nearest, nearest, "{error}");
    }
    assert_eq!(
        Zone::parse("Europe/Belrin").unwrap_err().to_string(),
        "no such time zone: \"Europe/Belrin\" (did you mean Europe/Berlin?); write an IANA name such as Europe/Berlin or UTC"
    );
}
