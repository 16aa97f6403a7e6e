use std::path::PathBuf;
use std::sync::Arc;

use celeriac::core::Broker;
use celeriac_postgres::{PostgresBroker, PostgresOptions};
use celeriac_sqlite::{Place, SqliteOptions};

use crate::failure::Failure;

/// The store that the command line names, not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    url: Option<String>,
}

/// What happens when there is no store at the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is made.
    Create,
    /// That is an error: looking into a mistyped path must not leave an empty store there.
    Refuse,
}

impl Store {
    pub(crate) const fn new(url: Option<String>) -> Self {
        Self { url }
    }

    /// The URL.
    ///
    /// # Errors
    /// A usage error with an example when none was given.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.url.as_deref().filter(|url| !url.is_empty()).ok_or_else(|| {
            Failure::usage(
                "no broker is given; name it with --broker or in the variable CELERIAC_BROKER, for example:\n\n    \
                 celeriac --broker sqlite:jobs.db stats",
            )
        })
    }

    /// Opens the store.
    pub(crate) async fn open(&self, missing: Missing) -> Result<Arc<dyn Broker>, Failure> {
        let url = self.url()?;
        if missing == Missing::Refuse
            && let Some(path) = self.file()?
            && !path.exists()
        {
            return Err(Failure::failed(
                "no_such_store",
                format!(
                    "there is no store at {}; correct the path, or create it with \
                     `celeriac --broker sqlite:{} migrate`",
                    path.display(),
                    path.display()
                ),
            ));
        }
        if missing == Missing::Refuse
            && let Some(options) = self.postgres()?
            && PostgresBroker::schema_version(&options).await? == 0
        {
            return Err(Failure::failed(
                "no_such_store",
                format!(
                    "there is no store at {options}; correct the URL (its schema=… too), or create it with \
                     `celeriac migrate`"
                ),
            ));
        }
        Ok(celeriac::connect_broker(url).await?)
    }

    /// The file of a store that is one.
    pub(crate) fn file(&self) -> Result<Option<PathBuf>, Failure> {
        Ok(match self.sqlite()?.map(|options| options.place) {
            Some(Place::File(path)) => Some(path),
            _ => None,
        })
    }

    /// How a SQLite store is opened.
    pub(crate) fn sqlite(&self) -> Result<Option<SqliteOptions>, Failure> {
        let url = self.url()?;
        if !url.starts_with("sqlite:") {
            return Ok(None);
        }
        Ok(Some(SqliteOptions::from_url(url)?))
    }

    /// How a PostgreSQL store is reached.
    pub(crate) fn postgres(&self) -> Result<Option<PostgresOptions>, Failure> {
        if self.engine()? != "postgres" {
            return Ok(None);
        }
        Ok(Some(PostgresOptions::from_url(self.url()?)?))
    }

    /// The kind of the store, such as `sqlite`.
    pub(crate) fn engine(&self) -> Result<&str, Failure> {
        let url = self.url()?;
        Ok(match url.split_once(':') {
            Some(("postgresql", _)) => "postgres",
            Some((scheme, _)) => scheme,
            None => url,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_the_url() {
        let file = |url: &str| Store::new(Some(url.to_owned())).file().unwrap();
        assert_eq!(file("sqlite:a.db"), Some(PathBuf::from("a.db")));
        assert_eq!(file("sqlite:///srv/a.db?synchronous=full"), Some(PathBuf::from("/srv/a.db")));
        assert_eq!(file("sqlite::memory:"), None);
        assert_eq!(file("postgres://host/db"), None);
        assert!(Store::new(None).file().is_err());
    }

    #[test]
    fn both_names_of_postgres_are_one_engine() {
        for url in ["postgres://host/db", "postgresql://host/db"] {
            let store = Store::new(Some(url.to_owned()));
            assert_eq!(store.engine().unwrap(), "postgres");
            assert!(store.postgres().unwrap().is_some() && store.sqlite().unwrap().is_none());
        }
    }
}
