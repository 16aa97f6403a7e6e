//! What the operating system says about a process. Linux only; elsewhere the figures are missing.

use std::fs;

/// Processor time of a process since its start, in seconds, all threads, user and system. `None` as `process`
/// means this one.
pub(crate) fn cpu_seconds(process: Option<u32>) -> Option<f64> {
    ticks(process, 11)
}

/// Processor time of the children of a process that have ended, in seconds.
pub(crate) fn cpu_of_children(process: u32) -> Option<f64> {
    ticks(Some(process), 13)
}

/// The most memory that a process ever had in use, in MiB.
pub(crate) fn peak_rss_mib(process: Option<u32>) -> Option<f64> {
    let status = fs::read_to_string(path(process, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

/// The sum of two neighbouring fields of a process's `stat`, in seconds.
fn ticks(process: Option<u32>, field: usize) -> Option<f64> {
    let stat = fs::read_to_string(path(process, "stat")).ok()?;
    // The second field is the command's name and may hold spaces and brackets.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = fields.get(field)?.parse::<u64>().ok()? + fields.get(field + 1)?.parse::<u64>().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a process stay far below 2^52")]
    let seconds = ticks as f64 / TICKS_PER_SECOND;
    Some(seconds)
}

fn path(process: Option<u32>, file: &str) -> String {
    match process {
        Some(id) => format!("/proc/{id}/{file}"),
        None => format!("/proc/self/{file}"),
    }
}

/// Linux shows times to programs in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures() {
        assert!(cpu_seconds(None).is_some() && cpu_of_children(std::process::id()).is_some());
        assert!(peak_rss_mib(Some(std::process::id())).unwrap() > 0.5);
        assert!(cpu_seconds(Some(u32::MAX)).is_none());
    }
}
