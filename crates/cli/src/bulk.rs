use std::time::{Duration, Instant};

use celeriac::core::{Broker, BulkAct, BulkOptions, Details, Error, Filter};

/// What an act on many jobs did.
#[derive(Debug, Default)]
pub(crate) struct Acted {
    /// How many jobs matched.
    pub(crate) jobs: u64,
    /// The first of them.
    pub(crate) first: Vec<Details>,
}

impl Acted {
    /// How many jobs a summary shows at the most.
    const SHOWN: usize = 20;

    /// Takes over what another act did.
    pub(crate) fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        let free = Self::SHOWN.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(free));
    }
}

/// Acts on all jobs that match, step by step, each step a short transaction.
///
/// Jobs that come into the room meanwhile are left alone: a job that is replayed and fails again at once would
/// otherwise be replayed for ever.
pub(crate) async fn act_on_all(broker: &dyn Broker, filter: Filter, act: BulkAct) -> Result<Acted, Error> {
    let start = Instant::now();
    let mut acted = Acted::default();
    let mut after = None;
    loop {
        let mut filter = filter.clone();
        if after.is_some() {
            filter.older_than = Some(filter.older_than.unwrap_or(Duration::ZERO) + start.elapsed());
        }
        let mut options = BulkOptions::default();
        options.after = after;
        let page = broker.bulk(filter, act.clone(), options).await?;
        acted.jobs += page.jobs.len() as u64;
        let free = Acted::SHOWN.saturating_sub(acted.first.len());
        acted.first.extend(page.jobs.into_iter().take(free));
        after = page.next;
        if after.is_none() {
            return Ok(acted);
        }
    }
}
