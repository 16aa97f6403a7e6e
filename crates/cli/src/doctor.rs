use celeriac::core::{CheckOptions, CheckReport};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::{Lines, Output, Tone, printable};
use crate::store::{Missing, Store};
use crate::table::grouped;

/// Check the store's invariants by looking at every job.
///
/// Safe on a live store, and as slow as the store is large. The exit code is 1 when something is broken and
/// was not mended.
#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// Mend what can be mended: give lost jobs back to their queues, set counters right
    #[arg(long)]
    repair: bool,
}

#[derive(Serialize)]
struct ReportView {
    healthy: bool,
    jobs: u64,
    violations: Vec<ViolationView>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ViolationView {
    invariant: String,
    detail: String,
    repaired: bool,
}

pub(crate) async fn run(command: DoctorCommand, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let broker = store.open(Missing::Refuse).await?;
    let mut options = CheckOptions::default();
    options.repair = command.repair;
    let report = broker.check(options).await?;
    let broken = report.violations.iter().filter(|violation| !violation.repaired).count();
    let exit = if broken == 0 { Exit::Done } else { Exit::Failed };
    if output.is_json() {
        output.json(&ReportView::from(report))?;
        return Ok(exit);
    }
    for violation in &report.violations {
        let (word, tone) = if violation.repaired { ("mended", Tone::Warning) } else { ("broken", Tone::Bad) };
        let word = output.painted(tone, word);
        let text = format!("{}: {}", violation.invariant, violation.detail);
        output.line(format_args!("{word}  {}", printable(&text, Lines::Join)))?;
    }
    for note in &report.notes {
        output.line(format_args!("note    {}", printable(note, Lines::Join)))?;
    }
    let mended = report.violations.len() - broken;
    let jobs = grouped(report.jobs);
    let verdict = match (broken, mended) {
        (0, 0) => format!("looked at {jobs} jobs: every invariant holds"),
        (0, mended) => format!("looked at {jobs} jobs: {mended} violations mended"),
        (broken, 0) if !command.repair => {
            format!("looked at {jobs} jobs: {broken} violations; try `celeriac doctor --repair`")
        }
        (broken, mended) => format!("looked at {jobs} jobs: {broken} violations left, {mended} mended"),
    };
    output.line(verdict)?;
    Ok(exit)
}

impl From<CheckReport> for ReportView {
    fn from(report: CheckReport) -> Self {
        Self {
            healthy: report.violations.is_empty(),
            jobs: report.jobs,
            violations: (report.violations.into_iter())
                .map(|violation| ViolationView {
                    invariant: violation.invariant,
                    detail: violation.detail,
                    repaired: violation.repaired,
                })
                .collect(),
            notes: report.notes,
        }
    }
}
