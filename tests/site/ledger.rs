use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use celeriac::Context;
use celeriac::core::JobId;

/// A line of the ledger: what one handler says about one run. It is written with one call in append mode, so lines of
/// many processes do not mix, and a process that is killed leaves whole lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub event: Event,
    /// To which job.
    pub id: JobId,
    /// In which attempt.
    pub attempt: u32,
    /// How many deliveries of the job had been lost before.
    pub lost: u32,
    /// In which process.
    pub process: u32,
}

/// What a handler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was told to stop.
    Cancelled,
    /// It is about to return.
    Ended,
    /// It runs.
    Started,
}

impl Entry {
    /// Writes a line about this run into the ledger that the environment names; nothing without one.
    pub fn write(event: Event, context: &Context) {
        let Some(file) = std::env::var_os("CELERIAC_TEST_LEDGER") else { return };
        let word = match event {
            Event::Cancelled => "cancelled",
            Event::Ended => "ended",
            Event::Started => "started",
        };
        let (attempt, lost) = (context.attempt(), context.lost_deliveries());
        let line = format!("{word} {} {attempt} {lost} {}\n", context.job_id(), std::process::id());
        OpenOptions::new().append(true).create(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Every line so far.
    pub(crate) fn read_all(file: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(Self::parse).collect()
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [event, id, attempt, lost, process] = words[..] else { panic!("a damaged line: {line:?}") };
        let event = match event {
            "cancelled" => Event::Cancelled,
            "ended" => Event::Ended,
            "started" => Event::Started,
            other => panic!("an unknown event: {other:?}"),
        };
        Self {
            event,
            id: id.parse().unwrap(),
            attempt: attempt.parse().unwrap(),
            lost: lost.parse().unwrap(),
            process: process.parse().unwrap(),
        }
    }
}
