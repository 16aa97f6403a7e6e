use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use celeriac_core::Result;
use tokio::time::Instant;
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::row::{count, total};
use crate::statement::Statement;

/// Rows of one step: a few tens of milliseconds.
const STEP: i32 = 5_000;

/// Steps of one round of maintenance: the other duties must not wait.
const STEPS: usize = 20;

/// Lanes of a queue.
const LANES: i16 = 12;

/// Between two questions whether the full check is due, at the longest. Another process may do it meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(3600);

/// The full check as far as this process has come with it: does anything lead to every row of `jobs`?
///
/// It finds what went wrong by an error of ours, and what was in a hole that had to be forgotten because something held
/// back the oldest transaction for hours. One process does it at a time, in steps, at intervals of a hundred times its
/// own length.
#[derive(Debug, Default)]
pub(crate) struct Patrol(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// No question before this instant; none yet: ask.
    ask_at: Option<Instant>,
    round: Option<Round>,
}

#[derive(Debug)]
struct Round {
    queues: Vec<i32>,
    lane: i16,
    after: i64,
    spent: Duration,
    found: u64,
    /// Of these, told to the caller.
    told: u64,
}

impl Patrol {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostgresBroker {
    /// Goes on with the full check if it is due. Gives how many jobs were given back.
    pub(crate) async fn patrol(&self) -> Result<u64> {
        let Some(mut round) = self.take_round().await? else { return Ok(0) };
        let started = Instant::now();
        for _ in 0..STEPS {
            let Some(queue) = round.queues.last().copied() else { break };
            let values: crate::store::Values<'_> = &[&queue, &round.lane, &round.after, &STEP];
            let rows = self.store.query("check the store", Statement::PatrolStep, values).await?;
            let Some(row) = rows.first() else { break };
            let (reached, looked): (Option<i64>, u32) = (row.get(0), count(row.get(1)));
            if let Some(lost) = row.get::<_, Option<Vec<i64>>>(2) {
                round.found += self.give_back_lost(queue, round.lane, &lost).await?;
            }
            round.after = reached.unwrap_or(round.after);
            if looked < count(STEP) {
                (round.lane, round.after) = (round.lane + 1, 0);
                if round.lane == LANES {
                    round.queues.pop();
                    round.lane = 0;
                }
            }
        }
        round.spent += started.elapsed();
        let mended = round.found - std::mem::replace(&mut round.told, round.found);
        if round.queues.is_empty() {
            let took = i64::try_from(round.spent.as_micros()).unwrap_or(i64::MAX / 1_000);
            let found = i64::try_from(round.found).unwrap_or(i64::MAX);
            self.store.query("check the store", Statement::PatrolEnd, &[&took, &found]).await?;
        } else {
            self.patrol.state().round = Some(round);
        }
        Ok(mended)
    }

    /// The round that is under way, or a new one. An error on the way drops a round: it begins anew when it is due.
    async fn take_round(&self) -> Result<Option<Round>> {
        {
            let mut state = self.patrol.state();
            if let Some(round) = state.round.take() {
                return Ok(Some(round));
            }
            if state.ask_at.is_some_and(|at| Instant::now() < at) {
                return Ok(None);
            }
            // One question at a time; it is put off before it is asked.
            state.ask_at = Some(Instant::now() + Duration::from_secs(60));
        }
        let rows = self.store.query("check the store", Statement::PatrolBegin, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let wait = Duration::from_micros(total(row.get::<_, Option<i64>>(1).unwrap_or(0)));
        // Spread, so that the processes of a store do not ask in step.
        let wait = wait.min(ASK_AGAIN).mul_f64(1.0 + fastrand::f64() / 10.0);
        self.patrol.state().ask_at = Some(Instant::now() + wait.max(Duration::from_secs(1)));
        if !row.get::<_, bool>(0) {
            return Ok(None);
        }
        let mut found = 0;
        for row in self.store.query("check the store", Statement::CheckOrphans, &[]).await? {
            let (queue, worker): (i32, Uuid) = (row.get(0), row.get(2));
            let known: Vec<i64> = Vec::new();
            self.store.query("give back lost jobs", Statement::Reconcile, &[&worker, &known]).await?;
            self.notifier.wake(&[queue]);
            found += 1;
        }
        self.store.load_queues().await?;
        let queues = self.store.queues.all();
        Ok(Some(Round { queues, lane: 0, after: 0, spent: Duration::ZERO, found, told: 0 }))
    }

    async fn give_back_lost(&self, queue: i32, lane: i16, lost: &[i64]) -> Result<u64> {
        let lanes = vec![lane; lost.len()];
        let rows =
            self.store.query("give back lost jobs", Statement::Reclaim, &[&queue, &lanes, &lost]).await?;
        let given = rows.first().map_or(0, |row| u64::from(count(row.get(0))));
        if given > 0 {
            self.notifier.wake(&[queue]);
        }
        Ok(given)
    }
}
