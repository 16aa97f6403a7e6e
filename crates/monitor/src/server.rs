use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use celeriac_metrics::{show_age, show_process};
use celeriac_worker::Pulse;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::exporter::Exporter;
use crate::health::{Health, State};
use crate::sampler::Latest;
use crate::scale::Question;

/// What is served.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) exporter: Exporter,
    pub(crate) pulse: Pulse,
    pub(crate) latest: Arc<Latest>,
    pub(crate) live_within: Duration,
    pub(crate) sample_every: Duration,
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, view: Arc<View>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!("metrics and health are not served: {error}");
            return std::future::pending().await;
        }
    };
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Whoever comes when all places are taken waits in the system's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file handles, or the other side is gone already.
                tracing::debug!("a connection for metrics failed: {error}");
                sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let view = Arc::clone(&view);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let view = Arc::clone(&view);
                async move { Ok::<_, Infallible>(view.answer(&request)) }
            };
            let connection = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(MOST_HEADER_BYTES)
                .timer(TokioTimer::new())
                .header_read_timeout(LIMIT)
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // Whoever is too slow, or speaks no HTTP, is of no interest.
            let _ = timeout(LIMIT, connection).await;
            drop(place);
        });
    }
}

impl View {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => {
                show_process();
                if let Some((_, age)) = self.latest.get() {
                    show_age(age);
                }
                reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.exporter.render())
            }
            "/livez" => health(Health::live(&self.pulse.vitals(), self.live_within)),
            "/readyz" => health(Health::ready(&self.pulse.vitals(), self.live_within)),
            "/scale" => self.scale(request.uri().query().unwrap_or_default()),
            "/" => text(StatusCode::OK, "/metrics\n/livez\n/readyz\n/scale".to_owned()),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /livez, /readyz and /scale".to_owned()),
        }
    }

    fn scale(&self, query: &str) -> Response<Full<Bytes>> {
        let question = match Question::read(query) {
            Ok(question) => question,
            Err(problem) => return text(StatusCode::BAD_REQUEST, problem),
        };
        // An autoscaler keeps its last figure on an error; an old one would mislead it.
        let oldest = self.sample_every * 3 + Duration::from_secs(30);
        let Some((sample, age)) = self.latest.get().filter(|(_, age)| *age <= oldest) else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "no fresh figures of the store".to_owned());
        };
        let answer = question.answer(&sample, age, &self.pulse.vitals());
        match serde_json::to_string(&answer) {
            Ok(json) => reply(StatusCode::OK, "application/json", json),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn health(health: Health) -> Response<Full<Bytes>> {
    let status = match health.state {
        State::Healthy => StatusCode::OK,
        State::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, health.text)
}

fn text(status: StatusCode, mut text: String) -> Response<Full<Bytes>> {
    text.push('\n');
    reply(status, "text/plain; charset=utf-8", text)
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A scraper, some probes, an autoscaler, and a few people.
const MOST_CONNECTIONS: usize = 64;

/// For one request, from the first byte to the last.
const LIMIT: Duration = Duration::from_secs(10);

/// The least that the HTTP library takes.
const MOST_HEADER_BYTES: usize = 8192;

/// Accepting fails again at once while there are no file handles.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
