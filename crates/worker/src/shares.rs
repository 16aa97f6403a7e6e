//! Which queue gives how many jobs to the next claim.

use celeriac_core::{Claimed, QueueName, QueueShare};

use crate::subscription::{Order, Subscription};

/// Shares of each claim, in a strict order or by weight.
///
/// Weights are kept by start-time fair queueing: each queue has a pass that grows by `1 / weight` with each of
/// its jobs, and the lowest pass is next. It is charged for what it gave, not for what it was asked for, so
/// the proportions also hold when a claim is for one job only. A queue that ran dry is moved up to the
/// others' time: it has saved nothing up and cannot push them aside when it fills again.
#[derive(Debug)]
pub(crate) struct Shares {
    queues: Vec<Queue>,
    order: Order,
    /// The pass of the job that was served last.
    now: f64,
}

#[derive(Debug)]
struct Queue {
    name: QueueName,
    /// How far one job moves its pass.
    step: f64,
    pass: f64,
}

impl Shares {
    pub(crate) fn new(subscription: &Subscription) -> Self {
        let queues = subscription
            .entries()
            .iter()
            .map(|(name, weight)| Queue { name: name.clone(), step: 1.0 / f64::from(*weight), pass: 0.0 })
            .collect();
        Self { queues, order: subscription.order(), now: 0.0 }
    }

    /// What to ask for in a claim of at most `limit` jobs.
    pub(crate) fn ask(&self, limit: usize) -> Vec<QueueShare> {
        if self.order == Order::Strict || self.queues.len() == 1 {
            return self
                .queues
                .iter()
                .map(|queue| QueueShare { name: queue.name.clone(), share: limit })
                .collect();
        }
        let mut passes: Vec<f64> = self.queues.iter().map(|queue| queue.pass).collect();
        let mut shares = vec![0; passes.len()];
        for _ in 0..limit {
            let next = lowest(&passes);
            shares[next] += 1;
            passes[next] += self.queues[next].step;
        }
        // What the shares leave free is given in this order, so it too goes to who is next.
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|a, b| self.queues[*a].pass.total_cmp(&self.queues[*b].pass));
        order
            .into_iter()
            .map(|place| QueueShare { name: self.queues[place].name.clone(), share: shares[place] })
            .collect()
    }

    /// Charges the queues for what they gave.
    pub(crate) fn charge(&mut self, asked: &[QueueShare], given: &[Claimed]) {
        if self.order == Order::Strict || self.queues.len() == 1 || given.is_empty() {
            return;
        }
        let mut counts = vec![0_u32; self.queues.len()];
        for claimed in given {
            // A store that gives a job of another queue is at fault; the shares know nothing of that queue.
            if let Some(place) = self.queues.iter().position(|queue| queue.name == claimed.job.queue) {
                counts[place] += 1;
            }
        }
        for (queue, count) in self.queues.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            self.now = self.now.max(queue.pass + f64::from(count - 1) * queue.step);
            queue.pass += f64::from(*count) * queue.step;
        }
        for (queue, count) in self.queues.iter_mut().zip(&counts) {
            let share = asked.iter().find(|share| share.name == queue.name).map_or(0, |share| share.share);
            if usize::try_from(*count).is_ok_and(|count| count < share) {
                queue.pass = queue.pass.max(self.now);
            }
        }
    }
}

/// The place of the lowest pass; the first of equals.
fn lowest(passes: &[f64]) -> usize {
    let mut best = 0;
    for (place, pass) in passes.iter().enumerate() {
        if pass.total_cmp(&passes[best]).is_lt() {
            best = place;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use celeriac_core::{
        ClaimId, Extras, Job, JobId, Payload, Priority, QueueName, Receipt, TaskName, Timestamp,
    };

    use super::*;

    /// Queues with so many jobs, served as an engine does it.
    struct Store(BTreeMap<&'static str, usize>);

    impl Store {
        fn claim(&mut self, asked: &[QueueShare], limit: usize) -> Vec<Claimed> {
            let mut given = Vec::new();
            for round in [true, false] {
                for share in asked {
                    let left = self.0.get_mut(share.name.as_str()).unwrap();
                    let most = if round { share.share } else { usize::MAX };
                    let count = (*left).min(most).min(limit - given.len());
                    *left -= count;
                    given.extend((0..count).map(|_| claimed(&share.name)));
                }
            }
            given
        }
    }

    fn claimed(queue: &QueueName) -> Claimed {
        let job = Job::from_columns(
            JobId::from_key("t", "k"),
            queue.clone(),
            TaskName::new("t").unwrap(),
            Priority::LOWEST,
            Payload::from_json("{}").unwrap(),
            0,
            0,
            Timestamp::from_micros(0),
            Timestamp::from_micros(0),
            None,
            Extras::default(),
        );
        Claimed::new(
            job,
            Receipt { claim: ClaimId::new(1), queue: 1, lane: 0, seq: 1 },
            Timestamp::from_micros(0),
        )
    }

    /// Claims until `jobs` were given, and counts them by queue.
    fn serve(shares: &mut Shares, store: &mut Store, limit: usize, jobs: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut total = 0;
        while total < jobs {
            let asked = shares.ask(limit);
            let given = store.claim(&asked, limit);
            assert!(!given.is_empty(), "work was left and nothing was claimed");
            shares.charge(&asked, &given);
            total += given.len();
            for claimed in given {
                *counts.entry(claimed.job.queue.to_string()).or_insert(0) += 1;
            }
        }
        counts
    }

    fn weighted(text: &str) -> Shares {
        Shares::new(&text.parse().unwrap())
    }

    #[test]
    fn weights_hold_for_claims_of_any_size() {
        for limit in [1, 2, 3, 7, 10, 64, 1_000] {
            let mut shares = weighted("high=6,default=3,low=1");
            let mut store = Store(BTreeMap::from([("high", 90_000), ("default", 90_000), ("low", 90_000)]));
            let counts = serve(&mut shares, &mut store, limit, 10_000);
            for (queue, part) in [("high", 6_000), ("default", 3_000), ("low", 1_000)] {
                assert!(counts[queue].abs_diff(part) <= 700, "limit {limit}: {counts:?}");
            }
        }
    }

    #[test]
    fn single_claims_are_interleaved_smoothly() {
        let mut shares = weighted("a=2,b=1");
        let mut store = Store(BTreeMap::from([("a", 100), ("b", 100)]));
        for _ in 0..20 {
            let counts = serve(&mut shares, &mut store, 1, 3);
            assert_eq!((counts["a"], counts["b"]), (2, 1));
        }
    }

    #[test]
    fn an_empty_queue_leaves_its_share_to_the_others_in_proportion() {
        for limit in [1, 10] {
            let mut shares = weighted("high=6,default=3,low=1");
            let mut store = Store(BTreeMap::from([("high", 0), ("default", 10_000), ("low", 10_000)]));
            let counts = serve(&mut shares, &mut store, limit, 4_000);
            assert_eq!(counts.values().sum::<usize>(), 4_000);
            assert!(counts["low"] >= 300, "limit {limit}: {counts:?}");
        }
    }

    #[test]
    fn a_queue_saves_up_nothing_while_it_is_empty() {
        let mut shares = weighted("a=1,b=1");
        let mut store = Store(BTreeMap::from([("a", 5_000), ("b", 0)]));
        serve(&mut shares, &mut store, 1, 5_000);
        store.0.insert("a", 1_000);
        store.0.insert("b", 1_000);
        let counts = serve(&mut shares, &mut store, 1, 100);
        assert!(counts["a"].abs_diff(50) <= 2, "{counts:?}");
    }

    #[test]
    fn a_strict_order_gives_the_whole_claim_to_each_in_turn() {
        let shares = Shares::new(&"high,default".parse().unwrap());
        let asked = shares.ask(5);
        assert_eq!(asked.iter().map(|share| share.share).collect::<Vec<_>>(), [5, 5]);
        assert_eq!(asked[0].name.as_str(), "high");
    }
}
