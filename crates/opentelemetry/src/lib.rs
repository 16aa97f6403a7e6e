//! Traces that go on from the caller to the worker, with [OpenTelemetry].
//!
//! A caller's span is named in the job's headers (W3C `traceparent` and `tracestate`), and the worker's spans continue
//! it, in another process, days later. Which exporter sends the spans is yours to choose: this crate takes any
//! [`SdkTracerProvider`].
//!
//! ```
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//! use tracing_subscriber::prelude::*;
//!
//! // With an exporter: SdkTracerProvider::builder().with_batch_exporter(…)
//! let provider = SdkTracerProvider::builder().build();
//! celeriac_opentelemetry::propagate(&provider);
//! tracing_subscriber::registry().with(celeriac_opentelemetry::layer(&provider)).init();
//! // celeriac::worker().main(), or a Client
//! ```
//!
//! | span | where | kind |
//! | --- | --- | --- |
//! | `enqueue` | in the caller, one for each call | producer |
//! | `wait` | from when the job was due to its start | internal |
//! | `run` | one run of the handler; whatever the handler traces is inside | consumer |
//! | `settle` | in the worker, one for each batch of verdicts | internal |
//!
//! `run` has the fields `job`, `task`, `queue` and `attempt`. Both `enqueue` and `run` are of the level `info`, the
//! others of `debug`.
//!
//! [OpenTelemetry]: https://opentelemetry.io

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

use std::time::{Duration, SystemTime};

use celeriac::Propagation;
use celeriac::core::Headers;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{Span as _, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;

/// Lets the traces of this process go on in the jobs that it enqueues and runs. Call it once, at the start; gives
/// whether this was the first call.
pub fn propagate(provider: &SdkTracerProvider) -> bool {
    celeriac::set_propagation(W3c { tracer: provider.tracer(NAME), text: TraceContextPropagator::new() })
}

/// The layer that hands `tracing`'s spans to a provider.
pub fn layer<S>(provider: &SdkTracerProvider) -> OpenTelemetryLayer<S, SdkTracer>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer().with_tracer(provider.tracer(NAME))
}

const NAME: &str = "celeriac";

#[derive(Debug)]
struct W3c {
    tracer: SdkTracer,
    text: TraceContextPropagator,
}

impl Propagation for W3c {
    fn inject(&self, headers: &mut Headers) {
        self.text.inject_context(&Span::current().context(), &mut Outgoing(headers));
    }

    fn extract(&self, headers: &Headers, span: &Span, waited: Duration) {
        let caller = self.text.extract(&Incoming(headers));
        if !caller.span().span_context().is_valid() {
            return;
        }
        let now = SystemTime::now();
        if let Some(due) = now.checked_sub(waited) {
            let wait = self.tracer.span_builder("wait").with_start_time(due);
            wait.start_with_context(&self.tracer, &caller).end_with_timestamp(now);
        }
        // It fails for a span that nobody looks at.
        let _ = span.set_parent(caller);
    }
}

struct Outgoing<'a>(&'a mut Headers);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty state says nothing and would take a header.
        if !value.is_empty() {
            self.0.insert(key.to_owned(), value);
        }
    }
}

struct Incoming<'a>(&'a Headers);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
