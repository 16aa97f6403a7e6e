//! How long jobs wait for one of several equal handlers. Pure functions; times are in seconds.
//!
//! Erlang's formula C: jobs come one by one and independently, run times are exponential, nobody gives up. For other spreads of the
//! run time the wait is scaled as by Allen and Cunneen: by `(1 + v²) / 2`, where `v` is the standard deviation over the
//! mean. That is exact for the mean wait of one handler, and a good approximation for more.

/// Work that comes to a group of handlers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Jobs a second.
    pub(crate) rate: f64,
    /// Mean run time.
    pub(crate) run_time: f64,
    /// Standard deviation of the run time over its mean: 1 when exponential, 0 when constant.
    pub(crate) variation: f64,
}

/// What a number of handlers makes of a load that is less than they can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) handlers: u32,
    /// Share of the time that a handler is busy.
    pub(crate) utilisation: f64,
    /// Share of the jobs that find all handlers busy.
    pub(crate) delayed: f64,
    /// Mean wait of those jobs.
    delayed_wait: f64,
}

impl Load {
    /// How many handlers are busy on average, in the unit named after Erlang.
    pub(crate) fn offered(self) -> f64 {
        self.rate * self.run_time
    }

    /// The services of rising numbers of handlers, from the fewest that can do the work at all up to `most`.
    pub(crate) fn services(self, most: u32) -> impl Iterator<Item = Service> {
        let offered = self.offered();
        // The share of jobs lost if none could wait (formula B), which rises from handler to handler by itself.
        let mut lost = 1.0;
        (1..=most).filter_map(move |handlers| {
            let count = f64::from(handlers);
            lost = offered * lost / (count + offered * lost);
            let free = count - offered;
            (free > 0.0).then(|| {
                let utilisation = offered / count;
                let spread = f64::midpoint(1.0, self.variation * self.variation);
                Service {
                    handlers,
                    utilisation,
                    delayed: lost / (1.0 - utilisation * (1.0 - lost)),
                    delayed_wait: self.run_time * spread / free,
                }
            })
        })
    }
}

impl Service {
    /// Mean wait of all jobs.
    pub(crate) fn mean_wait(self) -> f64 {
        self.delayed * self.delayed_wait
    }

    /// Share of the jobs that start within `wait`.
    pub(crate) fn within(self, wait: f64) -> f64 {
        1.0 - self.delayed * (-wait / self.delayed_wait).exp()
    }

    /// The wait that `share` of the jobs do not pass; `share` is less than 1.
    pub(crate) fn percentile(self, share: f64) -> f64 {
        let longer = 1.0 - share;
        if self.delayed <= longer { 0.0 } else { self.delayed_wait * (self.delayed / longer).ln() }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const fn load(rate: f64, run_time: f64, variation: f64) -> Load {
        Load { rate, run_time, variation }
    }

    fn service(load: Load, handlers: u32) -> Service {
        load.services(handlers).last().filter(|service| service.handlers == handlers).unwrap()
    }

    /// Probability of waiting, by handlers and utilisation, as printed in textbooks on queues.
    #[test]
    fn published_tables_agree() {
        for (handlers, utilisation, delayed) in [
            (1, 0.5, 0.5),
            (2, 0.5, 0.3333),
            (3, 2.0 / 3.0, 0.4444),
            (4, 0.75, 0.5094),
            (2, 0.8, 0.7111),
            (3, 0.8, 0.6472),
            (4, 0.8, 0.5964),
            (5, 0.8, 0.5541),
            (10, 0.8, 0.4092),
            (20, 0.8, 0.2561),
            (10, 0.9, 0.6687),
        ] {
            let found = service(load(f64::from(handlers) * utilisation, 1.0, 1.0), handlers).delayed;
            assert!((found - delayed).abs() < 6e-5, "{handlers} at {utilisation}: {found}, not {delayed}");
        }
    }

    /// The worked example of many pages on call centres: 100 calls in half an hour, three minutes each.
    #[test]
    fn the_well_known_example_agrees() {
        let calls = load(100.0 / 1800.0, 180.0, 1.0);
        let found = calls.services(100).find(|service| service.within(20.0) >= 0.8).unwrap();
        assert_eq!(found.handlers, 14);
        for (value, published) in [
            (calls.offered(), 10.0),
            (found.delayed, 0.174),
            (found.within(20.0), 0.888),
            (found.mean_wait(), 7.8),
            (found.utilisation, 0.714),
        ] {
            assert!((value / published - 1.0).abs() < 0.005, "{value}, not {published}");
        }
    }

    #[test]
    fn large_groups_keep_their_precision() {
        let large = load(100_000.0, 1.0, 1.0);
        let found = large.services(200_000).find(|service| service.within(0.1) >= 0.99).unwrap();
        // A large group needs little more than the load: about the square root of it.
        assert!((100_000..100_500).contains(&found.handlers), "{found:?}");
        assert!(found.delayed > 0.0 && found.delayed < 1.0 && found.mean_wait().is_finite());
    }

    #[test]
    fn percentiles_and_shares_are_inverse() {
        let service = service(load(9.0, 1.0, 1.0), 10);
        for share in [0.5, 0.8, 0.95, 0.999] {
            assert!((service.within(service.percentile(share)) - share).abs() < 1e-9);
        }
        assert!(service.percentile(0.1) == 0.0, "more than a third do not wait at all");
    }

    #[test]
    fn a_simulation_agrees() {
        for (handlers, utilisation, variation, tolerance, share_tolerance) in [
            (1, 0.7, 1.0, 0.05, 0.02),
            (4, 0.8, 1.0, 0.05, 0.02),
            (12, 0.85, 1.0, 0.08, 0.02),
            // Not exponential: an approximation.
            (1, 0.7, 0.0, 0.05, 0.03),
            (4, 0.8, 0.0, 0.15, 0.03),
            (4, 0.8, 0.5, 0.12, 0.03),
            (4, 0.8, 2.0, 0.2, 0.08),
        ] {
            let load = load(f64::from(handlers) * utilisation / 3.0, 3.0, variation);
            let computed = service(load, handlers);
            let waits = simulated_waits(load, handlers, 150_000);
            let mean = waits.iter().sum::<f64>() / waits.len() as f64;
            assert!(
                (mean / computed.mean_wait() - 1.0).abs() < tolerance,
                "{load:?}, {handlers} handlers: {mean} against {}",
                computed.mean_wait()
            );
            let within = waits.iter().filter(|wait| **wait <= 3.0).count() as f64 / waits.len() as f64;
            assert!(
                (within - computed.within(3.0)).abs() < share_tolerance,
                "{load:?}, {handlers} handlers: {within} against {}",
                computed.within(3.0)
            );
        }
    }

    /// Jobs one after the other: each takes the handler that is free first. Random, and the same at each run.
    fn simulated_waits(load: Load, handlers: u32, jobs: usize) -> Vec<f64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut uniform = move || {
            // Knuth's generator of 64 bits; its upper half is good enough here.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (f64::from((state >> 32) as u32) + 0.5) / f64::from(u32::MAX)
        };
        // Nanoseconds, as floating point has no order.
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let mut free: BinaryHeap<Reverse<u64>> = (0..handlers).map(|_| Reverse(0)).collect();
        let mut now = 0;
        let mut waits = Vec::with_capacity(jobs);
        for _ in 0..jobs {
            now += nanos(-uniform().ln() / load.rate);
            let Reverse(free_at) = free.pop().unwrap();
            let start = free_at.max(now);
            waits.push((start - now) as f64 / 1e9);
            free.push(Reverse(start + nanos(run_time(load, &mut uniform))));
        }
        waits
    }

    /// Run times with the wanted mean and spread: an Erlang distribution below an exponential one, two mixed exponentials above.
    fn run_time(load: Load, uniform: &mut impl FnMut() -> f64) -> f64 {
        let squared = load.variation * load.variation;
        if squared == 0.0 {
            return load.run_time;
        }
        if squared <= 1.0 {
            let stages = (1.0 / squared).round() as u32;
            return (0..stages).map(|_| -uniform().ln()).sum::<f64>() * load.run_time / f64::from(stages);
        }
        let share = f64::midpoint(1.0, ((squared - 1.0) / (squared + 1.0)).sqrt());
        let part = if uniform() < share { share } else { 1.0 - share };
        -uniform().ln() * load.run_time / (2.0 * part)
    }
}
