use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use celeriac_core::{Error, Result};

/// Where the store is and how it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The file, or memory.
    pub place: Place,
    /// When a commit counts as done. Default [`Synchronous::Full`].
    pub synchronous: Synchronous,
    /// How long any call but a check may take. Default 30 s: longer than any sane disk stalls, short enough
    /// that a caller learns of a lost disk.
    pub deadline: Duration,
    /// How long a write waits for another process's transaction. Default 10 s.
    pub busy_timeout: Duration,
}

/// Where a store is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A file on a local disk, shared by any number of processes of this machine.
    File(PathBuf),
    /// This process's memory, gone with it. For tests.
    Memory,
}

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// When the disk has it: survives a power cut. The default, since an enqueue that returned must never be
    /// lost; group commit keeps it fast.
    #[default]
    Full,
    /// When the operating system has it: survives `kill -9`, but a power cut may take the last commits.
    Normal,
}

impl SqliteOptions {
    /// The file at `path` with every default.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::at(Place::File(path.into()))
    }

    /// A store in memory with every default.
    pub fn memory() -> Self {
        Self::at(Place::Memory)
    }

    const fn at(place: Place) -> Self {
        Self {
            place,
            synchronous: Synchronous::Full,
            deadline: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(10),
        }
    }

    /// Reads `sqlite:PATH`, `sqlite://PATH` or `sqlite::memory:`, with `?synchronous=full|normal` and
    /// `?deadline=30s` behind it.
    ///
    /// # Errors
    /// [`Error::UnsupportedUrl`] names the part that is wrong and what is allowed.
    pub fn from_url(url: &str) -> Result<Self> {
        let refuse = |problem: String| {
            // Neither options nor the rest of a foreign URL are shown: there may be a password in them.
            let shown = match (url.split_once('?'), url.split_once(':')) {
                (None, Some(("sqlite", _))) => url.to_owned(),
                (Some((place, _)), Some(("sqlite", _))) => format!("{place}?…"),
                (_, Some((scheme, _))) => format!("{scheme}:…"),
                (_, None) => "…".to_owned(),
            };
            Error::UnsupportedUrl { url: shown, problem }
        };
        let rest = url
            .strip_prefix("sqlite:")
            .ok_or_else(|| refuse("it does not start with sqlite:, as in sqlite:jobs.db".to_owned()))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(refuse("the path is missing; write sqlite:jobs.db or sqlite::memory:".to_owned()));
        }
        let mut options = if path == ":memory:" { Self::memory() } else { Self::file(path) };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("synchronous", "full") => options.synchronous = Synchronous::Full,
                ("synchronous", "normal") => options.synchronous = Synchronous::Normal,
                ("synchronous", other) => {
                    return Err(refuse(format!(
                        "synchronous={other:?} is unknown; allowed are full and normal"
                    )));
                }
                ("deadline", text) => {
                    options.deadline = celeriac_core::parse_duration(text)
                        .map_err(|error| refuse(error.to_string()))
                        .and_then(|deadline| {
                            if deadline < Duration::from_millis(100) {
                                return Err(refuse("deadline must be at least 100ms".to_owned()));
                            }
                            Ok(deadline)
                        })?;
                }
                (key, _) => {
                    return Err(refuse(format!("{key:?} is unknown; known are synchronous and deadline")));
                }
            }
        }
        Ok(options)
    }
}

impl fmt::Display for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => write!(f, "sqlite:{}", path.display()),
            Place::Memory => f.write_str("sqlite::memory:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        assert_eq!(SqliteOptions::from_url("sqlite:jobs.db").unwrap(), SqliteOptions::file("jobs.db"));
        assert_eq!(SqliteOptions::from_url("sqlite:///srv/a.db").unwrap(), SqliteOptions::file("/srv/a.db"));
        assert_eq!(SqliteOptions::from_url("sqlite::memory:").unwrap(), SqliteOptions::memory());
        let normal = SqliteOptions::from_url("sqlite:a.db?synchronous=normal&deadline=5s").unwrap();
        assert_eq!((normal.synchronous, normal.deadline), (Synchronous::Normal, Duration::from_secs(5)));
    }

    #[test]
    fn bad_urls_say_what_is_allowed() {
        for (url, part) in [
            ("sqlite:", "path is missing"),
            ("mysql:x", "sqlite:"),
            ("sqlite:a.db?synchronous=off", "full and normal"),
            ("sqlite:a.db?cache=1", "known are synchronous and deadline"),
            ("sqlite:a.db?deadline=5", "unit"),
            ("sqlite:a.db?deadline=1ms", "at least"),
        ] {
            let error = SqliteOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url} gave {error}");
        }
        for url in ["sqlite:a.db?password=secret", "postgres://me:secret@host/db"] {
            let error = SqliteOptions::from_url(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
