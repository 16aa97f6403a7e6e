use std::time::Duration;

use celeriac_core::format_duration;
use celeriac_worker::{Phase, Vitals};

/// An answer to a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) state: State,
    /// For people.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Healthy,
    Unhealthy,
}

impl Health {
    fn new(state: State, text: String) -> Self {
        Self { state, text }
    }

    /// Whether the worker is worth keeping: its claim loop succeeded within `limit`, or it is on its way out.
    pub(crate) fn live(vitals: &Vitals, limit: Duration) -> Self {
        if vitals.phase == Phase::Draining {
            return Self::new(State::Healthy, "stopping in order".to_owned());
        }
        let since = seconds(vitals.since_claim);
        if vitals.since_claim <= limit {
            return Self::new(State::Healthy, format!("the claim loop succeeded {since} ago"));
        }
        let why = trouble(vitals.phase);
        let limit = format_duration(limit);
        Self::new(State::Unhealthy, format!("no claim succeeded for {since}, allowed are {limit}{why}"))
    }

    /// Whether the worker takes jobs now.
    pub(crate) fn ready(vitals: &Vitals, limit: Duration) -> Self {
        let live = Self::live(vitals, limit);
        match vitals.phase {
            Phase::Ready => live,
            Phase::Draining => Self::new(State::Unhealthy, "stopping: no more jobs are taken".to_owned()),
            phase => Self::new(State::Unhealthy, format!("not taking jobs{}", trouble(phase))),
        }
    }
}

fn trouble(phase: Phase) -> String {
    match phase {
        Phase::Starting => "; it is not registered with the store yet".to_owned(),
        Phase::Troubled(code) => format!("; the store answers with the error {code}"),
        _ => String::new(),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use celeriac_worker::Pulse;

    use super::*;

    #[test]
    fn health_follows_the_claim_loop() {
        let mut vitals = Pulse::new().vitals();
        let minute = Duration::from_secs(60);
        let state =
            |vitals: &Vitals| (Health::live(vitals, minute).state, Health::ready(vitals, minute).state);
        use State::{Healthy, Unhealthy};
        assert_eq!(state(&vitals), (Healthy, Unhealthy), "it may take its time to start");
        vitals.phase = Phase::Ready;
        assert_eq!(state(&vitals), (Healthy, Healthy));
        vitals.since_claim = minute * 2;
        assert_eq!(state(&vitals), (Unhealthy, Unhealthy), "the loop hangs, whatever the phase says");
        vitals.phase = Phase::Draining;
        assert_eq!(state(&vitals), (Healthy, Unhealthy), "it must not be killed while it finishes its work");
    }
}
