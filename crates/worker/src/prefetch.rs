use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use celeriac_core::Error;

/// How many jobs a worker may have in hand: waiting in its buffer, running, or not yet settled.
///
/// Jobs in the buffer of one worker cannot run elsewhere, so a buffer should be no larger than the store's
/// latency asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prefetch {
    /// About 100 ms of work by the measured run time, and one job a free handler: long jobs are claimed only
    /// when a handler is free for them, short ones in hundreds. At most 4,096 in hand (or the concurrency, if
    /// that is more), and 1,000 a claim.
    #[default]
    Auto,
    /// At most this many in hand, 1 to 100,000; fewer when they would be more than half a second of work.
    Fixed(usize),
}

impl Prefetch {
    /// The highest fixed number: what a worker holds is what is delivered again when it dies.
    pub const MAX: usize = 100_000;

    /// The number, if it is within its bounds.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Fixed(number) if !(1..=Self::MAX).contains(&number) => Err(refused(&number.to_string())),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Fixed(number) => number.fmt(f),
        }
    }
}

impl FromStr for Prefetch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let prefetch = text.trim().parse().map(Self::Fixed).map_err(|_| refused(text))?;
        prefetch.check()?;
        Ok(prefetch)
    }
}

fn refused(value: &str) -> Error {
    Error::invalid("prefetch", value, format!("allowed are auto and the numbers 1 to {}", Prefetch::MAX))
}

/// What a worker has in hand at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Claimed and not yet settled, in all.
    pub(crate) in_hand: usize,
    /// Of these: waiting for a handler.
    pub(crate) buffered: usize,
    /// Handlers at work.
    pub(crate) busy: usize,
    /// Of these: handlers that have been on one job for longer than [`BUDGET`].
    pub(crate) stuck: usize,
}

/// Decides how many jobs to claim, from what the jobs before took.
#[derive(Debug)]
pub(crate) struct Sizing {
    prefetch: Prefetch,
    concurrency: usize,
    /// Moving average of the run time in seconds, once there is one.
    run_time: Option<f64>,
}

impl Sizing {
    pub(crate) const fn new(prefetch: Prefetch, concurrency: usize) -> Self {
        Self { prefetch, concurrency, run_time: None }
    }

    /// Takes the run time of one job into the average.
    pub(crate) fn observe(&mut self, run: Duration) {
        let sample = run.min(LONGEST_SAMPLE).as_secs_f64();
        self.run_time = Some(match self.run_time {
            None => sample,
            Some(average) => average + (sample - average) * WEIGHT,
        });
    }

    /// The size of the next claim; 0 when there is nothing to gain by one now.
    pub(crate) fn claim(&self, load: Load) -> usize {
        let target = self.target(load.stuck);
        let free = self.concurrency.saturating_sub(load.busy + load.buffered);
        let room = target.saturating_sub(load.in_hand);
        let bound = match self.prefetch {
            Prefetch::Auto => MOST_IN_HAND.max(self.concurrency),
            Prefetch::Fixed(most) => most,
        }
        .saturating_sub(load.in_hand);
        let wish = if free > 0 && target < 4 * self.concurrency {
            // Jobs of some length: a free handler should not wait for others to become free, nor for the
            // verdicts of finished jobs to be written.
            room.max(free)
        } else if room >= (target / 4).max(1) {
            room
        } else {
            // Short jobs: wait until a claim is worth its round trip. A quarter is asked for while three
            // quarters are still to be run, so the buffer does not run empty meanwhile.
            0
        };
        wish.min(bound).min(MOST_PER_CLAIM)
    }

    /// How many jobs should be in hand.
    fn target(&self, stuck: usize) -> usize {
        let moving = self.concurrency.saturating_sub(stuck);
        let worth = |budget: Duration| {
            // A handler that does nothing still takes some nanoseconds, so the quotient stays finite.
            self.run_time.map(|run| {
                let jobs = budget.as_secs_f64() / run.max(1e-9) * moving as f64;
                (jobs.ceil() as usize).saturating_add(stuck)
            })
        };
        match self.prefetch {
            Prefetch::Auto => {
                worth(BUDGET).unwrap_or(self.concurrency).min(MOST_IN_HAND).max(self.concurrency)
            }
            Prefetch::Fixed(most) => {
                // Until something is known the user's word counts, unless handlers are stuck already.
                let estimate = match worth(FIXED_BUDGET) {
                    None if stuck == 0 => most,
                    None => self.concurrency,
                    Some(jobs) => jobs,
                };
                most.min(estimate.max(self.concurrency))
            }
        }
    }
}

/// How much work a buffer holds: well over any store's round trip, well under what a person notices when the
/// jobs could have run elsewhere.
pub(crate) const BUDGET: Duration = Duration::from_millis(100);

/// The same for a fixed prefetch: half of [`crate::buffer::PATIENCE`], so that jobs are not claimed only to be
/// given back.
const FIXED_BUDGET: Duration = Duration::from_millis(500);

/// A claim of this size takes some milliseconds under the store's lock; a larger one would keep other workers
/// waiting and saves nothing more.
const MOST_PER_CLAIM: usize = 1_000;

/// Four full claims: one that runs, one that waits, and two that are being settled. It bounds what a dead
/// worker drags into a second delivery, and with 200 bytes a payload it is about 2 MiB.
const MOST_IN_HAND: usize = 4_096;

/// How much one job counts in the average: after a change of the mix, 14 jobs bring it half of the way.
const WEIGHT: f64 = 0.05;

/// Anything longer counts as this: it is ten times the budget, so it says no more, and a sample of an hour
/// would be remembered for hundreds of jobs.
const LONGEST_SAMPLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured(prefetch: Prefetch, concurrency: usize, run: Duration) -> Sizing {
        let mut sizing = Sizing::new(prefetch, concurrency);
        for _ in 0..400 {
            sizing.observe(run);
        }
        sizing
    }

    #[test]
    fn nothing_known_claims_one_job_a_handler() {
        assert_eq!(Sizing::new(Prefetch::Auto, 16).claim(Load::default()), 16);
        assert_eq!(Sizing::new(Prefetch::Fixed(5), 16).claim(Load::default()), 5);
        assert_eq!(Sizing::new(Prefetch::Fixed(50), 16).claim(Load::default()), 50);
    }

    #[test]
    fn short_jobs_are_claimed_in_hundreds_and_long_ones_only_for_free_handlers() {
        let short = measured(Prefetch::Auto, 16, Duration::from_micros(5));
        assert_eq!(short.claim(Load::default()), 1_000);
        let load = Load { in_hand: 3_900, buffered: 3_000, busy: 16, stuck: 0 };
        assert_eq!(short.claim(load), 0, "a claim of 196 is not worth its round trip");
        let load = Load { in_hand: 3_000, buffered: 2_000, busy: 16, stuck: 0 };
        assert_eq!(short.claim(load), 1_000);

        let long = measured(Prefetch::Auto, 16, Duration::from_secs(30));
        assert_eq!(long.claim(Load::default()), 16);
        assert_eq!(long.claim(Load { in_hand: 16, buffered: 0, busy: 16, stuck: 16 }), 0);
        assert_eq!(long.claim(Load { in_hand: 15, buffered: 0, busy: 15, stuck: 15 }), 1);
        // Two handlers are free, and their verdicts are on the way.
        assert_eq!(long.claim(Load { in_hand: 16, buffered: 0, busy: 14, stuck: 14 }), 2);
    }

    #[test]
    fn the_buffer_holds_a_tenth_of_a_second() {
        let sizing = measured(Prefetch::Auto, 8, Duration::from_millis(2));
        assert_eq!(sizing.claim(Load::default()), 400);
        let fixed = measured(Prefetch::Fixed(1_000), 8, Duration::from_millis(10));
        assert_eq!(fixed.claim(Load::default()), 400, "half a second of work at most");
    }

    #[test]
    fn stuck_handlers_do_not_count_as_capacity() {
        let sizing = measured(Prefetch::Auto, 8, Duration::from_millis(2));
        // All eight are on long jobs now: whatever the average says, nothing may be claimed behind them.
        assert_eq!(sizing.claim(Load { in_hand: 8, buffered: 0, busy: 8, stuck: 8 }), 0);
        // One of them still moves: fifty jobs are 100 ms for it.
        assert_eq!(sizing.claim(Load { in_hand: 8, buffered: 0, busy: 8, stuck: 7 }), 49);
        let fixed = Sizing::new(Prefetch::Fixed(100), 1);
        assert_eq!(fixed.claim(Load { in_hand: 1, buffered: 0, busy: 1, stuck: 1 }), 0);
    }

    #[test]
    fn the_average_follows_a_change() {
        let mut sizing = measured(Prefetch::Auto, 4, Duration::from_millis(1));
        sizing.observe(Duration::from_secs(3_600));
        assert!(sizing.claim(Load::default()) < 10);
        for _ in 0..200 {
            sizing.observe(Duration::from_millis(1));
        }
        assert!(sizing.claim(Load::default()) >= 390);
    }

    #[test]
    fn prefetch_is_read_as_it_is_printed() {
        assert_eq!("auto".parse::<Prefetch>().unwrap(), Prefetch::Auto);
        assert_eq!("12".parse::<Prefetch>().unwrap(), Prefetch::Fixed(12));
        assert_eq!(Prefetch::Fixed(12).to_string(), "12");
        for text in ["0", "-1", "100001", "many", ""] {
            let error = text.parse::<Prefetch>().unwrap_err().to_string();
            assert!(error.contains("allowed are auto and the numbers 1 to 100000"), "{text:?} gave {error}");
        }
    }

    proptest! {
        #[test]
        fn no_claim_passes_a_bound(
            fixed in prop::option::of(1usize..5_000),
            concurrency in 1usize..300,
            run in 0u64..200_000_000,
            in_hand in 0usize..6_000,
            busy in 0usize..300,
            stuck in 0usize..300,
        ) {
            let prefetch = fixed.map_or(Prefetch::Auto, Prefetch::Fixed);
            let busy = busy.min(concurrency).min(in_hand);
            let load = Load { in_hand, buffered: (in_hand - busy) / 2, busy, stuck: stuck.min(busy) };
            let mut sizing = Sizing::new(prefetch, concurrency);
            sizing.observe(Duration::from_nanos(run));
            let claim = sizing.claim(load);
            prop_assert!(claim <= MOST_PER_CLAIM);
            match prefetch {
                Prefetch::Fixed(most) => prop_assert!(claim == 0 || in_hand + claim <= most),
                Prefetch::Auto => prop_assert!(claim == 0 || in_hand + claim <= MOST_IN_HAND.max(concurrency)),
            }
        }

        #[test]
        fn an_idle_worker_always_claims(concurrency in 1usize..300, run in 0u64..10_000_000_000) {
            let mut sizing = Sizing::new(Prefetch::Auto, concurrency);
            sizing.observe(Duration::from_nanos(run));
            prop_assert!(sizing.claim(Load::default()) >= concurrency.min(MOST_PER_CLAIM));
        }
    }
}
