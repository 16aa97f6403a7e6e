use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use celeriac::TaskError;
use celeriac::core::JobId;
use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};

use crate::address::{AddressRefused, Allowance, InvalidAllowance};
use crate::request::{Prepared, Request};
use crate::resolver::{GuardedResolver, Lookup, system_lookup};
use crate::retry_after;
use crate::signature::{KeyError, SigningKeys};

/// Sends the requests of the task `http`. One for a worker; its handlers share the connections.
#[derive(Clone)]
pub struct Courier {
    allowance: Arc<Allowance>,
    keys: SigningKeys,
    lookup: Lookup,
    /// Made for the first request: a worker that sends none need not read the system's certificates.
    client: Arc<OnceLock<Client>>,
}

/// Which job a request belongs to; the receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The same in each attempt, so that a receiver can recognise a repetition.
    pub job: JobId,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// 200 to 299.
    pub status: u16,
}

impl Courier {
    /// A courier as the environment of this process describes it: [`Allowance::VARIABLE`], and one variable for
    /// each key.
    ///
    /// # Errors
    /// The allowance in the environment cannot be read.
    pub fn from_env() -> Result<Self, InvalidAllowance> {
        Ok(Self::new(Allowance::from_env()?, SigningKeys::from_env()))
    }

    /// A courier that may connect to what `allowance` says, and signs with `keys`.
    pub fn new(allowance: Allowance, keys: SigningKeys) -> Self {
        Self::with_lookup(allowance, keys, system_lookup())
    }

    fn with_lookup(allowance: Allowance, keys: SigningKeys, lookup: Lookup) -> Self {
        Self { allowance: Arc::new(allowance), keys, lookup, client: Arc::default() }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// What the answer means for the job, as `docs/http-task.md` lists it.
    pub async fn deliver(&self, request: &Request, sender: Sender) -> Result<Delivered, TaskError> {
        let mut prepared = request.prepare().map_err(TaskError::reject)?;
        self.check_literal(&prepared.url).map_err(|error| refused(&prepared.url, &error))?;
        self.add_headers(&mut prepared, sender)?;
        let Prepared { url, method, headers, body, timeout, .. } = prepared;
        let origin = origin(&url);
        let client = self.client().map_err(|error| TaskError::failed(format!("no HTTP client: {error}")))?;
        let mut sending = client.request(method, url.clone()).headers(headers).timeout(timeout);
        // Without a body there is no length to send either, as servers expect of a GET.
        if !body.is_empty() {
            sending = sending.body(body);
        }
        let response = sending.send().await.map_err(|error| transport_error(&url, timeout, &error))?;
        judge(&origin, response).await
    }

    fn client(&self) -> Result<&Client, Box<dyn Error + Send + Sync>> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let allowance = Arc::clone(&self.allowance);
        let client = Client::builder()
            .user_agent(concat!("celeriac/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls()?)
            .dns_resolver(Arc::new(GuardedResolver { allowance, lookup: Arc::clone(&self.lookup) }))
            // A proxy would connect for us, to addresses that nobody checked.
            .no_proxy()
            // Each redirect would be an address that the job does not name.
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()?;
        // When two handlers made one at once, both use the first.
        Ok(self.client.get_or_init(|| client))
    }

    /// A host that is an address is never looked up, so the resolver does not see it. The URL's parser has already
    /// turned forms such as `0x7f.1` and `2130706433` into plain addresses.
    fn check_literal(&self, url: &Url) -> Result<(), AddressRefused> {
        let host = url.host_str().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.parse::<IpAddr>().map_or(Ok(()), |address| self.allowance.check(address))
    }

    fn add_headers(&self, prepared: &mut Prepared, sender: Sender) -> Result<(), TaskError> {
        let job = sender.job.to_string();
        let mut ours = vec![("celeriac-attempt", sender.attempt.to_string()), ("celeriac-job", job.clone())];
        if let Some(name) = &prepared.sign_with {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let signed = self.keys.sign(name, &job, now, &prepared.body).map_err(|error| match error {
                KeyError::Name(_) => TaskError::reject(error),
                // Another worker may have the key, and an operator may set it here.
                KeyError::Missing(_) | KeyError::Value { .. } => TaskError::failed(error),
            })?;
            ours.extend(signed);
        }
        for (name, value) in ours {
            let value = HeaderValue::from_str(&value).map_err(TaskError::reject)?;
            prepared.headers.insert(HeaderName::from_static(name), value);
        }
        Ok(())
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier")
            .field("allowance", &self.allowance)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// What the answer means for the job.
async fn judge(origin: &str, response: Response) -> Result<Delivered, TaskError> {
    let status = response.status();
    let headers = response.headers().clone();
    // Read in any case: a connection whose answer was read to the end can be used again.
    let excerpt = excerpt(response).await;
    if status.is_success() {
        return Ok(Delivered { status: status.as_u16() });
    }
    let mut text = format!("{origin} answered {status}");
    if status.is_redirection() {
        if let Some(location) = text_of(&headers, &LOCATION) {
            text.push_str(&format!(" to {}", location_shown(location)));
        }
        return Err(TaskError::reject(format!(
            "{text}; redirects are not followed, enqueue the new address"
        )));
    }
    if !excerpt.is_empty() {
        text.push_str(": ");
        text.push_str(&excerpt);
    }
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        let after = text_of(&headers, &RETRY_AFTER)
            .and_then(|value| retry_after::parse(value, text_of(&headers, &DATE), SystemTime::now()));
        return Err(match after {
            Some(after) => TaskError::retry_after(after, text),
            None => TaskError::failed(text),
        });
    }
    Err(if status.is_client_error() { TaskError::reject(text) } else { TaskError::failed(text) })
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The beginning of the body as one line of text. Reads a bounded part of it, for a bounded time, and ignores
/// errors: the status is known, and it decides.
async fn excerpt(mut response: Response) -> String {
    let mut kept = Vec::new();
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = EXCERPT_BYTES.saturating_sub(kept.len());
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
            read += chunk.len();
            if read > DRAINED_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
    let cut = kept.len() >= EXCERPT_BYTES;
    let text = String::from_utf8_lossy(&kept);
    let mut line: String = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if cut {
        line.push('…');
    }
    line
}

/// Why no answer came.
fn transport_error(url: &Url, timeout: Duration, error: &reqwest::Error) -> TaskError {
    let origin = origin(url);
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = None;
    while let Some(current) = cause {
        if let Some(address) = current.downcast_ref::<AddressRefused>() {
            return refused(url, address);
        }
        last = Some(current);
        cause = current.source();
    }
    if error.is_connect() && error.is_timeout() {
        return TaskError::failed(format!(
            "{origin}: no connection within {:?}",
            timeout.min(CONNECT_TIMEOUT)
        ));
    }
    if error.is_timeout() {
        return TaskError::failed(format!("{origin}: no answer within {timeout:?}"));
    }
    let stage = if error.is_connect() { "no connection" } else { "no answer" };
    // The innermost cause says what happened; those around it repeat the address.
    let reason = last.map(ToString::to_string).unwrap_or_default();
    TaskError::failed(format!("{origin}: {stage}: {reason}"))
}

fn refused(url: &Url, error: &AddressRefused) -> TaskError {
    TaskError::reject(format!("{}: {error}", origin(url)))
}

/// Scheme, host and port. The rest of a URL often is or holds a secret, and the job's arguments have it anyway.
fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Where a redirect points, without user, password, query and fragment.
fn location_shown(location: &str) -> String {
    let shown = match Url::parse(location) {
        Ok(url) if url.has_host() => format!("{}{}", origin(&url), url.path()),
        Ok(url) => format!("a {} address", url.scheme()),
        Err(_) => location.split(['?', '#']).next().unwrap_or_default().to_owned(),
    };
    shown.chars().filter(|character| !character.is_control()).take(200).collect()
}

/// TLS 1.2 and 1.3 by ring, and the certificates that the system trusts (or `SSL_CERT_FILE`, `SSL_CERT_DIR`).
fn tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the system cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!("this system has no certificates to trust: every https request will fail");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A host that does not take a connection for this long is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a failed request's body goes into the job's history.
const EXCERPT_BYTES: usize = 300;

/// A longer body costs more to read than a new connection costs to make.
const DRAINED_BYTES: usize = 64 * 1024;

/// A body that drips must not hold a handler once the status is known.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
