use std::time::Duration;

use celeriac::core::{Timestamp, parse_duration};
use celeriac_scheduler::{Cron, Every, Fire, Moved, Timetable, Zone};
use clap::{ArgGroup, Args};
use serde::Serialize;

use crate::age::{ahead, now};
use crate::command_line::bounded;
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::table::{Align, Cell, Table};

/// Show when a cron expression or an interval fires
///
/// Needs no store. A cron expression has five fields: minutes, hours, days of the month, months
/// and weekdays (Monday is 1, Sunday 0 or 7), or six with seconds in front:
///
///     celeriac periodic preview --cron '0 9 * * Mon-Fri' --zone Europe/Berlin
///     celeriac periodic preview --cron '30 2 * * *' --zone America/New_York -n 100
///     celeriac periodic preview --every 90m
///
/// Fires that a clock change moves are marked.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, group = ArgGroup::new("timetable").required(true))]
pub(crate) struct PreviewCommand {
    /// A cron expression, such as '*/5 9-17 * * Mon-Fri' or @daily
    #[arg(long, value_name = "EXPRESSION", group = "timetable", allow_hyphen_values = true)]
    cron: Option<String>,
    /// An interval of at least 1s, counted from --from
    #[arg(long, value_name = "DURATION", group = "timetable", value_parser = duration, conflicts_with = "zone")]
    every: Option<Duration>,
    /// The time zone of the expression, by its IANA name [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// How many fires to show
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 10, value_parser = bounded::<usize>(1..=1_000))]
    number: usize,
    /// The fires after this instant, such as 2027-01-31T08:30:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Timestamp>,
}

#[derive(Serialize)]
struct PreviewView {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_seconds: Option<f64>,
    sentence: String,
    from: String,
    fires: Vec<FireView>,
}

#[derive(Serialize)]
struct FireView {
    at: String,
    local: String,
    offset: String,
    weekday: &'static str,
    /// `gap`, `fold` or null.
    moved: Option<&'static str>,
}

pub(crate) fn run(command: &PreviewCommand, output: &mut Output) -> Result<Exit, Failure> {
    let from = command.from.unwrap_or_else(now);
    let timetable = command.timetable(from, output)?;
    timetable.first_fire(from).map_err(|error| Failure::usage(error.to_string()))?;
    let fires = timetable.fires_between(from, Timestamp::from_micros(i64::MAX), command.number);
    if output.is_json() {
        output.json(&PreviewView::new(&timetable, from, &fires))?;
        return Ok(Exit::Done);
    }
    output.line(timetable.describe())?;
    output.line("")?;
    let mut table = Table::new([
        ("LOCAL TIME", Align::Left),
        ("OFFSET", Align::Left),
        ("UTC", Align::Left),
        ("FROM THEN", Align::Left),
        ("CLOCK CHANGE", Align::Left),
    ]);
    for fire in &fires {
        let (time, offset) = parts(fire);
        table.row([
            Cell::from(format!("{} {}", fire.weekday, time.replace('T', " "))),
            Cell::from(offset),
            Cell::from(utc(fire.at)),
            Cell::from(ahead(fire.at, from)),
            Cell::toned(remark(fire.moved), Tone::Warning),
        ]);
    }
    output.table(&table)?;
    if fires.len() < command.number {
        output.remark("there are no more before the year 2101");
    }
    Ok(Exit::Done)
}

impl PreviewCommand {
    fn timetable(&self, from: Timestamp, output: &Output) -> Result<Timetable, Failure> {
        if let Some(interval) = self.every {
            let every = Every::new(interval, from).map_err(|error| Failure::usage(error.to_string()))?;
            return Ok(Timetable::Every(every));
        }
        let cron = Cron::parse(self.cron.as_deref().unwrap_or_default()).map_err(|error| {
            // Programs have no use for carets under a text.
            let message = if output.is_json() { error.problem() } else { error.to_string() };
            Failure::usage(format!("no cron expression: {message}"))
        })?;
        let zone = match &self.zone {
            Some(name) => Zone::parse(name).map_err(|error| Failure::usage(error.to_string()))?,
            None => Zone::UTC,
        };
        Ok(Timetable::Cron(cron, zone))
    }
}

impl PreviewView {
    fn new(timetable: &Timetable, from: Timestamp, fires: &[Fire]) -> Self {
        let (cron, zone, every) = match timetable {
            Timetable::Cron(cron, zone) => (Some(cron.to_string()), Some(zone.name()), None),
            Timetable::Every(every) => (None, None, Some(every.interval().as_secs_f64())),
            _ => (None, None, None),
        };
        Self {
            cron,
            zone,
            every_seconds: every,
            sentence: timetable.describe(),
            from: from.to_string(),
            fires: fires.iter().map(FireView::from).collect(),
        }
    }
}

impl From<&Fire> for FireView {
    fn from(fire: &Fire) -> Self {
        let moved = match fire.moved {
            Moved::Fold => Some("fold"),
            Moved::Gap => Some("gap"),
            _ => None,
        };
        Self {
            at: fire.at.to_string(),
            local: fire.local.clone(),
            offset: parts(fire).1.to_owned(),
            weekday: fire.weekday,
            moved,
        }
    }
}

/// The local time and its offset.
fn parts(fire: &Fire) -> (&str, &str) {
    // `+02:00` is six bytes long, and nothing else stands at the end of RFC 3339.
    fire.local.split_at(fire.local.len().saturating_sub(6))
}

/// An instant without parts of a second that are zero.
fn utc(at: Timestamp) -> String {
    at.to_string().replace(".000Z", "Z")
}

fn remark(moved: Moved) -> &'static str {
    match moved {
        Moved::Fold => "this time comes twice: only the first fires",
        Moved::Gap => "the named time is skipped: fires after the gap",
        _ => "",
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse_rfc3339(text)
}
