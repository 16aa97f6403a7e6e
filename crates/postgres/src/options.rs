use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use celeriac_core::{Error, Result, parse_duration, without_password};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How to reach a PostgreSQL store.
///
/// `Debug` shows no password.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) tls: TlsMode,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) pooler: Pooler,
    pub(crate) listening: Listening,
    pub(crate) pool_size: usize,
    pub(crate) transactions: usize,
    pub(crate) deadline: Duration,
    pub(crate) migrate: bool,
    pub(crate) shown: String,
}

/// How a connection is protected: the values of `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server offers it. Protects against nobody who can change packets; the default for local servers alone.
    Prefer,
    /// Always, without a look at the certificate. The default for servers elsewhere.
    Require,
    /// Always; the certificate must come from a trusted authority.
    VerifyCa,
    /// Always; the certificate must come from a trusted authority and name this server.
    VerifyFull,
}

/// What stands between this program and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or a pooler that keeps sessions.
    #[default]
    None,
    /// A pooler that gives each transaction another session (`pooler=transaction`): no named statements, no session
    /// settings, no `LISTEN`.
    Transaction,
}

/// Where wake-ups come from. Polling goes on underneath whatever this says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Listening {
    /// No `LISTEN`: polling alone (`listen=off`). The default behind a transaction pooler.
    Off,
    /// Through the same URL.
    #[default]
    Same,
    /// Through this server: `listen=…` with a direct URL, for use beside a transaction pooler.
    Direct(Box<Config>),
}

impl PostgresOptions {
    /// Connections of the pool unless the URL says `pool_size=…`. A worker claims, settles and maintains at once, and an
    /// enqueueing service rarely waits for more than a few commits at a time.
    pub const DEFAULT_POOL_SIZE: usize = 10;

    /// The deadline of one call unless the URL says `deadline=…`. Hot calls take milliseconds; a store that has not
    /// answered for this long is in trouble, and the caller should know.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(15);

    /// Reads `postgres://user:password@host:port,host2:port/database?…`.
    ///
    /// With several hosts the one that takes writes is used, unless `target_session_attrs` says otherwise; after a fail-over
    /// that is another one.
    ///
    /// Besides what libpq knows (`target_session_attrs`, `connect_timeout`, `keepalives_idle`, `application_name`, `host`
    /// for a socket's folder, …):
    ///
    /// | key | meaning | default |
    /// | --- | --- | --- |
    /// | `sslmode` | `disable`, `prefer`, `require`, `verify-ca`, `verify-full` | `prefer` on this machine, else `require` |
    /// | `sslrootcert` | a PEM file of trusted authorities | the system's |
    /// | `schema` | the schema of the store: lower-case letters, digits, `_` | `celeriac` |
    /// | `pooler` | `transaction` behind a pooler in that mode | `none` |
    /// | `listen` | `off`, or a direct URL for wake-ups (percent-encoded) | this URL; `off` with a pooler |
    /// | `pool_size` | connections, 1 to 1,000 | 10 |
    /// | `transactions` | connections for handlers that take the worker's transaction, 1 to 1,000 | 10 |
    /// | `deadline` | of one call | 15s |
    /// | `migrate` | `off`: refuse an older schema instead of migrating it | `on` |
    ///
    /// # Errors
    /// [`Error::UnsupportedUrl`] names the part that is wrong. Passwords never show.
    pub fn from_url(url: &str) -> Result<Self> {
        let shown = without_password(url);
        let refuse = |problem: String| Error::UnsupportedUrl { url: shown.clone(), problem };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(refuse("it must begin with postgres:// or postgresql://".to_owned()));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        let mut tls = None;
        let mut options = Self {
            config: Config::new(),
            schema: "celeriac".to_owned(),
            tls: TlsMode::Prefer,
            root_certificates: None,
            pooler: Pooler::None,
            listening: Listening::Same,
            pool_size: Self::DEFAULT_POOL_SIZE,
            transactions: Self::DEFAULT_POOL_SIZE,
            deadline: Self::DEFAULT_DEADLINE,
            migrate: true,
            shown: shown.clone(),
        };
        let mut listen = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair
                .split_once('=')
                .ok_or_else(|| refuse(format!("{pair:?} has no value; write it as key=value")))?;
            let value = percent_decoded(raw)
                .ok_or_else(|| refuse(format!("the value of {key} has a broken percent sign")))?;
            match key {
                "sslmode" => tls = Some(value.parse().map_err(&refuse)?),
                "sslrootcert" => options.root_certificates = Some(PathBuf::from(value)),
                "schema" => options.schema = checked_schema(&value).map_err(&refuse)?,
                "pooler" => options.pooler = value.parse().map_err(&refuse)?,
                "listen" => listen = Some(value),
                "pool_size" => {
                    options.pool_size =
                        value.parse().ok().filter(|size| (1..=1_000).contains(size)).ok_or_else(|| {
                            refuse(format!("pool_size is {value:?}; allowed are 1 to 1000"))
                        })?;
                }
                "transactions" => {
                    options.transactions =
                        value.parse().ok().filter(|size| (1..=1_000).contains(size)).ok_or_else(|| {
                            refuse(format!("transactions is {value:?}; allowed are 1 to 1000"))
                        })?;
                }
                "deadline" => {
                    options.deadline = parse_duration(&value)
                        .ok()
                        .filter(|deadline| *deadline >= Duration::from_millis(10))
                        .ok_or_else(|| {
                            refuse(format!(
                                "deadline is {value:?}; write a duration such as 15s, at least 10ms"
                            ))
                        })?;
                }
                "migrate" => options.migrate = switch(key, &value).map_err(&refuse)?,
                _ => rest.push(pair),
            }
        }
        let plain =
            if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
        options.config = parse_config(&plain).map_err(&refuse)?;
        options.listening = match (listen.as_deref(), options.pooler) {
            (Some("off"), _) | (None, Pooler::Transaction) => Listening::Off,
            (None, Pooler::None) => Listening::Same,
            (Some(direct), _) => Listening::Direct(Box::new(
                parse_config(direct).map_err(|problem| refuse(format!("listen: {problem}")))?,
            )),
        };
        let by_place = if is_local(&options.config) { TlsMode::Prefer } else { TlsMode::Require };
        options.set_tls(tls.unwrap_or(by_place));
        Ok(options)
    }

    /// Another schema: the namespace of a tenant or a test.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless it is 1 to 40 lower-case letters, digits and `_`, not first a digit.
    pub fn with_schema(mut self, schema: &str) -> Result<Self> {
        self.schema = checked_schema(schema).map_err(|problem| Error::invalid("schema", schema, problem))?;
        Ok(self)
    }

    /// Another size of the pool; at least 1.
    #[must_use]
    pub fn with_pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections.max(1);
        self
    }

    /// Another deadline of each call.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    fn set_tls(&mut self, mode: TlsMode) {
        self.tls = mode;
        let ssl = match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        };
        self.config.ssl_mode(ssl);
        if let Listening::Direct(config) = &mut self.listening {
            config.ssl_mode(ssl);
        }
    }
}

impl std::fmt::Display for PostgresOptions {
    /// The URL without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &self.shown)
            .field("schema", &self.schema)
            .field("tls", &self.tls)
            .field("pooler", &self.pooler)
            .field("pool_size", &self.pool_size)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(format!(
                    "sslmode is {text:?}; known are disable, prefer, require, verify-ca, verify-full"
                ));
            }
        })
    }
}

impl FromStr for Pooler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "transaction" => Ok(Self::Transaction),
            _ => Err(format!("pooler is {text:?}; known are none and transaction")),
        }
    }
}

/// Gives `config` what every connection of ours needs unless the URL said otherwise.
fn parse_config(url: &str) -> Result<Config, String> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        // The driver's texts name keys, never values.
        cause.unwrap_or_else(|| error.to_string())
    })?;
    if config.get_hosts().is_empty() {
        return Err("it names no host".to_owned());
    }
    if config.get_connect_timeout().is_none() {
        // A server that comes back is met by a fresh attempt soon, not by one that began while it was away.
        config.connect_timeout(Duration::from_secs(2));
    }
    if !url.contains("keepalives_idle") {
        // The system's default of two hours would leave a worker on a dead connection for as long.
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(3));
        config.keepalives_retries(3);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(10));
    }
    if config.get_hosts().len() > 1 && !url.contains("target_session_attrs") {
        // Several hosts are a primary and its replicas; which of them is which changes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("celeriac");
    }
    Ok(config)
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key} is {value:?}; known are on and off")),
    }
}

/// A name that is safe inside double quotes and short enough for the names made from it.
fn checked_schema(name: &str) -> Result<String, String> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let well_formed = name.len() <= 40
        && name.starts_with(first)
        && name.chars().all(|c| first(c) || c.is_ascii_digit())
        && !name.starts_with("pg_");
    if well_formed {
        return Ok(name.to_owned());
    }
    Err(format!(
        "schema is {name:?}; allowed are 1 to 40 lower-case letters, digits and _, not first a digit or pg_"
    ))
}

fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_whole() {
        let options = PostgresOptions::from_url(
            "postgres://app:s%40cret@one.example:5433,two.example/shop?target_session_attrs=read-write&sslmode=verify-full\
             &sslrootcert=%2Fetc%2Fca.pem&schema=tenant_7&pool_size=4&deadline=3s&pooler=transaction&listen=postgres://a:b@one.example/shop",
        )
        .unwrap();
        assert_eq!((options.schema.as_str(), options.pool_size), ("tenant_7", 4));
        assert_eq!((options.tls, options.pooler), (TlsMode::VerifyFull, Pooler::Transaction));
        assert_eq!(options.root_certificates.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
        assert_eq!(options.config.get_hosts().len(), 2);
        assert_eq!(options.config.get_password(), Some(&b"s@cret"[..]));
        assert!(matches!(options.listening, Listening::Direct(_)));
        let shown = format!("{options:?}");
        assert!(!shown.contains("cret") && !shown.contains("a:b"), "{shown}");
        assert!(shown.contains("app:***@one.example"), "{shown}");
    }

    #[test]
    fn plain_text_is_for_local_servers_alone() {
        let mode = |url: &str| PostgresOptions::from_url(url).unwrap().tls;
        assert_eq!(mode("postgres://a@localhost/x"), TlsMode::Prefer);
        assert_eq!(mode("postgres://a@127.0.0.1:9/x"), TlsMode::Prefer);
        assert_eq!(mode("postgres://a@%2Fvar%2Frun/x"), TlsMode::Prefer);
        assert_eq!(mode("postgres://a@db.example/x"), TlsMode::Require);
        assert_eq!(mode("postgres://a@localhost,db.example/x"), TlsMode::Require);
    }

    #[test]
    fn bad_urls_say_what_is_wrong_and_hide_the_password() {
        for (url, part) in [
            ("mysql://a:secret@h/x", "postgres://"),
            ("postgres://a:secret@h/x?sslmode=maybe", "verify-full"),
            ("postgres://a:secret@h/x?schema=Shop;", "lower-case"),
            ("postgres://a:secret@h/x?pool_size=0", "1 to 1000"),
            ("postgres://a:secret@h/x?deadline=5", "duration"),
            ("postgres://a:secret@h/x?speed=9", "speed"),
            ("postgres://a:secret@h/x?pooler=session", "known are"),
            ("postgres://a:secret@h/x?schema", "key=value"),
            ("postgres://a:secret@h/x?schema=%zz", "percent"),
            ("postgres://a:secret@h/x?password=secret&port=x", "port"),
        ] {
            let error = PostgresOptions::from_url(url).unwrap_err().full();
            assert!(error.contains(part), "{url} gave {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
