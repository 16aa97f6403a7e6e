use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use celeriac::core::{
    Broker, EnqueueOptions, Enqueued, Error, NewJob, Priority, RetryPolicy, Start, Timestamp, nearest,
    parse_duration,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::{Exit, Failure};
use crate::job_request::{Catalogue, Identity, JobRequest};
use crate::output::Output;
use crate::table::grouped;

/// Where lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    StandardInput,
}

/// What became of the lines.
#[derive(Debug, Default, Serialize)]
struct Summary {
    lines: u64,
    enqueued: u64,
    existed: u64,
    refused: u64,
}

/// Lines of a batch, still to be stored or complained of.
#[derive(Debug, Default)]
struct Batch {
    jobs: Vec<(u64, NewJob)>,
    bytes: usize,
    /// Lines that are no job. They are told with those that the store refuses, in the order of the lines.
    bad: Vec<(u64, Failure)>,
}

/// Stores a job for each line of `source`.
pub(crate) async fn run(
    source: &Source,
    broker: &dyn Broker,
    catalogue: &Catalogue,
    options: &EnqueueOptions,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let (mut reader, size) = source.open()?;
    let bar = progress_bar(size, output);
    let mut summary = Summary::default();
    let mut batch = Batch::default();
    let mut read = 0;
    loop {
        let line = read_line(&mut reader)
            .map_err(|error| source.unreadable(&error).at_line(summary.lines.saturating_add(1)))?;
        let Some((line, length)) = line else { break };
        summary.lines += 1;
        read += length;
        let number = summary.lines;
        let job = line.and_then(|line| parse_line(&line, number)).and_then(|request| {
            let Some(request) = request else { return Ok(None) };
            let job = request.into_job(catalogue)?;
            job.check(options.max_payload)?;
            Ok(Some(job))
        });
        match job {
            Ok(Some(job)) => batch.push(number, job),
            Ok(None) => {}
            Err(failure) => batch.bad.push((number, failure)),
        }
        if batch.is_full() {
            store(std::mem::take(&mut batch), broker, options, &mut summary, &bar, output).await?;
        }
        bar.set_position(read);
    }
    store(batch, broker, options, &mut summary, &bar, output).await?;
    bar.finish_and_clear();
    if output.is_json() {
        output.json(&summary)?;
    } else {
        output.line(summary.text())?;
    }
    Ok(if summary.refused == 0 { Exit::Done } else { Exit::Failed })
}

/// Stores a batch, and complains of its bad lines.
async fn store(
    mut batch: Batch,
    broker: &dyn Broker,
    options: &EnqueueOptions,
    summary: &mut Summary,
    bar: &ProgressBar,
    output: &mut Output,
) -> Result<(), Failure> {
    let result = batch.enqueue(broker, options, summary).await;
    batch.bad.sort_by_key(|(line, _)| *line);
    for (line, failure) in batch.bad {
        summary.refused += 1;
        bar.suspend(|| output.complain(&failure.at_line(line)));
    }
    result
}

/// Whether another job may fare better, so that the rest of a file is worth trying.
const fn is_about_a_job(error: &Error) -> bool {
    matches!(
        error,
        Error::Invalid { .. }
            | Error::InvalidName(_)
            | Error::Arguments { .. }
            | Error::NoSuchQueue { .. }
            | Error::QueueFull { .. }
            | Error::PayloadTooLarge { .. }
    )
}

fn stopped(error: Error, line: u64) -> Failure {
    let code = error.code().as_str();
    Failure::failed(
        code,
        format!("{}; stopped: this line and those after it are not confirmed", error.full()),
    )
    .at_line(line)
}

impl Batch {
    /// Lines in one call of the store: past a few hundred a call gains nothing, and the progress bar stutters.
    const LINES: usize = 500;
    /// Bytes in one call, so that large payloads do not pile up in memory.
    const BYTES: usize = 8 * 1024 * 1024;

    fn push(&mut self, line: u64, job: NewJob) {
        self.bytes += job.payload.len();
        self.jobs.push((line, job));
    }

    const fn is_full(&self) -> bool {
        self.jobs.len() >= Self::LINES || self.bytes >= Self::BYTES || self.bad.len() >= Self::LINES
    }

    /// Stores the jobs in one call; if the store refuses it, one by one, so that the bad line is found and the
    /// others go on.
    async fn enqueue(
        &mut self,
        broker: &dyn Broker,
        options: &EnqueueOptions,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let Some(&(first, _)) = self.jobs.first() else {
            return Ok(());
        };
        let whole = self.jobs.iter().map(|(_, job)| job.clone()).collect();
        match broker.enqueue(whole, options.clone()).await {
            Ok(enqueued) => {
                summary.count(&enqueued);
                return Ok(());
            }
            Err(error) if is_about_a_job(&error) => {}
            Err(error) => return Err(stopped(error, first)),
        }
        for (line, job) in self.jobs.drain(..) {
            match broker.enqueue(vec![job], options.clone()).await {
                Ok(enqueued) => summary.count(&enqueued),
                Err(error) if is_about_a_job(&error) => self.bad.push((line, error.into())),
                Err(error) => return Err(stopped(error, line)),
            }
        }
        Ok(())
    }
}

impl Summary {
    fn count(&mut self, enqueued: &[Enqueued]) {
        for enqueued in enqueued {
            match enqueued {
                Enqueued::Existed(_) => self.existed += 1,
                _ => self.enqueued += 1,
            }
        }
    }

    fn text(&self) -> String {
        let mut text = format!("enqueued {} jobs", grouped(self.enqueued));
        if self.existed > 0 {
            text.push_str(&format!(", {} were there already", grouped(self.existed)));
        }
        if self.refused > 0 {
            text.push_str(&format!(", refused {}", grouped(self.refused)));
        }
        text
    }
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::StandardInput } else { Self::File(text.into()) })
    }
}

impl Source {
    /// The lines, and their size in bytes if it is known.
    fn open(&self) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
        match self {
            Self::File(path) => {
                let file = File::open(path).map_err(|error| self.unreadable(&error))?;
                let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| data.len());
                Ok((Box::new(BufReader::with_capacity(1 << 16, file)), size))
            }
            Self::StandardInput => Ok((Box::new(BufReader::with_capacity(1 << 16, io::stdin())), None)),
        }
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        let name = match self {
            Self::File(path) => path.display().to_string(),
            Self::StandardInput => "the standard input".to_owned(),
        };
        Failure::failed("input", format!("cannot read {name}: {error}"))
    }
}

fn progress_bar(size: Option<u64>, output: &Output) -> ProgressBar {
    if output.is_json() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // The templates are constants without a mistake; the default style would do as well.
    match size {
        Some(size) => ProgressBar::new(size).with_style(
            ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        ),
        None => ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        ),
    }
}

/// The longest line that is read: a payload at its limit, with room for escapes and the other fields. A file
/// without line breaks must not fill the memory.
const MAX_LINE: u64 = 8 * 1024 * 1024;

/// The next line, or why it is none, and its length in bytes with its end.
type ReadLine = Option<(Result<String, Failure>, u64)>;

fn read_line(reader: &mut (impl BufRead + ?Sized)) -> io::Result<ReadLine> {
    let mut bytes = Vec::new();
    let mut length = reader.take(MAX_LINE + 1).read_until(b'\n', &mut bytes)? as u64;
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_LINE && bytes.last() != Some(&b'\n') {
        length += skip_line(reader)?;
        let message = format!("it is longer than {} bytes", grouped(MAX_LINE));
        return Ok(Some((Err(Failure::failed("line", message)), length)));
    }
    let line = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to() + 1;
        Failure::failed("line", format!("it is no UTF-8: byte {place} is not allowed there"))
    });
    Ok(Some((line, length)))
}

fn skip_line(reader: &mut (impl BufRead + ?Sized)) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let available = reader.fill_buf()?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(available.len(), |end| end + 1);
        reader.consume(used);
        skipped += used as u64;
        if used == 0 || end.is_some() {
            return Ok(skipped);
        }
    }
}

const FIELDS: [&str; 13] = [
    "task",
    "args",
    "queue",
    "priority",
    "delay",
    "run_at",
    "ttl",
    "timeout",
    "max_attempts",
    "retry",
    "id",
    "idempotency_key",
    "headers",
];

/// Reads one line; `None` for an empty one.
fn parse_line(line: &str, number: u64) -> Result<Option<JobRequest>, Failure> {
    // Some editors put a byte order mark before the first line.
    let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { line }.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(line)
        .map_err(|error| Failure::failed("line", format!("it is no JSON object: {error}")))?;
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let hint = match nearest(unknown, FIELDS) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known are {}", FIELDS.join(", ")),
        };
        return Err(Failure::failed("line", format!("unknown field {unknown:?} ({hint})")));
    }
    let task: String = field(&fields, "task")?
        .ok_or_else(|| Failure::failed("line", "the field task is missing; it names the task"))?;
    let arguments = fields.get("args").map_or("{}", |raw| raw.get());
    let mut request = JobRequest::new(task.try_into().map_err(Error::from)?, arguments);
    if let Some(queue) = field::<String>(&fields, "queue")? {
        request.queue = Some(queue.try_into().map_err(Error::from)?);
    }
    if let Some(priority) = field::<i64>(&fields, "priority")? {
        request.priority = Some(priority.to_string().parse::<Priority>().map_err(Error::from)?);
    }
    let (delay, run_at) = (duration(&fields, "delay")?, field::<String>(&fields, "run_at")?);
    request.start = match (delay, run_at) {
        (Some(_), Some(_)) => return Err(either("delay", "run_at")),
        (Some(delay), None) => Start::After(delay),
        (None, Some(text)) => Start::At(
            Timestamp::parse_rfc3339(&text)
                .map_err(|problem| Failure::failed("invalid", format!("run_at: {problem}")))?,
        ),
        (None, None) => Start::Now,
    };
    request.ttl = duration(&fields, "ttl")?;
    request.timeout = duration(&fields, "timeout")?;
    request.max_attempts = field(&fields, "max_attempts")?;
    if let Some(retry) = field::<String>(&fields, "retry")? {
        request.retry = Some(retry.parse::<RetryPolicy>().map_err(Error::from)?);
    }
    request.identity = match (field(&fields, "id")?, field(&fields, "idempotency_key")?) {
        (Some(_), Some(_)) => return Err(either("id", "idempotency_key")),
        (Some(id), None) => Identity::Id(id),
        (None, Some(key)) => Identity::Key(key),
        (None, None) => Identity::Fresh,
    };
    request.headers = field(&fields, "headers")?.unwrap_or_default();
    Ok(Some(request))
}

/// A field's value; `None` when it is not there or null.
fn field<T: DeserializeOwned>(
    fields: &BTreeMap<String, &RawValue>,
    name: &'static str,
) -> Result<Option<T>, Failure> {
    let Some(raw) = fields.get(name) else { return Ok(None) };
    Option::<T>::deserialize(&mut serde_json::Deserializer::from_str(raw.get())).map_err(|error| {
        // The place is within the field; without it the sentence is complete.
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        Failure::failed("invalid", format!("field {name}: {text}"))
    })
}

fn duration(fields: &BTreeMap<String, &RawValue>, name: &'static str) -> Result<Option<Duration>, Failure> {
    if let Some(raw) = fields.get(name)
        && raw.get().parse::<f64>().is_ok()
    {
        let problem = "write it as text with its unit, such as \"250ms\", \"30s\" or \"10m\"";
        return Err(Failure::failed("invalid", format!("field {name}: {}: {problem}", raw.get())));
    }
    let Some(text) = field::<String>(fields, name)? else { return Ok(None) };
    parse_duration(&text)
        .map(Some)
        .map_err(|error| Failure::failed("invalid", format!("field {name}: {error}")))
}

fn either(one: &str, other: &str) -> Failure {
    Failure::failed("invalid", format!("{one} and {other} exclude each other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        parse_line(line, 7).unwrap_err().text()
    }

    #[test]
    fn a_full_line_is_read() {
        let line = r#"{"task":"mail","args":{"n":12345678901234567890123},"queue":"high","priority":9,
            "delay":"1m 30s","ttl":"1h","timeout":"5s","max_attempts":3,"retry":"1s, 2s",
            "idempotency_key":"k","headers":{"tenant":"acme"}}"#
            .replace('\n', " ");
        let request = parse_line(&line, 1).unwrap().unwrap();
        assert_eq!(request.arguments, r#"{"n":12345678901234567890123}"#, "numbers keep their digits");
        assert_eq!(request.start, Start::After(Duration::from_secs(90)));
        assert_eq!(request.priority, Some(Priority::HIGHEST));
        assert_eq!(request.identity, Identity::Key("k".into()));
        assert_eq!(request.headers["tenant"], "acme");
    }

    #[test]
    fn empty_lines_and_a_byte_order_mark_are_no_jobs() {
        assert!(parse_line("  \r\n", 3).unwrap().is_none());
        assert!(parse_line("\u{feff}{\"task\":\"a\"}", 1).unwrap().is_some());
        assert!(parse_line("{\"task\":\"a\",\"queue\":null}", 1).unwrap().unwrap().queue.is_none());
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, part) in [
            ("{", "no JSON object"),
            ("[]", "no JSON object"),
            (r#"{"args":{}}"#, "field task is missing"),
            (r#"{"task":"a","prioritty":1}"#, "did you mean priority?"),
            (r#"{"task":"a","zzz":1}"#, "known are task, args"),
            (r#"{"task":"a","priority":10}"#, "0 to 9"),
            (r#"{"task":"a","priority":"high"}"#, "field priority: invalid type: string \"high\""),
            (r#"{"task":"a","delay":5}"#, "field delay: 5: write it as text with its unit"),
            (r#"{"task":"a","delay":"5"}"#, "field delay"),
            (r#"{"task":"a","delay":"5s","run_at":"2027-01-31T08:30:00Z"}"#, "exclude each other"),
            (r#"{"task":"a","id":"7"}"#, "field id"),
            (r#"{"task":"a","id":"7f2c1e9e-8f5b-4a0e-9d57-3a1f0a3b1c2d","idempotency_key":"k"}"#, "exclude"),
            (r#"{"task":"a b"}"#, "character 2"),
            (r#"{"task":"a","queue":"two words"}"#, "character 4"),
            (r#"{"task":"a","retry":"5"}"#, "unit"),
            (r#"{"task":"a","headers":[]}"#, "field headers"),
            (r#"{"task":"a","max_attempts":-1}"#, "field max_attempts"),
        ] {
            let text = refusal(line);
            assert!(text.contains(part), "{line} gave {text}");
        }
    }

    #[test]
    fn long_and_broken_lines_are_skipped_to_their_end() {
        let mut input = vec![b'x'; usize::try_from(MAX_LINE).unwrap() + 100_000];
        input.extend_from_slice(b"\nab\xff\nlast");
        let mut reader = BufReader::new(&input[..]);
        let (long, _) = read_line(&mut reader).unwrap().unwrap();
        assert!(long.unwrap_err().text().contains("longer than"));
        let (broken, length) = read_line(&mut reader).unwrap().unwrap();
        assert!(broken.unwrap_err().text().contains("byte 3"));
        assert_eq!(length, 4);
        assert_eq!(read_line(&mut reader).unwrap().unwrap().0.unwrap(), "last");
        assert!(read_line(&mut reader).unwrap().is_none());
    }
}
