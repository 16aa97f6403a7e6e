use std::sync::Arc;

use celeriac_core::{Broker, Error, Result, nearest, without_password};
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_sqlite::{SqliteBroker, SqliteOptions};

/// Opens the broker that a URL names.
///
/// * `sqlite:jobs.db`, `sqlite:///srv/jobs.db`: one file on a local disk, shared by any number of processes. It is
///   made if it is not there.
/// * `sqlite::memory:`: in this process only, for tests.
/// * `postgres://user@host/database` (or `postgresql://…`): a schema of a PostgreSQL database, shared by any number of
///   machines. It is made if it is not there. [`PostgresOptions::from_url`] lists the settings a URL can hold.
///
/// # Errors
/// [`Error::UnsupportedUrl`] for a URL that is malformed or of a kind that this build does not have; otherwise
/// what the engine says about its store. Errors show the URL without its password.
pub async fn connect_broker(url: &str) -> Result<Arc<dyn Broker>> {
    Ok(match kind(url)? {
        Kind::Postgres => Arc::new(PostgresBroker::open(PostgresOptions::from_url(url)?).await?),
        Kind::Sqlite => Arc::new(SqliteBroker::open(SqliteOptions::from_url(url)?).await?),
    })
}

/// Checks a URL without opening anything.
pub(crate) fn check_url(url: &str) -> Result<()> {
    match kind(url)? {
        Kind::Postgres => PostgresOptions::from_url(url).map(drop),
        Kind::Sqlite => SqliteOptions::from_url(url).map(drop),
    }
}

/// The kinds of broker in this build.
enum Kind {
    Postgres,
    Sqlite,
}

/// What an error offers.
const KNOWN: &str = "known are sqlite:PATH, such as sqlite:jobs.db, and postgres://USER@HOST/DATABASE, such as postgres://app@db.example/shop";

fn kind(url: &str) -> Result<Kind> {
    let refuse = |problem: String| Err(Error::UnsupportedUrl { url: without_password(url), problem });
    let Some((kind, _)) = url.split_once(':') else {
        return refuse(format!("it names no kind of broker; {KNOWN}"));
    };
    match kind {
        "postgres" | "postgresql" => Ok(Kind::Postgres),
        "sqlite" => Ok(Kind::Sqlite),
        _ => {
            let small = kind.to_ascii_lowercase();
            if matches!(small.as_str(), "postgres" | "postgresql" | "sqlite") {
                return refuse(format!("the kind is written in small letters: {small}:"));
            }
            let hint = nearest(&small, ["postgres", "postgresql", "sqlite"])
                .map(|near| format!(" (did you mean {near}?)"))
                .unwrap_or_default();
            refuse(format!("{kind:?} is an unknown kind of broker{hint}; {KNOWN}"))
        }
    }
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
            ("jobs.db", "known are sqlite:PATH"),
            ("", "known are sqlite:PATH"),
            ("mysql://host/db", "\"mysql\" is an unknown kind of broker; known are sqlite:PATH"),
            ("mysql://host/db", "postgres://USER@HOST/DATABASE"),
            ("sqlit:jobs.db", "did you mean sqlite?"),
            ("postgre://host/db", "did you mean postgres?"),
            ("SQLite:jobs.db", "small letters: sqlite:"),
            ("Postgres://host/db", "small letters: postgres:"),
            ("postgres:host=db", "must begin with postgres://"),
            ("postgres://host/db?speed=9", "speed"),
            ("sqlite:", "path is missing"),
            ("sqlite:a.db?cache=1", "known are"),
        ] {
            let text = refusal(url);
            assert!(text.contains(part), "{url} gave {text}");
        }
        for url in ["sqlite:jobs.db", "postgres://host/db", "postgresql://me@host,other/db?schema=a"] {
            assert!(check_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for url in [
            "postgres://me:s3cret@host/db?speed=1",
            "postgresql://me:s3cret@with@signs@host/db?schema=Shop",
            "postgres://host/db?user=me&password=s3cret&sslmode=maybe",
            "postgres:host=db user=me PASSWORD=s3cret dbname=x",
            "mysql://me:s3cret/slash@host",
            "redis://:s3cret@host",
        ] {
            let text = refusal(url);
            assert!(!text.contains("s3cret") && text.contains("***"), "{url} gave {text}");
        }
    }
}
