use std::collections::HashMap;
use std::collections::hash_map::Entry;

use celeriac_core::{Error, Paused, QueueName, QueueSettings};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::Fault;

/// Priorities 0 to 9 are lanes of their own number.
pub(crate) const SUSPECTS: u8 = 10;
/// Parked jobs that went straight into the claim of a worker that knows their task.
pub(crate) const ADOPTED: u8 = 11;
const LANES: usize = 12;

const LANE_SHIFT: u32 = 44;
const QUEUE_SHIFT: u32 = 48;
/// 15 bits of the key are the queue.
pub(crate) const MAX_QUEUES: i32 = 1 << 15;

/// The place of a job in `jobs`.
pub(crate) const fn key(queue: i32, lane: u8, seq: i64) -> i64 {
    ((queue as i64) << QUEUE_SHIFT) | ((lane as i64) << LANE_SHIFT) | seq
}

/// The queue, the lane and the number of a key.
pub(crate) const fn parts(key: i64) -> (i32, u8, i64) {
    ((key >> QUEUE_SHIFT) as i32, ((key >> LANE_SHIFT) & 0xf) as u8, key & ((1 << LANE_SHIFT) - 1))
}

/// The dispatch state of a queue: everything about its jobs that is written once per batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) settings: QueueSettings,
    pub(crate) paused: Paused,
    pub(crate) lanes: [Lane; LANES],
    /// Ranges of keys behind the cursors that are ready all the same: given back by a release. Ordered.
    pub(crate) holes: Vec<Range>,
    pub(crate) counts: Counts,
    dirty: bool,
}

/// Where a lane's numbers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The number that the next job gets.
    pub(crate) next: i64,
    /// The highest number that was handed out; everything behind it is in a claim, in a hole, or gone.
    pub(crate) cursor: i64,
}

/// An inclusive range of keys within one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// Depths and totals. Kept with every move, so reading them costs the same at any number of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Claimable, suspects of a crash included.
    pub(crate) ready: i64,
    /// The suspects among them.
    pub(crate) suspects: i64,
    pub(crate) held: i64,
    pub(crate) scheduled: i64,
    pub(crate) parked: i64,
    pub(crate) dead: i64,
    pub(crate) enqueued: i64,
    pub(crate) done: i64,
    pub(crate) retried: i64,
    pub(crate) buried: i64,
    pub(crate) redelivered: i64,
    pub(crate) cancelled: i64,
    pub(crate) dropped: i64,
}

impl QueueState {
    pub(crate) fn new(settings: &QueueSettings) -> Self {
        Self {
            settings: settings.clone(),
            paused: Paused::No,
            lanes: [Lane { next: 1, cursor: 0 }; LANES],
            holes: Vec::new(),
            counts: Counts::default(),
            dirty: false,
        }
    }

    /// Takes the next number of a lane.
    pub(crate) fn next_key(&mut self, queue: i32, lane: u8) -> i64 {
        let lane_state = &mut self.lanes[lane as usize];
        let seq = lane_state.next;
        lane_state.next += 1;
        key(queue, lane, seq)
    }

    /// The keys that nobody was ever handed, of one lane; empty ranges are `None`.
    pub(crate) const fn fresh(&self, queue: i32, lane: u8) -> Option<Range> {
        let Lane { next, cursor } = self.lanes[lane as usize];
        if next <= cursor + 1 {
            return None;
        }
        Some(Range { low: key(queue, lane, cursor + 1), high: key(queue, lane, next - 1) })
    }

    /// Whether a job at `key` could be claimed.
    pub(crate) fn is_ready(&self, key: i64) -> bool {
        let (_, lane, seq) = parts(key);
        // A damaged key may name a lane that there is not.
        self.lanes.get(usize::from(lane)).is_some_and(|lane| seq > lane.cursor)
            || self.holes.iter().any(|hole| (hole.low..=hole.high).contains(&key))
    }

    /// Makes the keys ready again in their old places.
    pub(crate) fn give_back(&mut self, keys: impl IntoIterator<Item = i64>) {
        self.holes.extend(keys.into_iter().map(|key| Range { low: key, high: key }));
        self.holes.sort_unstable();
        self.holes.dedup_by(|next, previous| {
            // Neighbours become one range: a release of a thousand jobs is one hole, not a thousand.
            let joined = next.low <= previous.high + 1;
            if joined {
                previous.high = previous.high.max(next.high);
            }
            joined
        });
    }

    /// Adds the row of a new queue.
    pub(crate) fn insert(&self, connection: &Connection, queue: i32, name: &QueueName) -> Result<(), Fault> {
        connection.execute(
            "insert into queues (queue, name, settings, lanes, holes) values (?1, ?2, ?3, ?4, ?5)",
            params![
                queue,
                name.as_str(),
                settings_text(&self.settings),
                self.lane_bytes(),
                self.hole_bytes()
            ],
        )?;
        Ok(())
    }

    pub(crate) fn load(connection: &Connection, queue: i32) -> Result<Self, Fault> {
        let mut statement = connection.prepare_cached(
            "select settings, paused, lanes, holes, ready, suspects, held, scheduled, parked, dead, enqueued, done, \
             retried, buried, redelivered, cancelled, dropped from queues where queue = ?1",
        )?;
        let state = statement.query_row([queue], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, bool>(1)?,
                row.get::<_, Vec<u8>>(2)?,
                row.get::<_, Vec<u8>>(3)?,
                Counts {
                    ready: row.get(4)?,
                    suspects: row.get(5)?,
                    held: row.get(6)?,
                    scheduled: row.get(7)?,
                    parked: row.get(8)?,
                    dead: row.get(9)?,
                    enqueued: row.get(10)?,
                    done: row.get(11)?,
                    retried: row.get(12)?,
                    buried: row.get(13)?,
                    redelivered: row.get(14)?,
                    cancelled: row.get(15)?,
                    dropped: row.get(16)?,
                },
            ))
        })?;
        let (settings, paused, lane_bytes, hole_bytes, counts) = state;
        let settings = serde_json::from_str(&settings)
            .map_err(|error| Error::corrupt(format!("the settings of queue {queue}"), error.to_string()))?;
        let numbers = numbers(&lane_bytes);
        if numbers.len() != LANES * 2 {
            let problem = format!("{} bytes instead of {}", lane_bytes.len(), LANES * 16);
            return Err(Error::corrupt(format!("the lanes of queue {queue}"), problem).into());
        }
        let mut lanes = [Lane { next: 1, cursor: 0 }; LANES];
        for (lane, pair) in lanes.iter_mut().zip(numbers.chunks_exact(2)) {
            *lane = Lane { next: pair[0], cursor: pair[1] };
        }
        Ok(Self {
            settings,
            paused: if paused { Paused::Yes } else { Paused::No },
            lanes,
            holes: ranges(&hole_bytes),
            counts,
            dirty: false,
        })
    }

    fn store(&self, connection: &Connection, queue: i32) -> Result<(), Fault> {
        let counts = &self.counts;
        let mut statement = connection.prepare_cached(
            "update queues set lanes = ?2, holes = ?3, ready = ?4, suspects = ?5, held = ?6, scheduled = ?7, \
             parked = ?8, dead = ?9, enqueued = ?10, done = ?11, retried = ?12, buried = ?13, redelivered = ?14, \
             cancelled = ?15, dropped = ?16 where queue = ?1",
        )?;
        statement.execute(params![
            queue,
            self.lane_bytes(),
            self.hole_bytes(),
            counts.ready,
            counts.suspects,
            counts.held,
            counts.scheduled,
            counts.parked,
            counts.dead,
            counts.enqueued,
            counts.done,
            counts.retried,
            counts.buried,
            counts.redelivered,
            counts.cancelled,
            counts.dropped,
        ])?;
        Ok(())
    }

    fn lane_bytes(&self) -> Vec<u8> {
        self.lanes.iter().flat_map(|lane| [lane.next, lane.cursor]).flat_map(i64::to_le_bytes).collect()
    }

    fn hole_bytes(&self) -> Vec<u8> {
        range_bytes(&self.holes)
    }
}

/// The settings as they are stored.
pub(crate) fn settings_text(settings: &QueueSettings) -> String {
    // A structure of numbers and words always serialises.
    serde_json::to_string(settings).unwrap_or_else(|_| "{}".to_owned())
}

/// Ranges as they are stored: pairs of little-endian numbers.
pub(crate) fn range_bytes(ranges: &[Range]) -> Vec<u8> {
    ranges.iter().flat_map(|range| [range.low, range.high]).flat_map(i64::to_le_bytes).collect()
}

/// Ranges from their stored form.
pub(crate) fn ranges(bytes: &[u8]) -> Vec<Range> {
    numbers(bytes).chunks_exact(2).map(|pair| Range { low: pair[0], high: pair[1] }).collect()
}

/// Ordered keys as ranges.
pub(crate) fn as_ranges(keys: impl IntoIterator<Item = i64>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for key in keys {
        match ranges.last_mut() {
            Some(last) if last.high + 1 == key => last.high = key,
            _ => ranges.push(Range { low: key, high: key }),
        }
    }
    ranges
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()
}

/// The queues' states as the writer knows them. Valid while no other process has written.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Numbers never change and queues never go, so names stay valid.
    names: HashMap<QueueName, i32>,
    queues: HashMap<i32, (QueueName, QueueState)>,
    version: i64,
    /// Grows with every change in memory: tells whether a piece of work has touched anything.
    pub(crate) touched: u64,
}

impl Cache {
    /// Drops what may be stale. To be called inside a transaction.
    pub(crate) fn refresh(&mut self, connection: &Connection) -> Result<(), Fault> {
        let mut statement = connection.prepare_cached("pragma data_version")?;
        let version: i64 = statement.query_row([], |row| row.get(0))?;
        if version != self.version {
            self.queues.clear();
            self.version = version;
        }
        Ok(())
    }

    /// Forgets everything that a rolled-back transaction may have changed.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.queues.clear();
    }

    /// Writes what has changed.
    pub(crate) fn flush(&mut self, connection: &Connection) -> Result<(), Fault> {
        for (queue, (_, state)) in &mut self.queues {
            if state.dirty {
                state.store(connection, *queue)?;
                state.dirty = false;
            }
        }
        Ok(())
    }

    pub(crate) fn number(&mut self, connection: &Connection, name: &QueueName) -> Result<Option<i32>, Fault> {
        if let Some(queue) = self.names.get(name) {
            return Ok(Some(*queue));
        }
        let mut statement = connection.prepare_cached("select queue from queues where name = ?1")?;
        let found: Option<i32> = statement.query_row([name.as_str()], |row| row.get(0)).optional()?;
        if let Some(queue) = found {
            self.names.insert(name.clone(), queue);
        }
        Ok(found)
    }

    pub(crate) fn queue(
        &mut self,
        connection: &Connection,
        queue: i32,
    ) -> Result<&(QueueName, QueueState), Fault> {
        Ok(self.entry(connection, queue)?)
    }

    pub(crate) fn queue_mut(
        &mut self,
        connection: &Connection,
        queue: i32,
    ) -> Result<&mut QueueState, Fault> {
        self.touched += 1;
        let (_, state) = self.entry(connection, queue)?;
        state.dirty = true;
        Ok(state)
    }

    /// Forgets one queue: its settings were changed in the store.
    pub(crate) fn reload(&mut self, connection: &Connection, queue: i32) -> Result<(), Fault> {
        self.touched += 1;
        if let Some((_, state)) = self.queues.remove(&queue)
            && state.dirty
        {
            state.store(connection, queue)?;
        }
        Ok(())
    }

    fn entry(&mut self, connection: &Connection, queue: i32) -> Result<&mut (QueueName, QueueState), Fault> {
        match self.queues.entry(queue) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let name: String = connection
                    .prepare_cached("select name from queues where queue = ?1")?
                    .query_row([queue], |row| row.get(0))?;
                let name = QueueName::new(name).map_err(Error::from)?;
                Ok(unknown.insert((name, QueueState::load(connection, queue)?)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_parts() {
        for (queue, lane, seq) in [(0, 0, 1), (1, 9, 7), (MAX_QUEUES - 1, ADOPTED, (1 << LANE_SHIFT) - 1)] {
            let made = key(queue, lane, seq);
            assert!(made > 0);
            assert_eq!(parts(made), (queue, lane, seq));
        }
        assert!(key(1, 9, 5) > key(1, 8, 1 << 40));
    }

    #[test]
    fn neighbours_given_back_join() {
        let mut state = QueueState::new(&QueueSettings::default());
        state.give_back([5, 3, 9, 4]);
        assert_eq!(state.holes, [Range { low: 3, high: 5 }, Range { low: 9, high: 9 }]);
        state.give_back([6, 7, 8]);
        assert_eq!(state.holes, [Range { low: 3, high: 9 }]);
    }

    #[test]
    fn ranges_survive_the_round() {
        let found = as_ranges([1, 2, 3, 7, 8, 20]);
        assert_eq!(found.len(), 3);
        assert_eq!(ranges(&range_bytes(&found)), found);
    }
}
