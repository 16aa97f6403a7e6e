use std::collections::BTreeMap;
use std::time::Duration;

use celeriac::core::{Call, parse_duration};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;

/// An HTTP request as a job describes it: the arguments of the task `http`.
///
/// Everything is checked when it is delivered; what can never be sent is rejected then.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Where to: `http` or `https`.
    pub url: String,
    /// `GET` without a body and `POST` with one, unless it is given.
    pub method: Option<String>,
    /// Sent as they are. Operators see them.
    pub headers: BTreeMap<String, String>,
    /// Text is sent as it is, as `text/plain`; anything else as JSON. A `content-type` header overrides the type.
    pub body: Option<Value>,
    /// For the whole exchange, such as `10s`. Default [`Request::DEFAULT_TIMEOUT`], at most
    /// [`Request::LONGEST_TIMEOUT`].
    pub timeout: Option<String>,
    /// The environment variable of the worker that holds the key for a signature.
    pub sign_with: Option<String>,
}

impl Request {
    /// Long enough for a slow receiver, short enough that a dead one does not hold a handler.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
    /// What takes longer should answer 202 and go on by itself.
    pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

    /// A request that fetches `url`.
    pub fn get(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// A request that sends `body` to `url`: text as it is, anything else as JSON.
    pub fn post(url: impl Into<String>, body: impl Into<Value>) -> Self {
        Self { url: url.into(), body: Some(body.into()), ..Self::default() }
    }

    /// Another method: `PUT`, `PATCH`, `DELETE`, `HEAD`, `OPTIONS`.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// For the whole exchange.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(celeriac::core::format_duration(timeout));
        self
    }

    /// Signs the body with the key in this environment variable of the worker.
    #[must_use]
    pub fn sign_with(mut self, variable: impl Into<String>) -> Self {
        self.sign_with = Some(variable.into());
        self
    }

    /// The call of the task `http`, to be enqueued.
    pub fn into_call(self) -> Call {
        crate::http::call(
            self.url,
            self.method,
            Some(self.headers).filter(|headers| !headers.is_empty()),
            self.body,
            self.timeout,
            self.sign_with,
        )
    }

    /// Checks everything that can be checked without the network.
    pub(crate) fn prepare(&self) -> Result<Prepared, InvalidRequest> {
        let url = parse_url(&self.url)?;
        let mut headers = parse_headers(&self.headers)?;
        let body = match &self.body {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("text/plain; charset=utf-8"));
                text.as_bytes().to_vec()
            }
            Some(value) => {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                value.to_string().into_bytes()
            }
        };
        let has_body = !matches!(self.body, None | Some(Value::Null));
        let method = parse_method(self.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" }))?;
        let timeout = match self.timeout.as_deref() {
            None => Self::DEFAULT_TIMEOUT,
            Some(text) => parse_timeout(text)?,
        };
        Ok(Prepared { url, method, headers, body, timeout, sign_with: self.sign_with.clone() })
    }
}

/// A request that can be sent.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) url: Url,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) sign_with: Option<String>,
}

/// A request that can never be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A name that no header can have, or one that the transport sets by itself.
    #[error("header {name:?} {problem}")]
    Header {
        /// The header.
        name: String,
        /// What is wrong with it; never the value.
        problem: &'static str,
    },
    /// Not one of the methods that carry a request for a resource.
    #[error("method {0:?} is not one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    Method(String),
    /// No duration, or out of bounds.
    #[error("timeout: {0}")]
    Timeout(String),
    /// Not an address of a web server.
    #[error("the url {0}")]
    Url(String),
}

fn parse_url(text: &str) -> Result<Url, InvalidRequest> {
    // The text is not repeated: it may hold a password.
    let url = Url::parse(text).map_err(|error| InvalidRequest::Url(format!("cannot be read: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(InvalidRequest::Url(format!("has the scheme {other:?}; only http and https are sent"))),
    }
}

fn parse_method(text: &str) -> Result<Method, InvalidRequest> {
    let upper = text.trim().to_ascii_uppercase();
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        .into_iter()
        .find(|method| method.as_str() == upper)
        .ok_or_else(|| InvalidRequest::Method(text.chars().take(20).collect()))
}

fn parse_timeout(text: &str) -> Result<Duration, InvalidRequest> {
    let timeout = parse_duration(text).map_err(|error| InvalidRequest::Timeout(error.to_string()))?;
    if timeout.is_zero() || timeout > Request::LONGEST_TIMEOUT {
        return Err(InvalidRequest::Timeout(format!("{text} is out of bounds; allowed is up to 10m")));
    }
    Ok(timeout)
}

fn parse_headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, InvalidRequest> {
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let refuse = |problem| InvalidRequest::Header { name: name.clone(), problem };
        let parsed: HeaderName = name.parse().map_err(|_| refuse("is not a possible name"))?;
        if OURS.contains(&parsed.as_str()) {
            return Err(refuse("is set by the transport or the signature"));
        }
        let value: HeaderValue =
            value.parse().map_err(|_| refuse("has a value with characters that cannot be sent"))?;
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Headers that belong to the connection, the framing, the signature, or this task.
const OURS: [&str; 16] = [
    "celeriac-attempt",
    "celeriac-job",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_method_follows_the_body_unless_it_is_given() {
        assert_eq!(Request::get("http://a.example").prepare().unwrap().method, Method::GET);
        assert_eq!(Request::post("http://a.example", "x").prepare().unwrap().method, Method::POST);
        let put = Request::post("http://a.example", "x").method(" put ").prepare().unwrap();
        assert_eq!(put.method, Method::PUT);
    }

    #[test]
    fn a_body_brings_its_type() {
        let text = Request::post("http://a.example", "Grüße").prepare().unwrap();
        assert_eq!(
            (&text.headers[CONTENT_TYPE], text.body.as_slice()),
            (&HeaderValue::from_static("text/plain; charset=utf-8"), "Grüße".as_bytes())
        );
        let json = Request::post("http://a.example", json!({"a": [1, null]})).prepare().unwrap();
        assert_eq!(
            (&json.headers[CONTENT_TYPE], json.body.as_slice()),
            (&HeaderValue::from_static("application/json"), br#"{"a":[1,null]}"#.as_slice())
        );
        let own =
            Request::post("http://a.example", "<a/>").header("Content-Type", "text/xml").prepare().unwrap();
        assert_eq!(own.headers[CONTENT_TYPE], "text/xml");
        assert!(Request::get("http://a.example").prepare().unwrap().headers.is_empty());
    }

    #[test]
    fn what_cannot_be_sent_says_why() {
        let good = || Request::get("http://a.example");
        for (request, part) in [
            (Request::get(""), "the url cannot be read"),
            (Request::get("no address"), "the url cannot be read"),
            (Request::get("/relative"), "the url cannot be read"),
            (Request::get("http://"), "the url cannot be read"),
            (Request::get("http://999.1.1.1/"), "the url cannot be read"),
            (Request::get("ftp://a.example/"), "scheme \"ftp\""),
            (Request::get("file:///etc/passwd"), "scheme \"file\""),
            (Request::get("unix:/run/docker.sock"), "scheme \"unix\""),
            (good().method("CONNECT"), "method \"CONNECT\""),
            (good().method("TRACE"), "method \"TRACE\""),
            (good().method("GET / HTTP/1.1"), "method"),
            (good().header("two words", "x"), "possible name"),
            (good().header("", "x"), "possible name"),
            (good().header("x-a", "a\r\nx-b: c"), "cannot be sent"),
            (good().header("Host", "b.example"), "set by the transport"),
            (good().header("Transfer-Encoding", "chunked"), "set by the transport"),
            (good().header("Webhook-Signature", "v1,x"), "set by the transport"),
            (good().timeout(Duration::ZERO), "out of bounds"),
            (good().timeout(Duration::from_secs(601)), "out of bounds"),
            (Request { timeout: Some("5".into()), ..good() }, "with its unit"),
        ] {
            let error = request.prepare().unwrap_err().to_string();
            assert!(error.contains(part), "{request:?} gave {error}");
        }
    }

    #[test]
    fn a_password_in_a_broken_url_is_not_repeated() {
        let error = Request::get("http://user:secret@a b/").prepare().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
