use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{InvalidDuration, format_duration, parse_duration};

/// How long a failed job waits before it is tried again.
///
/// Written as tiers, `5s, 1m, 10m`, or as `exponential(base=1s, factor=2, max=1h)`. Both spread the delay by
/// a jitter, so that jobs that failed together do not come back together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// `base × factor^(n − 1)` after the n-th failure, at most `max`.
    Exponential {
        /// Delay after the first failure.
        base: Duration,
        /// By how much each delay is longer than the one before; 1 to 100.
        factor: f64,
        /// The longest delay.
        max: Duration,
    },
    /// The n-th delay after the n-th failure; the last one repeats if more attempts are allowed.
    Tiers(Vec<Duration>),
}

/// A text that is no retry policy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRetry {
    /// One of the durations cannot be read.
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    /// Neither tiers nor `exponential(…)`, or a part of it is out of bounds.
    #[error("retry policy {value:?}: {problem}")]
    Form {
        /// What was given.
        value: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
}

impl RetryPolicy {
    /// Delays are spread by up to this share in both directions: enough to part a crowd, too little to
    /// surprise a person who reads `10m`.
    pub const JITTER: f64 = 0.1;
    /// More tiers than this are refused; use `exponential`.
    pub const MAX_TIERS: usize = 50;

    /// How many attempts the policy itself implies: one more than its tiers; 10 for exponential.
    pub fn default_attempts(&self) -> u32 {
        match self {
            Self::Exponential { .. } => 10,
            Self::Tiers(tiers) => u32::try_from(tiers.len()).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    /// The delay after the `failures`-th failure (1 is the first). `random` in `[0, 1)` decides the jitter;
    /// one half gives the plain delay.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let plain = match self {
            Self::Exponential { base, factor, max } => {
                let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
                let seconds = base.as_secs_f64() * factor.max(1.0).powi(exponent);
                Duration::try_from_secs_f64(seconds).unwrap_or(*max).min(*max)
            }
            Self::Tiers(tiers) => {
                let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
                tiers.get(index).or_else(|| tiers.last()).copied().unwrap_or(Duration::ZERO)
            }
        };
        let spread = 1.0 + (random.clamp(0.0, 1.0) * 2.0 - 1.0) * Self::JITTER;
        Duration::try_from_secs_f64(plain.as_secs_f64() * spread).unwrap_or(plain)
    }
}

impl Default for RetryPolicy {
    /// `5s, 1m, 10m, 1h`: a hiccup is over in seconds, a deploy in minutes, an outage often within the hour;
    /// what still fails after five attempts needs a person.
    fn default() -> Self {
        Self::Tiers([5, 60, 600, 3600].map(Duration::from_secs).to_vec())
    }
}

impl FromStr for RetryPolicy {
    type Err = InvalidRetry;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |problem: String| InvalidRetry::Form { value: text.to_owned(), problem };
        let trimmed = text.trim();
        if let Some(inside) =
            trimmed.strip_prefix("exponential").map(str::trim).and_then(|rest| rest.strip_prefix('('))
        {
            let inside =
                inside.strip_suffix(')').ok_or_else(|| refuse("the closing bracket is missing".into()))?;
            let (mut base, mut factor, mut max) =
                (Duration::from_secs(1), 2.0_f64, Duration::from_secs(3600));
            for part in inside.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let (key, value) = part.split_once('=').ok_or_else(|| {
                    refuse(format!("{part:?} is not key=value; known are base, factor, max"))
                })?;
                match key.trim() {
                    "base" => base = parse_duration(value)?,
                    "factor" => {
                        factor = value.trim().parse().ok().filter(|f| (1.0..=100.0).contains(f)).ok_or_else(
                            || refuse(format!("factor {value:?} must be a number from 1 to 100")),
                        )?;
                    }
                    "max" => max = parse_duration(value)?,
                    other => {
                        return Err(refuse(format!("{other:?} is unknown; known are base, factor, max")));
                    }
                }
            }
            if base > max {
                return Err(refuse(format!(
                    "base {} is longer than max {}",
                    format_duration(base),
                    format_duration(max)
                )));
            }
            return Ok(Self::Exponential { base, factor, max });
        }
        if trimmed.is_empty() {
            return Err(refuse(
                "it is empty; write delays such as \"5s, 1m\", or exponential(base=1s)".into(),
            ));
        }
        let tiers: Vec<Duration> =
            trimmed.split(',').map(|tier| parse_duration(tier.trim())).collect::<Result<_, _>>()?;
        if tiers.len() > Self::MAX_TIERS {
            return Err(refuse(format!("{} tiers; at most {} are allowed", tiers.len(), Self::MAX_TIERS)));
        }
        Ok(Self::Tiers(tiers))
    }
}

impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential { base, factor, max } => write!(
                f,
                "exponential(base={}, factor={factor}, max={})",
                format_duration(*base),
                format_duration(*max)
            ),
            Self::Tiers(tiers) => {
                let shown: Vec<String> = tiers.iter().map(|tier| format_duration(*tier)).collect();
                f.write_str(&shown.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tiers_are_taken_in_turn_and_the_last_repeats() {
        let policy: RetryPolicy = "5s, 1m, 10m".parse().unwrap();
        let delays: Vec<u64> = (1..=4).map(|n| policy.delay(n, 0.5).as_secs()).collect();
        assert_eq!(delays, [5, 60, 600, 600]);
        assert_eq!(policy.default_attempts(), 4);
    }

    #[test]
    fn exponential_grows_to_its_bound() {
        let policy: RetryPolicy = "exponential(base=1s, factor=3, max=1m)".parse().unwrap();
        let delays: Vec<u64> = (1..=5).map(|n| policy.delay(n, 0.5).as_secs()).collect();
        assert_eq!(delays, [1, 3, 9, 27, 60]);
        assert_eq!(policy.delay(u32::MAX, 0.5), Duration::from_secs(60));
    }

    #[test]
    fn bad_policies_say_what_is_allowed() {
        for (text, part) in [
            ("", "empty"),
            ("5", "unit"),
            ("5s,,1m", "no duration"),
            ("exponential(base=1s", "closing bracket"),
            ("exponential(speed=1s)", "known are base, factor, max"),
            ("exponential(factor=0.5)", "from 1 to 100"),
            ("exponential(base=2h, max=1h)", "longer than max"),
        ] {
            let error = text.parse::<RetryPolicy>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?} gave {error}");
        }
    }

    proptest! {
        #[test]
        fn policies_print_as_they_are_read(tiers in prop::collection::vec(0u64..10_000_000, 1..20)) {
            let policy = RetryPolicy::Tiers(tiers.into_iter().map(Duration::from_millis).collect());
            prop_assert_eq!(policy.to_string().parse::<RetryPolicy>().unwrap(), policy);
        }

        #[test]
        fn jitter_stays_within_its_share(failures in 1u32..100, random in 0.0f64..1.0) {
            let policy = RetryPolicy::default();
            let plain = policy.delay(failures, 0.5).as_secs_f64();
            let spread = policy.delay(failures, random).as_secs_f64();
            prop_assert!((spread / plain - 1.0).abs() <= RetryPolicy::JITTER + 1e-6);
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = text.parse::<RetryPolicy>();
        }
    }
}
