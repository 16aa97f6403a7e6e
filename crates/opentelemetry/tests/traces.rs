//! A trace from the caller through the store to the handler.

use std::sync::Arc;
use std::time::Duration;

use celeriac::prelude::*;
use celeriac::{ExitWhenEmpty, Registry, Shutdown, Worker};
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::Instrument;
use tracing_subscriber::prelude::*;

#[task]
async fn letter(to: String) {
    tracing::info_span!("inside", to).in_scope(|| tracing::info!("written"));
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| {
        panic!("no span {name} among {:?}", spans.iter().map(|span| span.name.as_ref()).collect::<Vec<_>>())
    })
}

#[tokio::test]
async fn the_run_continues_the_callers_trace() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    assert!(celeriac_opentelemetry::propagate(&provider));
    tracing_subscriber::registry().with(celeriac_opentelemetry::layer(&provider)).init();

    let celeriac = Client::connect("sqlite::memory:").await.unwrap();
    let request = tracing::info_span!("request");
    let id = celeriac.enqueue(letter::call("ada")).instrument(request.clone()).await.unwrap().id();
    let stored = celeriac.job(id).await.unwrap().unwrap();
    assert!(stored.job.extras.headers.contains_key("traceparent"), "{:?}", stored.job.extras.headers);
    drop(request);

    let worker = Worker::builder(Arc::clone(celeriac.broker()), Registry::collect().unwrap())
        .exit_when_empty(ExitWhenEmpty::Yes)
        .build()
        .unwrap();
    let report = tokio::time::timeout(Duration::from_secs(60), worker.run(Shutdown::new())).await.unwrap();
    assert_eq!(report.unwrap().done, 1);
    provider.force_flush().unwrap();

    let spans = exporter.get_finished_spans().unwrap();
    let request = named(&spans, "request");
    let trace = request.span_context.trace_id();
    assert_eq!(request.parent_span_id, SpanId::INVALID);
    let enqueue = named(&spans, "enqueue");
    assert_eq!(enqueue.parent_span_id, request.span_context.span_id());
    for (name, parent) in [("wait", enqueue), ("run", enqueue), ("inside", named(&spans, "run"))] {
        let span = named(&spans, name);
        assert_eq!(span.span_context.trace_id(), trace, "{name}");
        assert_eq!(span.parent_span_id, parent.span_context.span_id(), "{name}");
    }
}
