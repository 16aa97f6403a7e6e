use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use celeriac_core::Verdict;

/// What a worker did from its start to its end. Verdicts count when the store has applied them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Finished.
    pub done: u64,
    /// Failed, to be tried again.
    pub retried: u64,
    /// To be run again at their own wish.
    pub snoozed: u64,
    /// Moved to the dead-letter bin: rejected, undecodable, or out of attempts.
    pub buried: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Set aside for a worker that knows their task.
    pub parked: u64,
    /// Given back without being finished: at the stop, or after they had waited behind long jobs.
    pub released: u64,
    /// Verdicts that the store refused because the job had been handed to another worker.
    pub stale: u64,
    /// Handlers that were still running when the worker gave up on them: synchronous handlers, which nothing can
    /// stop from outside, and asynchronous ones that block.
    pub abandoned: u64,
    /// Times the lease was lost.
    pub leases_lost: u64,
    /// Jobs in hand at the end whose verdicts could not be written. The store delivers them again.
    pub unsettled: u64,
}

impl Report {
    pub(crate) const fn count(&mut self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Done => &mut self.done,
            Verdict::Retry { .. } => &mut self.retried,
            Verdict::Snooze { .. } => &mut self.snoozed,
            Verdict::Reject { .. } => &mut self.buried,
            Verdict::Cancel => &mut self.cancelled,
            Verdict::Park => &mut self.parked,
            // The one that is left; a new verdict must be given a counter here.
            _ => &mut self.released,
        };
        *counter += 1;
    }
}

impl fmt::Display for Report {
    /// The counters that are not zero, such as `12 done, 1 retried`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = [
            (self.done, "done"),
            (self.retried, "retried"),
            (self.snoozed, "snoozed"),
            (self.buried, "buried"),
            (self.cancelled, "cancelled"),
            (self.parked, "parked"),
            (self.released, "released"),
            (self.stale, "stale"),
            (self.abandoned, "abandoned"),
            (self.leases_lost, "leases lost"),
            (self.unsettled, "unsettled"),
        ];
        let shown: Vec<String> = counters
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if shown.is_empty() { f.write_str("nothing done") } else { f.write_str(&shown.join(", ")) }
    }
}

/// The report in the making, shared by all parts of a worker.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Report>);

impl Totals {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Report> {
        // Counters stay valid whatever panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_happened_only() {
        let mut report = Report::default();
        assert_eq!(report.to_string(), "nothing done");
        report.count(&Verdict::Done);
        report.count(&Verdict::Done);
        report.count(&Verdict::Release);
        assert_eq!(report.to_string(), "2 done, 1 released");
    }
}
