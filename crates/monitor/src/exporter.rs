use std::sync::{Mutex, PoisonError};

use celeriac_metrics::{CATALOGUE, Kind, describe};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// What was recorded in this process, as Prometheus reads it.
#[derive(Clone, Debug)]
pub struct Exporter(PrometheusHandle);

/// The program has installed a recorder for metrics of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program has a recorder for metrics of its own, which gets those of Celeriac too; serve that one, and leave \
     out --metrics"
)]
pub struct RecorderTaken;

impl Exporter {
    /// Installs a recorder for the whole process, with the buckets of the catalogue. A second call gives the same one.
    ///
    /// Do it before a client or a worker is made: they record into what is installed then. Somebody must call
    /// [`Exporter::upkeep`] every few seconds; a [`Monitor`](crate::Monitor) does.
    ///
    /// # Errors
    /// [`RecorderTaken`] if there is another.
    pub fn install() -> Result<Self, RecorderTaken> {
        // Held throughout, so that of two callers at once one installs and the other finds it.
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exporter) = &*installed {
            return Ok(exporter.clone());
        }
        let recorder = builder().build_recorder();
        let exporter = Self(recorder.handle());
        metrics::set_global_recorder(recorder).map_err(|_| RecorderTaken)?;
        describe();
        *installed = Some(exporter.clone());
        Ok(exporter)
    }

    /// The text of a scrape.
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Takes what was recorded into the histograms. Without it every single value is kept until the next scrape.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

static INSTALLED: Mutex<Option<Exporter>> = Mutex::new(None);

fn builder() -> PrometheusBuilder {
    CATALOGUE.iter().fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Histogram(buckets) => builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
            // Only an empty list is refused; a test in the catalogue looks at them.
            .unwrap_or_else(|_| PrometheusBuilder::new()),
        _ => builder,
    })
}
