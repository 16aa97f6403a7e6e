use std::collections::BTreeMap;

use celeriac_core::{ClaimId, ClaimOptions, Claimed, Error, Paused, QueueName, Receipt, Suspects, WorkerId};
use rusqlite::{OptionalExtension, params};

use crate::enqueue::no_such_queue;
use crate::fault::Fault;
use crate::maintain::promote_due;
use crate::room::{JobRow, bury_damaged, count_ready_gone, delete_job, delete_parked, expire, insert_job};
use crate::state::{ADOPTED, Range, SUSPECTS, as_ranges, key, parts, range_bytes, ranges};
use crate::transaction::Transaction;

/// Due jobs are moved to their queues on the way to a claim, this many at most: a claim must stay short.
const PROMOTE_WITH_CLAIM: usize = 200;

/// What a claim may still take.
struct Budget {
    jobs: usize,
    bytes: usize,
    /// The first job comes whatever its size.
    first: bool,
}

impl Budget {
    fn spend(&mut self, row: &JobRow) {
        self.jobs -= 1;
        self.bytes = self.bytes.saturating_sub(row.payload.len());
        self.first = false;
    }

    /// A job that does not fit ends the claim: a smaller one behind it must not pass it for ever.
    const fn fits(&mut self, row: &JobRow) -> bool {
        if !self.first && row.payload.len() > self.bytes {
            self.jobs = 0;
        }
        self.jobs > 0
    }
}

/// Rows that were taken, with their keys.
type Taken = Vec<(i64, JobRow)>;

/// Hands out jobs. The transaction is the queue's lock.
pub(crate) fn claim(
    transaction: &mut Transaction<'_>,
    options: &ClaimOptions,
) -> Result<Vec<Claimed>, Fault> {
    require_registered(transaction, options.worker)?;
    promote_due(transaction, PROMOTE_WITH_CLAIM)?;
    let mut open = Vec::with_capacity(options.queues.len());
    for share in &options.queues {
        let Some(queue) = transaction.number(&share.name)? else {
            return Err(no_such_queue(transaction, &share.name)?.into());
        };
        let state = transaction.queue(queue)?;
        if state.paused == Paused::No && (state.counts.ready > 0 || state.counts.parked > 0) {
            open.push((queue, &share.name, share.share));
        }
    }
    let mut budget = Budget { jobs: options.limit, bytes: options.max_bytes, first: true };
    let mut claimed = Vec::new();
    for (queue, name, _) in &open {
        let taken = adopt(transaction, *queue, options, &mut budget)?;
        hand_out(transaction, options.worker, *queue, name, taken, &mut claimed)?;
    }
    if options.suspects == Suspects::Take {
        for (queue, name, _) in &open {
            // In a claim of its own: the neighbours of a culprit must not be charged with it.
            let suspect = take_lane(transaction, *queue, SUSPECTS, 1, &mut budget)?;
            if !suspect.is_empty() {
                hand_out(transaction, options.worker, *queue, name, suspect, &mut claimed)?;
                break;
            }
        }
    }
    // What the shares leave free goes, in a second round, to whoever has more.
    let shares = open.iter().copied();
    for (queue, name, share) in
        shares.clone().chain(shares.map(|(queue, name, _)| (queue, name, options.limit)))
    {
        let taken = take(transaction, queue, share.min(budget.jobs), &mut budget)?;
        hand_out(transaction, options.worker, queue, name, taken, &mut claimed)?;
    }
    Ok(claimed)
}

/// Refuses a worker whose lease is gone: nobody would rescue what it is given.
pub(crate) fn require_registered(transaction: &Transaction<'_>, worker: WorkerId) -> Result<(), Fault> {
    let found: Option<i64> = transaction
        .connection
        .prepare_cached("select 1 from workers where worker = ?1")?
        .query_row([worker.as_bytes()], |row| row.get(0))
        .optional()?;
    if found.is_none() {
        return Err(Error::LeaseLost { worker }.into());
    }
    Ok(())
}

/// Takes up to `share` jobs of one queue, lane by lane.
fn take(
    transaction: &mut Transaction<'_>,
    queue: i32,
    share: usize,
    budget: &mut Budget,
) -> Result<Taken, Fault> {
    let mut taken = Taken::new();
    for lane in (0..=9).rev() {
        if taken.len() >= share {
            break;
        }
        taken.append(&mut take_lane(transaction, queue, lane, share - taken.len(), budget)?);
    }
    Ok(taken)
}

/// Takes parked jobs whose task this worker knows. They never stand behind a cursor, where a worker that
/// does not know the task would take them and park them again.
fn adopt(
    transaction: &mut Transaction<'_>,
    queue: i32,
    options: &ClaimOptions,
    budget: &mut Budget,
) -> Result<Taken, Fault> {
    let mut taken = Taken::new();
    if transaction.queue(queue)?.counts.parked == 0 {
        return Ok(taken);
    }
    for task in options.tasks.iter() {
        if budget.jobs == 0 {
            break;
        }
        let mut rows = Taken::new();
        {
            let mut statement = transaction.connection.prepare_cached(
                "select key, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, \
                 extras from parked where queue = ?1 and waits_for = ?2 order by key limit ?3",
            )?;
            let mut found = statement.query(params![queue, task.as_str(), limit(budget.jobs)])?;
            while let Some(row) = found.next()? {
                let job = JobRow::read(row, 1)?;
                if !budget.fits(&job) {
                    break;
                }
                if !job.damaged && !job.is_expired(transaction.now) {
                    budget.spend(&job);
                }
                rows.push((row.get(0)?, job));
            }
        }
        for (parked, job) in rows {
            delete_parked(transaction, queue, parked)?;
            if job.is_expired(transaction.now) {
                expire(transaction, queue, &job)?;
                continue;
            }
            if job.damaged {
                bury_damaged(transaction, queue, job)?;
                continue;
            }
            let key = insert_job(transaction, queue, ADOPTED, &job)?;
            let state = transaction.queue_mut(queue)?;
            state.lanes[ADOPTED as usize].cursor = parts(key).2;
            state.counts.ready -= 1;
            taken.push((key, job));
        }
    }
    Ok(taken)
}

/// Takes up to `wanted` jobs of one lane, first from the holes, which are older, then after the cursor.
fn take_lane(
    transaction: &mut Transaction<'_>,
    queue: i32,
    lane: u8,
    wanted: usize,
    budget: &mut Budget,
) -> Result<Taken, Fault> {
    let mut taken = Taken::new();
    let state = transaction.queue(queue)?;
    let in_lane = |hole: &Range| parts(hole.low).1 == lane;
    if state.holes.iter().any(in_lane) {
        let (holes, others): (Vec<Range>, Vec<Range>) = state.holes.iter().copied().partition(in_lane);
        let mut kept = others;
        for hole in holes {
            let passed = scan(transaction, queue, hole, wanted - taken.len(), budget, &mut taken)?;
            if passed < hole.high {
                kept.push(Range { low: passed + 1, high: hole.high });
            }
        }
        kept.sort_unstable();
        transaction.queue_mut(queue)?.holes = kept;
    }
    if taken.len() < wanted
        && let Some(range) = transaction.queue(queue)?.fresh(queue, lane)
    {
        let passed = scan(transaction, queue, range, wanted - taken.len(), budget, &mut taken)?;
        if passed >= range.low {
            transaction.queue_mut(queue)?.lanes[lane as usize].cursor = parts(passed).2;
        }
    }
    Ok(taken)
}

/// Reads jobs of a range in order and takes those that may run. Returns the last key that was dealt with;
/// behind it the range is empty or wholly taken.
fn scan(
    transaction: &mut Transaction<'_>,
    queue: i32,
    range: Range,
    wanted: usize,
    budget: &mut Budget,
    taken: &mut Taken,
) -> Result<i64, Fault> {
    let now = transaction.now;
    let cancelling = transaction.has_cancellations()?;
    let wanted = wanted.min(budget.jobs);
    let mut passed = range.low - 1;
    let mut got = 0;
    let mut set_aside = Taken::new();
    if wanted == 0 {
        return Ok(passed);
    }
    {
        let mut statement = transaction.connection.prepare_cached(
            "select key, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras \
             from jobs where key >= ?1 and key <= ?2 order by key",
        )?;
        let mut rows = statement.query([range.low, range.high])?;
        loop {
            if got == wanted || set_aside.len() >= 1_000 {
                break;
            }
            let Some(row) = rows.next()? else {
                passed = range.high;
                break;
            };
            let key: i64 = row.get(0)?;
            let job = JobRow::read(row, 1)?;
            let out = job.is_expired(now)
                || job.damaged
                || (cancelling && transaction.take_cancellation(&job.id)?);
            if out {
                set_aside.push((key, job));
            } else {
                if !budget.fits(&job) {
                    break;
                }
                budget.spend(&job);
                taken.push((key, job));
                got += 1;
            }
            passed = key;
        }
    }
    for (key, job) in set_aside {
        delete_job(transaction, key)?;
        count_ready_gone(transaction, key)?;
        if job.is_expired(now) {
            expire(transaction, queue, &job)?;
        } else if job.damaged {
            bury_damaged(transaction, queue, job)?;
        } else {
            transaction.queue_mut(queue)?.counts.cancelled += 1;
        }
    }
    for (key, _) in taken.iter().rev().take(got) {
        count_ready_gone(transaction, *key)?;
    }
    Ok(passed)
}

/// Writes one row for everything that was taken from a queue, and adds the jobs to the answer.
fn hand_out(
    transaction: &mut Transaction<'_>,
    worker: WorkerId,
    queue: i32,
    name: &QueueName,
    taken: Taken,
    claimed: &mut Vec<Claimed>,
) -> Result<(), Fault> {
    if taken.is_empty() {
        return Ok(());
    }
    let mut keys: Vec<i64> = taken.iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    transaction
        .connection
        .prepare_cached("insert into claims (worker, queue, keys, acknowledged) values (?1, ?2, ?3, x'')")?
        .execute(params![worker.as_bytes(), queue, range_bytes(&as_ranges(keys))])?;
    let claim = ClaimId::new(transaction.connection.last_insert_rowid());
    transaction.queue_mut(queue)?.counts.held += i64::try_from(taken.len()).unwrap_or(0);
    for (key, row) in taken {
        let (_, lane, seq) = parts(key);
        let receipt = Receipt { claim, queue, lane: i16::from(lane), seq };
        claimed.push(Claimed::new(row.into_job(name.clone())?, receipt, transaction.now));
    }
    Ok(())
}

/// What is left in a claim.
pub(crate) struct OpenClaim {
    pub(crate) queue: i32,
    pub(crate) keys: Vec<Range>,
    pub(crate) acknowledged: Vec<Range>,
}

/// Loads a claim if it is still open and held by this worker: the fence of every verdict.
pub(crate) fn open_claim(
    transaction: &Transaction<'_>,
    worker: WorkerId,
    claim: ClaimId,
) -> Result<Option<OpenClaim>, Fault> {
    let mut statement = transaction
        .connection
        .prepare_cached("select queue, keys, acknowledged from claims where claim = ?1 and worker = ?2")?;
    let found = statement.query_row(params![claim.get(), worker.as_bytes()], |row| {
        Ok(OpenClaim {
            queue: row.get(0)?,
            keys: ranges(&row.get::<_, Vec<u8>>(1)?),
            acknowledged: ranges(&row.get::<_, Vec<u8>>(2)?),
        })
    });
    Ok(found.optional()?)
}

/// Receipts by claim, each with the place of its verdict in the caller's list.
pub(crate) fn by_claim(receipts: impl Iterator<Item = Receipt>) -> BTreeMap<ClaimId, Vec<(i64, usize)>> {
    let mut claims: BTreeMap<ClaimId, Vec<(i64, usize)>> = BTreeMap::new();
    for (place, receipt) in receipts.enumerate() {
        claims.entry(receipt.claim).or_default().push((key_of(receipt), place));
    }
    for keys in claims.values_mut() {
        keys.sort_unstable();
    }
    claims
}

/// The key that a receipt stands for; −1, which no job has, if it was made up.
fn key_of(receipt: Receipt) -> i64 {
    u8::try_from(receipt.lane).map_or(-1, |lane| key(receipt.queue, lane, receipt.seq))
}

/// Whether ordered ranges contain a key.
pub(crate) fn contains(ranges: &[Range], key: i64) -> bool {
    let place = ranges.partition_point(|range| range.high < key);
    ranges.get(place).is_some_and(|range| range.low <= key)
}

/// Ordered ranges without some ordered keys.
pub(crate) fn without(ranges: &[Range], keys: &[i64]) -> Vec<Range> {
    let mut left = Vec::with_capacity(ranges.len());
    let mut keys = keys.iter().copied().peekable();
    for range in ranges {
        let mut low = range.low;
        while let Some(key) = keys.next_if(|key| *key <= range.high) {
            if key < low {
                continue;
            }
            if key > low {
                left.push(Range { low, high: key - 1 });
            }
            low = key + 1;
        }
        if low <= range.high {
            left.push(Range { low, high: range.high });
        }
    }
    left
}

fn limit(jobs: usize) -> i64 {
    i64::try_from(jobs).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_out_of_ranges() {
        let ranges = [Range { low: 1, high: 5 }, Range { low: 10, high: 10 }, Range { low: 20, high: 22 }];
        assert_eq!(
            without(&ranges, &[1, 3, 10, 15, 22]),
            [Range { low: 2, high: 2 }, Range { low: 4, high: 5 }, Range { low: 20, high: 21 }]
        );
        assert_eq!(without(&ranges, &[]), ranges);
        assert!(without(&[Range { low: 1, high: 2 }], &[1, 2]).is_empty());
        assert!(contains(&ranges, 4) && contains(&ranges, 10) && contains(&ranges, 20));
        assert!(!contains(&ranges, 6) && !contains(&ranges, 23) && !contains(&ranges, 0));
    }
}
