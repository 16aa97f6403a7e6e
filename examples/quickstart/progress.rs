//! One line that changes on a terminal; a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::Totals;
use crate::summary::{count, say};

#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    shown: Option<Instant>,
    line: String,
    /// When a counter last changed, and what their sum was.
    changed: (Instant, u64),
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stdout().is_terminal(),
            shown: None,
            line: String::new(),
            changed: (Instant::now(), 0),
        }
    }

    pub(crate) fn show(&mut self, enqueued: usize, totals: &Totals) {
        let sum = enqueued as u64 + totals.done + totals.retried + totals.redelivered + totals.buried;
        if sum != self.changed.1 {
            self.changed = (Instant::now(), sum);
        }
        let interval = Duration::from_millis(if self.terminal { 50 } else { 1000 });
        if self.shown.is_some_and(|shown| shown.elapsed() < interval) {
            return;
        }
        self.shown = Some(Instant::now());
        let line = format!(
            "{:>7} enqueued  {:>7} done  {:>3} retried  {:>2} in the bin",
            count(enqueued as u64),
            count(totals.done),
            totals.retried,
            totals.buried,
        );
        if line == self.line {
            return;
        }
        if self.terminal {
            self.overwrite(&line);
        } else {
            say!("{line}");
        }
        self.line = line;
    }

    /// How long nothing has changed.
    pub(crate) fn stalled_for(&self) -> Duration {
        self.changed.0.elapsed()
    }

    /// A line that stays.
    pub(crate) fn say(&mut self, line: &str) {
        self.end();
        say!("{line}");
        self.shown = None;
        self.line.clear();
    }

    pub(crate) fn end(&self) {
        if self.terminal {
            self.overwrite("");
        }
    }

    fn overwrite(&self, line: &str) {
        let mut terminal = std::io::stdout();
        // A line without an end stays in the buffer unless it is flushed. A terminal that has gone is no failure.
        let _ = write!(terminal, "\r\x1b[2K{line}").and_then(|()| terminal.flush());
    }
}
