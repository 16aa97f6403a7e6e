//! What a person reads at the end.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use celeriac::core::{Filter, PageOptions, Room};
use celeriac::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::files::Files;
use crate::measurements::Measurement;
use crate::{Failure, Speed, Totals};

/// Nothing may be missing: each file has a digest, or a job in the bin.
pub(crate) fn check(files: &Files, measured: &[Measurement], totals: &Totals) -> Result<(), Failure> {
    let found = by_path(measured);
    let missing = files.list.iter().filter(|file| !found.contains_key(file.path.as_path())).count();
    if missing as u64 > totals.buried {
        return Err(format!("{missing} files have neither a digest nor a job in the bin").into());
    }
    Ok(())
}

pub(crate) fn print(
    files: &Files,
    measured: &[Measurement],
    speed: &Speed,
    totals: &Totals,
    lost_workers: usize,
) {
    let per_second = |jobs: f64, time: Duration| count((jobs / time.as_secs_f64()) as u64);
    println!("Done: {} jobs in {}, {} a second.\n", count(speed.jobs), duration(speed.done_after), {
        per_second(speed.jobs as f64, speed.done_after)
    });
    let read: u64 = measured.iter().map(|measurement| measurement.bytes).sum();
    println!(
        "  files    {} read, {}, and the SHA-256 of each computed",
        count(measured.len() as u64),
        bytes(read)
    );
    println!(
        "  enqueue  {} jobs on the disk after {}, {} a second",
        count(files.list.len() as u64),
        duration(speed.stored_after),
        per_second(files.list.len() as f64, speed.stored_after)
    );
    println!("  waited   {}   from the enqueue to the start", percentiles(measured, |job| job.waited));
    println!("  ran      {}", percentiles(measured, |job| job.ran));
    println!("  retries  {} attempts failed and were made again after a delay", count(totals.retried));
    println!(
        "  crashes  {lost_workers} workers were killed by a job; each was replaced, and no other job was harmed"
    );
}

/// Computes one digest again by other means.
pub(crate) fn print_sample(files: &Files, measured: &[Measurement]) -> Result<(), Failure> {
    let found = by_path(measured);
    // The middle one of those that nobody has changed lately.
    let old = SystemTime::now() - Duration::from_secs(600);
    let unchanged = |path: &Path| {
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|modified| modified < old)
    };
    let middle = files.list.len() / 2;
    let sample = files.list[middle..].iter().chain(&files.list[..middle]).find_map(|file| {
        let measurement = found.get(file.path.as_path())?;
        (file.bytes > 0 && unchanged(&file.path)).then_some(measurement)
    });
    let Some(sample) = sample else {
        println!("  checked  no digest, since every file is new or has just been changed");
        return Ok(());
    };
    let (again, by) = other_digest(&sample.path)?;
    if again != sample.sha256 {
        return Err(
            format!("{}: the job says {}, {by} says {again}", sample.path.display(), sample.sha256).into()
        );
    }
    let name = sample.path.file_name().unwrap_or_default().to_string_lossy();
    println!("  checked  {name}: {}… is what {by} says", &again[..16]);
    Ok(())
}

/// The jobs in the bin, with the reasons.
pub(crate) async fn print_bin(celeriac: &Client) -> Result<(), Failure> {
    let bin = celeriac.broker().list(Filter::room(Room::Dead), PageOptions::default()).await?;
    println!("\nWhat cannot succeed waits in the dead-letter bin, with its history:\n");
    for dead in &bin.jobs {
        let reason = dead.reason.map(|reason| reason.to_string()).unwrap_or_default();
        let job = &dead.job;
        let text = match dead.last_error() {
            Some(error) => error.split_whitespace().collect::<Vec<_>>().join(" "),
            None => format!("{} workers died while they ran it", job.deliveries),
        };
        println!("  {reason:<17}  {:<16}  {} attempts  {text}", job.task, job.attempt);
    }
    if bin.next.is_some() {
        println!("  and more");
    }
    Ok(())
}

/// Where to look next.
pub(crate) fn print_commands(url: &str, folder: &Path) {
    println!("\nThe file stays until you delete it. To look into it:\n");
    let command = "cargo run --release -p celeriac-cli --";
    let url = quoted(url);
    println!("  export CELERIAC_BROKER={url}");
    println!("  {command} stats");
    println!("  {command} dead list");
    println!("  {command} dead show ID");
    println!("  {command} dead replay --task digest");
    println!("  {command} doctor");
    println!("  cargo run --release -p celeriac-standard -- --exit-when-empty");
    println!("  rm -r {}", quoted(&folder.display().to_string()));
}

fn by_path(measured: &[Measurement]) -> HashMap<&Path, &Measurement> {
    measured.iter().map(|measurement| (measurement.path.as_path(), measurement)).collect()
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

fn percentiles(measured: &[Measurement], part: fn(&Measurement) -> Duration) -> String {
    let mut sorted: Vec<Duration> = measured.iter().map(part).collect();
    sorted.sort_unstable();
    let at = |share: f64| {
        let last = sorted.len().saturating_sub(1);
        // The smallest value that at least this share of all does not exceed.
        let index = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last);
        duration(sorted.get(index).copied().unwrap_or_default())
    };
    format!("p50 {:<7}  p95 {:<7}  p99 {:<7}", at(0.5), at(0.95), at(0.99))
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
