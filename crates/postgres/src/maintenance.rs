use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use celeriac_core::{
    Attempt, AttemptKind, Extras, Failure, MaintainOptions, Maintenance, QueueSettings, Redelivery, Result,
    WorkerId, redeliver,
};
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::row::{count, instant, limit, total};
use crate::statement::Statement;

/// Where the jobs of a lost worker went.
#[derive(Debug, Default)]
struct Rescued {
    redelivered: u64,
    buried: u64,
    /// Jobs that the rescue looked at.
    looked_at: usize,
}

/// Jobs of one queue that are taken back, as columns.
#[derive(Default)]
struct Lost {
    claims: Vec<i64>,
    lanes: Vec<i16>,
    seqs: Vec<i64>,
    extras: Vec<Vec<u8>>,
    fates: Vec<Option<&'static str>>,
}

impl PostgresBroker {
    pub(crate) async fn run_duties(&self, options: &MaintainOptions) -> Result<Maintenance> {
        let rows = self.store.query("maintain", Statement::Duties, &[&limit(options.limit)]).await?;
        let mut done = Maintenance::default();
        let Some(row) = rows.first() else { return Ok(done) };
        done.promoted = u64::from(count(row.get(0)));
        done.more = row.get(1);
        self.notifier.wake(&row.get::<_, Vec<i32>>(2));
        done.next_due = row.get::<_, Option<i64>>(3).map(|micros| Duration::from_micros(total(micros)));
        done.dead_workers = u64::from(count(row.get(4)));
        let (lost, labels): (Vec<Uuid>, Vec<String>) = (row.get(5), row.get(6));
        done.pruned = u64::from(count(row.get(7)));
        done.expired = u64::from(count(row.get(8)));
        let mut left = options.limit;
        for (worker, label) in lost.into_iter().zip(labels) {
            let rescued = self.rescue(worker, &label, left).await?;
            done.redelivered += rescued.redelivered;
            done.buried += rescued.buried;
            left = left.saturating_sub(rescued.looked_at);
            if left == 0 {
                done.more = true;
                break;
            }
        }
        done.mended = self.patrol().await?;
        Ok(done)
    }

    pub(crate) async fn retire_worker(&self, worker: WorkerId) -> Result<()> {
        let id = Uuid::from_bytes(*worker.as_bytes());
        let rows = self.store.query("retire a worker", Statement::RetireWorker, &[&id]).await?;
        self.claims.forget(worker);
        let Some(row) = rows.first() else { return Ok(()) };
        let label: String = row.get(0);
        while self.rescue(id, &label, 1_000).await?.looked_at == 1_000 {}
        Ok(())
    }

    /// Takes jobs back from a lost worker, and ends it once it has none.
    async fn rescue(&self, worker: Uuid, label: &str, most: usize) -> Result<Rescued> {
        let mut rescued = Rescued::default();
        let rows = self.store.query("rescue jobs", Statement::LostJobs, &[&worker, &limit(most)]).await?;
        let mut queues: BTreeMap<i32, Lost> = BTreeMap::new();
        for row in &rows {
            let lost = queues.entry(row.get(0)).or_default();
            lost.claims.push(row.get(1));
            lost.lanes.push(row.get(2));
            lost.seqs.push(row.get(3));
            let deliveries = count(row.get(4));
            let mut extras =
                Extras::from_bytes(row.get::<_, Option<&[u8]>>(5).unwrap_or_default()).unwrap_or_default();
            let failure = Failure::new(AttemptKind::WorkerLost, "the worker died or was cut off");
            let now = instant(row.get::<_, SystemTime>(9));
            extras.record(Attempt::new(now, deliveries.saturating_add(1), label, failure));
            lost.extras.push(extras.to_bytes());
            let mut settings = QueueSettings::default();
            settings.delivery_limit = u32::try_from(row.get::<_, i64>(8)).unwrap_or(u32::MAX);
            // Somebody asked for its end and nobody runs it any more.
            let fate = if row.get(7) {
                Some("cancelled")
            } else {
                match redeliver(deliveries, row.get(6), &settings) {
                    Redelivery::Bury(reason) => Some(reason.as_str()),
                    _ => None,
                }
            };
            lost.fates.push(fate);
        }
        rescued.looked_at = rows.len();
        for (queue, lost) in queues {
            let rows = self
                .store
                .query(
                    "rescue jobs",
                    Statement::Rescue,
                    &[&worker, &queue, &lost.claims, &lost.lanes, &lost.seqs, &lost.extras, &lost.fates],
                )
                .await?;
            if let Some(row) = rows.first() {
                let again = u64::from(count(row.get(0)));
                rescued.redelivered += again;
                rescued.buried += u64::from(count(row.get(1)));
                if again > 0 {
                    self.notifier.wake(&[queue]);
                }
            }
        }
        if rows.len() < most {
            self.store.query("rescue jobs", Statement::BuryWorker, &[&worker]).await?;
        }
        Ok(rescued)
    }
}
