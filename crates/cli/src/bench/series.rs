use std::time::{Duration, Instant};

/// How many jobs were finished by when: for the first and the last seconds of a run.
#[derive(Debug)]
pub(crate) struct Series {
    start: Instant,
    samples: Vec<(Duration, u64)>,
}

impl Series {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), samples: vec![(Duration::ZERO, 0)] }
    }

    /// Notes that `finished` jobs are done by now.
    pub(crate) fn note(&mut self, finished: u64) {
        self.samples.push((self.start.elapsed(), finished));
    }

    pub(crate) const fn started(&self) -> Instant {
        self.start
    }

    /// Jobs a second in the first and in the last ten seconds, or halves of a shorter run. `None` if nothing was noted.
    pub(crate) fn first_and_last(&self) -> Option<(f64, f64)> {
        let (end, _) = *self.samples.last()?;
        let part = WINDOW.min(end / 2);
        if part.is_zero() {
            return None;
        }
        Some((self.rate(Duration::ZERO, part)?, self.rate(end - part, end)?))
    }

    /// Between the first samples at or after two moments.
    #[expect(clippy::cast_precision_loss, reason = "jobs of a run stay far below 2^52")]
    fn rate(&self, from: Duration, to: Duration) -> Option<f64> {
        let at = |moment: Duration| {
            self.samples.get(self.samples.partition_point(|(elapsed, _)| *elapsed < moment))
        };
        let ((from, before), (to, after)) = (at(from)?, at(to)?);
        let seconds = (*to - *from).as_secs_f64();
        Some((after - before) as f64 / seconds.max(f64::EPSILON))
    }
}

/// As long as a checkpoint or a vacuum needs to show.
const WINDOW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[(u64, u64)]) -> Series {
        let samples = samples.iter().map(|(seconds, done)| (Duration::from_secs(*seconds), *done)).collect();
        Series { start: Instant::now(), samples }
    }

    #[test]
    fn both_ends_are_of_ten_seconds() {
        let series = of(&[(0, 0), (5, 500), (10, 1_000), (20, 1_500), (30, 1_600)]);
        assert_eq!(series.first_and_last(), Some((100.0, 10.0)));
    }

    #[test]
    fn a_short_run_is_halved() {
        assert_eq!(of(&[(0, 0), (2, 200), (4, 300)]).first_and_last(), Some((100.0, 50.0)));
        assert_eq!(of(&[(0, 0)]).first_and_last(), None);
    }
}
