use serde::Serialize;

use super::report::median;
use super::server::Cost;
use super::usual::UsualRate;

/// What the database server did for each job, and for each row of the floor. Times are null if it runs elsewhere.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ServerFigures {
    wal_bytes_per_job: Option<f64>,
    floor_wal_bytes_per_job: Option<f64>,
    db_cpu_us_per_job: Option<f64>,
    floor_db_cpu_us_per_job: Option<f64>,
}

/// The usual way, measured in the same round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct UsualFigures {
    usual_jobs_per_s: f64,
    ratio_to_usual: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usual_first_jobs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usual_last_jobs_per_s: Option<f64>,
    usual_wal_bytes_per_job: Option<f64>,
    usual_db_cpu_us_per_job: Option<f64>,
}

impl ServerFigures {
    pub(crate) const fn new(cost: Cost) -> Self {
        Self {
            wal_bytes_per_job: cost.wal_bytes_per_job,
            floor_wal_bytes_per_job: None,
            db_cpu_us_per_job: cost.db_cpu_us_per_job,
            floor_db_cpu_us_per_job: None,
        }
    }

    pub(crate) const fn compare(&mut self, floor: Cost) {
        self.floor_wal_bytes_per_job = floor.wal_bytes_per_job;
        self.floor_db_cpu_us_per_job = floor.db_cpu_us_per_job;
    }

    /// The median of each figure by itself; `None` without any.
    pub(crate) fn medians(all: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        all.clone().next()?;
        let of = |figure: fn(&Self) -> Option<f64>| median(all.clone().filter_map(|one| figure(&one)));
        Some(Self {
            wal_bytes_per_job: of(|one| one.wal_bytes_per_job),
            floor_wal_bytes_per_job: of(|one| one.floor_wal_bytes_per_job),
            db_cpu_us_per_job: of(|one| one.db_cpu_us_per_job),
            floor_db_cpu_us_per_job: of(|one| one.floor_db_cpu_us_per_job),
        })
    }

    pub(crate) fn remark(&self) -> String {
        let beside = |own: Option<f64>, floor: Option<f64>| match (own, floor) {
            (Some(own), Some(floor)) => format!("{own:.0} (floor {floor:.0})"),
            (Some(own), None) => format!("{own:.0}"),
            (None, _) => "not known".to_owned(),
        };
        format!(
            "the server for each job: {} bytes of log, {} µs of processor time",
            beside(self.wal_bytes_per_job, self.floor_wal_bytes_per_job),
            match (self.db_cpu_us_per_job, self.floor_db_cpu_us_per_job) {
                (Some(own), Some(floor)) => format!("{own:.1} (floor {floor:.1})"),
                (own, floor) => beside(own, floor),
            }
        )
    }
}

impl UsualFigures {
    pub(crate) fn new(usual: &UsualRate, jobs_per_s: f64) -> Self {
        let (first, last) = usual.ends.unzip();
        Self {
            usual_jobs_per_s: usual.jobs_per_s,
            ratio_to_usual: jobs_per_s / usual.jobs_per_s.max(f64::EPSILON),
            usual_first_jobs_per_s: first,
            usual_last_jobs_per_s: last,
            usual_wal_bytes_per_job: usual.cost.wal_bytes_per_job,
            usual_db_cpu_us_per_job: usual.cost.db_cpu_us_per_job,
        }
    }

    /// The median of each figure by itself; `None` without any.
    pub(crate) fn medians(all: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        let of = |figure: fn(&Self) -> Option<f64>| median(all.clone().filter_map(|one| figure(&one)));
        Some(Self {
            usual_jobs_per_s: of(|one| Some(one.usual_jobs_per_s))?,
            ratio_to_usual: of(|one| Some(one.ratio_to_usual))?,
            usual_first_jobs_per_s: of(|one| one.usual_first_jobs_per_s),
            usual_last_jobs_per_s: of(|one| one.usual_last_jobs_per_s),
            usual_wal_bytes_per_job: of(|one| one.usual_wal_bytes_per_job),
            usual_db_cpu_us_per_job: of(|one| one.usual_db_cpu_us_per_job),
        })
    }

    pub(crate) fn remark(&self) -> String {
        let mut text = format!(
            "the usual way, a state column with SKIP LOCKED: {:.0} jobs/s; ratio {:.2}",
            self.usual_jobs_per_s, self.ratio_to_usual
        );
        if let (Some(first), Some(last)) = (self.usual_first_jobs_per_s, self.usual_last_jobs_per_s) {
            text.push_str(&format!("; its first and last seconds: {first:.0} → {last:.0}"));
        }
        text
    }
}
