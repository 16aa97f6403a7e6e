use std::sync::OnceLock;
use std::time::Duration;

use celeriac_core::{Headers, NewJob};
use tracing::Span;

/// How a trace goes on from the caller to the worker, by way of a job's headers.
///
/// Nothing here knows a tracing system. The crate `celeriac-opentelemetry` has an implementation that carries the W3C
/// headers `traceparent` and `tracestate`.
pub trait Propagation: Send + Sync + 'static {
    /// Adds headers that name the span that is current now.
    fn inject(&self, headers: &mut Headers);

    /// Makes `span`, of a run that is about to begin, continue what `headers` name. The job has waited for `waited`.
    fn extract(&self, headers: &Headers, span: &Span, waited: Duration);
}

static PROPAGATION: OnceLock<Box<dyn Propagation>> = OnceLock::new();

/// From now on traces go on in this way, in the whole process. Only the first call counts; gives whether this was it.
pub fn set_propagation(propagation: impl Propagation) -> bool {
    PROPAGATION.set(Box::new(propagation)).is_ok()
}

/// Names the current span in the headers of a job that is about to be stored. Leaves headers alone that the caller has
/// set, and jobs without room for more.
pub fn inject(job: &mut NewJob) {
    let Some(propagation) = PROPAGATION.get() else { return };
    if job.headers.contains_key("traceparent") {
        return;
    }
    let mut added = Headers::new();
    propagation.inject(&mut added);
    let bytes =
        |headers: &Headers| headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let fits = job.headers.len() + added.len() <= NewJob::MAX_HEADERS
        && bytes(&job.headers) + bytes(&added) <= NewJob::MAX_HEADER_BYTES;
    // A trace is worth less than a job: one that is full of headers goes without.
    if fits {
        for (name, value) in added {
            job.headers.entry(name).or_insert(value);
        }
    }
}

/// Makes the span of a run continue the caller's.
pub(crate) fn extract(headers: &Headers, span: &Span, waited: Duration) {
    if let Some(propagation) = PROPAGATION.get() {
        propagation.extract(headers, span, waited);
    }
}

#[cfg(test)]
mod tests {
    use celeriac_core::{JobId, Payload, QueueName, TaskName};

    use super::*;

    struct Fixed;

    impl Propagation for Fixed {
        fn inject(&self, headers: &mut Headers) {
            headers.insert("traceparent".into(), "00-1-2-01".into());
            headers.insert("tracestate".into(), "a=b".into());
        }

        fn extract(&self, _: &Headers, _: &Span, _: Duration) {}
    }

    #[test]
    fn headers_are_added_where_there_is_room_and_the_callers_stay() {
        let job = || {
            let task = TaskName::new("t").unwrap();
            let payload = Payload::from_json("{}").unwrap();
            NewJob::new(JobId::from_key("a", "b"), QueueName::default(), task, payload)
        };
        let mut before = job();
        inject(&mut before);
        assert!(before.headers.is_empty(), "nothing was set yet");
        assert!(set_propagation(Fixed));
        assert!(!set_propagation(Fixed));

        let mut plain = job();
        inject(&mut plain);
        assert_eq!(plain.headers["traceparent"], "00-1-2-01");
        assert_eq!(plain.headers["tracestate"], "a=b");

        let mut own = job();
        own.headers.insert("traceparent".into(), "mine".into());
        inject(&mut own);
        assert_eq!((own.headers.len(), own.headers["traceparent"].as_str()), (1, "mine"));

        let mut full = job();
        full.headers = (0..31).map(|number| (number.to_string(), String::new())).collect();
        inject(&mut full);
        assert_eq!(full.headers.len(), 31);
        full.check(1024).unwrap();
    }
}
