//! The job that is measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use celeriac::core::{Call, Payload, QueueName};
use celeriac::{State, TaskError, task};
use hdrhistogram::Histogram;

use crate::failure::Failure;

/// The queue that only this benchmark uses.
pub(crate) fn queue() -> Result<QueueName, Failure> {
    Ok(QueueName::new("celeriac-bench").map_err(celeriac::core::Error::from)?)
}

/// A job: `sent_ns` is the moment of its call, 0 for one whose waiting is not of interest.
#[task(name = "celeriac-bench", queue = "celeriac-bench")]
pub(crate) async fn no_op(
    number: u64,
    sent_ns: u64,
    text: String,
    recorder: State<Recorder>,
) -> Result<(), TaskError> {
    let _ = (number, text);
    recorder.started(sent_ns);
    Ok(())
}

/// What handlers of one process saw.
#[derive(Debug)]
pub(crate) struct Recorder {
    runs: AtomicU64,
    waits: Mutex<Histogram<u64>>,
}

impl Recorder {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { runs: AtomicU64::new(0), waits: Mutex::new(waits()?) })
    }

    fn started(&self, sent_ns: u64) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        if sent_ns > 0 {
            let micros = now_ns().saturating_sub(sent_ns) / 1_000;
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits.saturating_record(micros.max(1));
        }
    }

    /// How many handlers were started.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Each waiting time in microseconds with how often it was seen.
    pub(crate) fn waits(&self) -> Vec<(u64, u64)> {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.iter_recorded().map(|entry| (entry.value_iterated_to(), entry.count_at_value())).collect()
    }
}

/// An empty histogram of microseconds, up to an hour, to three digits.
pub(crate) fn waits() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3)
        .map_err(|error| Failure::failed("bench", format!("histogram: {error}")))
}

/// A call whose waiting is measured from now.
pub(crate) fn timed_call(number: u64, text: &str) -> Call {
    no_op::call(number, now_ns(), text)
}

/// A call whose waiting is not measured.
pub(crate) fn plain_call(number: u64, text: &str) -> Call {
    no_op::call(number, 0, text)
}

/// The string of the arguments.
pub(crate) fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// The bytes that the store keeps for one job's arguments.
pub(crate) fn payload(bytes: usize) -> Result<Payload, Failure> {
    let call = timed_call(u64::from(u32::MAX), &text(bytes));
    Ok(call.into_job(celeriac::core::JobId::from_key("bench", "payload"))?.payload)
}

/// The machine's wall clock: producer and worker are two processes, and a monotonic clock of the standard
/// library cannot be passed between them.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
