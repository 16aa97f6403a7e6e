//! What a person reads at the end.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use celeriac::core::{DeadReason, Filter, PageOptions, Room};
use celeriac::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::files::Files;
use crate::measurements::Measurement;
use crate::tasks::{HOPELESS, missing_file};
use crate::{Failure, Totals};

/// Prints a line. A reader that has gone, such as `head`, is no failure.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
pub(crate) use say;

/// Everything that is known after the last job.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) files: Files,
    pub(crate) measured: Vec<Measurement>,
    /// When the last file's job was on the disk.
    pub(crate) stored_after: Duration,
    /// When the last file's job was done.
    pub(crate) done_after: Duration,
    /// Files' jobs in the bin.
    pub(crate) unreadable: u64,
    /// At the very end.
    pub(crate) totals: Totals,
    pub(crate) lost_workers: usize,
}

impl Run {
    /// Nothing may be missing: each file has a digest or a job in the bin, and nothing else is in the bin than what
    /// belongs there.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let found = self.by_path();
        let missing = self.files.list.iter().filter(|file| !found.contains_key(file.path.as_path())).count();
        if missing as u64 != self.unreadable {
            let bin = self.unreadable;
            return Err(
                format!("{missing} files have no digest, but {bin} of their jobs are in the bin").into()
            );
        }
        if self.measured.is_empty() {
            return Err("not one of the files could be read".into());
        }
        let expected = self.unreadable + HOPELESS;
        if self.totals.buried != expected {
            return Err(format!("{} jobs are in the bin instead of {expected}", self.totals.buried).into());
        }
        Ok(())
    }

    pub(crate) fn print(&self) {
        let jobs = self.files.list.len() as u64;
        let per_second = |time: Duration| count((jobs as f64 / time.as_secs_f64()) as u64);
        let read: u64 = self.measured.iter().map(|measurement| measurement.bytes).sum();
        say!("\nDone: {} jobs in {}.\n", count(jobs), duration(self.done_after));
        say!("  enqueued   {:>7} jobs a second, each on the disk", per_second(self.stored_after));
        say!("  finished   {:>7} jobs a second, {} read", per_second(self.done_after), bytes(read));
        say!("  waited     {}  from the enqueue to the start", self.percentiles(|job| job.waited));
        say!("  ran        {}", self.percentiles(|job| job.ran));
        say!("  retries    {} attempts failed and were made again after a delay", count(self.totals.retried));
        say!("  crashes    {} workers were killed by one job; no other job was lost", self.lost_workers);
    }

    /// Computes one digest again by other means.
    pub(crate) fn print_sample(&self) -> Result<(), Failure> {
        let found = self.by_path();
        // The middle one of those that nobody has changed lately.
        let lately = SystemTime::now() - Duration::from_secs(60);
        let unchanged = |path: &Path| {
            let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified < lately)
        };
        let (before, after) = self.files.list.split_at(self.files.list.len() / 2);
        let sample = after.iter().chain(before).find_map(|file| {
            let measurement = found.get(file.path.as_path())?;
            (file.bytes > 0 && unchanged(&file.path)).then_some(measurement)
        });
        let Some(sample) = sample else {
            say!("  checked    no digest, since every file has just been written");
            return Ok(());
        };
        let (again, by) = other_digest(&sample.path)?;
        if again != sample.sha256 {
            let path = sample.path.display();
            return Err(format!("{path}: the job says {}, {by} says {again}", sample.sha256).into());
        }
        let name = sample.path.file_name().unwrap_or_default().to_string_lossy();
        say!("  checked    {name}: {}… is what {by} says", &again[..16]);
        Ok(())
    }

    fn by_path(&self) -> HashMap<&Path, &Measurement> {
        self.measured.iter().map(|measurement| (measurement.path.as_path(), measurement)).collect()
    }

    fn percentiles(&self, part: fn(&Measurement) -> Duration) -> String {
        let mut sorted: Vec<Duration> = self.measured.iter().map(part).collect();
        sorted.sort_unstable();
        let at = |share: f64| {
            // The smallest value that at least this share of all does not exceed.
            let rank = (sorted.len() as f64 * share).ceil() as usize;
            duration(sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default())
        };
        format!("p50 {:>8}  p95 {:>8}  p99 {:>8}", at(0.5), at(0.95), at(0.99))
    }
}

/// The jobs in the bin, with the reasons.
pub(crate) async fn print_bin(celeriac: &Client) -> Result<(), Failure> {
    let mut page = PageOptions::default();
    page.limit = SHOWN;
    let bin = celeriac.broker().list(Filter::room(Room::Dead), page).await?;
    say!("\nWhat cannot succeed waits in the dead-letter bin, with its history:\n");
    for dead in &bin.jobs {
        let job = &dead.job;
        let reason = dead.reason.map(|reason| reason.to_string()).unwrap_or_default();
        let tried = match (job.attempt, dead.reason) {
            (0, Some(DeadReason::DeliveryLimit)) => format!("{} workers lost", job.deliveries),
            (0, _) => "never ran".to_owned(),
            (1, _) => "1 attempt".to_owned(),
            (attempts, _) => format!("{attempts} attempts"),
        };
        say!(
            "  {reason:<17}  {:<16}  {tried:<14}  {}",
            job.task,
            one_line(dead.last_error().unwrap_or_default())
        );
    }
    if bin.next.is_some() {
        say!("  and more");
    }
    Ok(())
}

/// Where to look next.
pub(crate) fn print_commands(url: &str, folder: &Path) {
    let command = "  cargo run --release -p celeriac-cli --";
    say!("\nThe file stays until you delete it. Look into it:\n");
    say!("  export CELERIAC_BROKER={}", quoted(url));
    say!("{command} stats");
    say!("{command} dead list");
    say!("{command} doctor");
    say!("\nRepair one failure, send the job back, and let the standard worker do it:\n");
    say!("  touch {}", quoted(&missing_file(folder).display().to_string()));
    say!("{command} dead replay --reason rejected");
    say!("  cargo run --release -p celeriac-standard -- --exit-when-empty");
}

/// By the system's own program, or else in one piece instead of in steps.
fn other_digest(path: &Path) -> std::io::Result<(String, &'static str)> {
    let output = Command::new("sha256sum").arg("--").arg(path).output();
    if let Ok(output) = output
        && output.status.success()
    {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // A line that begins with a backslash has an escaped name.
        let digest: String = text.trim_start_matches('\\').chars().take(64).collect();
        return Ok((digest, "sha256sum"));
    }
    let whole = Sha256::digest(std::fs::read(path)?);
    Ok((whole.iter().map(|byte| format!("{byte:02x}")).collect(), "a computation in one piece"))
}

/// `1,234,567`
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 MiB`
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

/// `1.50 s`, `2.1 ms`, `80 µs`
fn duration(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

/// For a shell, where that is needed.
fn quoted(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/:._-".contains(character);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The beginning of a text, without line breaks.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LONGEST_TEXT {
        return line;
    }
    line.chars().take(LONGEST_TEXT - 1).chain(['…']).collect()
}

/// Of the bin; the command line shows the rest.
const SHOWN: usize = 12;

const LONGEST_TEXT: usize = 90;
