use std::sync::Arc;

use celeriac_core::{Broker, Error, Result, nearest};
use celeriac_sqlite::{SqliteBroker, SqliteOptions};

/// Opens the broker that a URL names.
///
/// * `sqlite:jobs.db`, `sqlite:///srv/jobs.db`: one file on a local disk, shared by any number of processes. It is
///   made if it is not there.
/// * `sqlite::memory:`: in this process only, for tests.
///
/// # Errors
/// [`Error::UnsupportedUrl`] for a URL that is malformed or of a kind that this build does not have; otherwise
/// what the engine says about its store. Errors show the URL without its password.
pub async fn connect_broker(url: &str) -> Result<Arc<dyn Broker>> {
    match kind(url)? {
        Kind::Sqlite => Ok(Arc::new(SqliteBroker::open(SqliteOptions::from_url(url)?).await?)),
    }
}

/// Checks a URL without opening anything.
pub(crate) fn check_url(url: &str) -> Result<()> {
    match kind(url)? {
        Kind::Sqlite => SqliteOptions::from_url(url).map(drop),
    }
}

/// The kinds of broker in this build.
enum Kind {
    Sqlite,
}

fn kind(url: &str) -> Result<Kind> {
    let refuse = |problem: String| Err(Error::UnsupportedUrl { url: without_password(url), problem });
    let Some((kind, _)) = url.split_once(':') else {
        return refuse("it names no kind of broker; write sqlite:PATH, such as sqlite:jobs.db".to_owned());
    };
    match kind.to_ascii_lowercase().as_str() {
        "sqlite" if kind == "sqlite" => Ok(Kind::Sqlite),
        "sqlite" => refuse("the kind is written in small letters: sqlite:".to_owned()),
        "postgres" | "postgresql" => {
            refuse("PostgreSQL is not in this build; known is sqlite:PATH, such as sqlite:jobs.db".to_owned())
        }
        other => {
            let hint =
                nearest(other, ["sqlite"]).map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
            refuse(format!(
                "{kind:?} is an unknown kind of broker{hint}; known is sqlite:PATH, such as sqlite:jobs.db"
            ))
        }
    }
}

/// The URL with `***` in place of a password, wherever one can stand: before the `@`, or as a parameter.
fn without_password(url: &str) -> String {
    let mut shown = url.to_owned();
    let authority = shown.find("://").map(|place| place + 3).unwrap_or(0);
    // A password may itself hold an `@` or a `/` that should have been escaped: the last `@` counts.
    if let Some(at) = shown[authority..].rfind('@').map(|place| authority + place)
        && let Some(colon) = shown[authority..at].find(':').map(|place| authority + place)
        && !shown[authority..colon].contains(['/', '?'])
    {
        shown.replace_range(colon + 1..at, "***");
    }
    for key in ["password=", "sslpassword=", "token="] {
        let mut from = 0;
        while let Some(place) = shown[from..].to_ascii_lowercase().find(key) {
            let start = from + place + key.len();
            let end = shown[start..].find(['&', ' ']).map_or(shown.len(), |length| start + length);
            shown.replace_range(start..end, "***");
            from = start;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        check_url(url).unwrap_err().full()
    }

    #[test]
    fn unknown_kinds_list_the_known_ones() {
        for (url, part) in [
            ("jobs.db", "write sqlite:PATH"),
            ("", "write sqlite:PATH"),
            ("mysql://host/db", "\"mysql\" is an unknown kind of broker; known is sqlite:PATH"),
            ("sqlit:jobs.db", "did you mean sqlite?"),
            ("SQLite:jobs.db", "small letters"),
            ("postgres://host/db", "PostgreSQL is not in this build"),
            ("postgresql://host/db", "PostgreSQL is not in this build"),
            ("sqlite:", "path is missing"),
            ("sqlite:a.db?cache=1", "known are"),
        ] {
            let text = refusal(url);
            assert!(text.contains(part), "{url} gave {text}");
        }
        assert!(check_url("sqlite:jobs.db").is_ok());
    }

    #[test]
    fn passwords_are_never_shown() {
        for url in [
            "postgres://me:s3cret@host/db",
            "postgres://me:s3cret@with@signs@host/db?application_name=x",
            "postgres://host/db?user=me&password=s3cret&sslmode=require",
            "postgres:host=db user=me PASSWORD=s3cret dbname=x",
            "mysql://me:s3cret/slash@host",
            "redis://:s3cret@host",
        ] {
            let text = refusal(url);
            assert!(!text.contains("s3cret") && text.contains("***"), "{url} gave {text}");
        }
        // Rather too much than too little.
        assert_eq!(without_password("me:s3cret@host"), "me:***@host");
        assert_eq!(without_password("postgres://me@host:5432/db"), "postgres://me@host:5432/db");
    }
}
