use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use celeriac_core::{Claimed, JobId};
use tokio::time::Instant;

/// How long a job may wait in a buffer. Whoever waits longer is behind jobs that turned out to be long, and is
/// given back so that another worker can have it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Claimed jobs that wait for a handler, first in, first out, and the slots that wait for a job.
///
/// A mutex and not a channel: a job may also leave from the middle, and claiming needs the numbers of jobs
/// and of busy slots at one moment. It is held for tens of nanoseconds.
#[derive(Debug)]
pub(crate) struct Buffer(Mutex<State>);

/// A claimed job in the buffer.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claimed: Claimed,
    pub(crate) since: Instant,
}

/// The numbers of a buffer at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) jobs: usize,
    pub(crate) bytes: usize,
    /// Slots that have a job.
    pub(crate) busy: usize,
}

#[derive(Debug)]
struct State {
    jobs: VecDeque<Held>,
    /// Payload bytes of `jobs`.
    bytes: usize,
    slots: Vec<Seat>,
    busy: usize,
    /// Slots with a waker. The last to come is the first to be woken, so that few slots stay warm.
    waiting: Vec<usize>,
    open: bool,
}

#[derive(Debug, Default)]
struct Seat {
    busy: bool,
    waker: Option<Waker>,
}

impl Buffer {
    pub(crate) fn new(slots: usize) -> Self {
        Self(Mutex::new(State {
            jobs: VecDeque::new(),
            bytes: 0,
            slots: (0..slots).map(|_| Seat::default()).collect(),
            busy: 0,
            waiting: Vec::with_capacity(slots),
            open: true,
        }))
    }

    /// Adds jobs and wakes as many slots. After [`Buffer::close`] the jobs come back.
    pub(crate) fn push(&self, jobs: Vec<Claimed>, now: Instant) -> Result<(), Vec<Claimed>> {
        let mut wake = Vec::new();
        {
            let mut state = self.lock();
            if !state.open {
                return Err(jobs);
            }
            let first = state.waiting.len().saturating_sub(jobs.len());
            for slot in state.waiting.split_off(first) {
                wake.extend(state.slots[slot].waker.take());
            }
            for claimed in jobs {
                state.bytes += claimed.job.payload.len();
                state.jobs.push_back(Held { claimed, since: now });
            }
        }
        wake.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The next job for a slot, which is thereby done with the one before. `None` after [`Buffer::close`].
    ///
    /// `idle` is called, outside the lock, when the slot has to wait.
    pub(crate) fn poll_take(
        &self,
        slot: usize,
        context: &Context<'_>,
        idle: impl FnOnce(),
    ) -> Poll<Option<Held>> {
        {
            let mut guard = self.lock();
            let state = &mut *guard;
            let seat = &mut state.slots[slot];
            if seat.busy {
                seat.busy = false;
                state.busy -= 1;
            }
            if let Some(held) = state.jobs.pop_front() {
                // Woken by something else than `push`, and still listed.
                if seat.waker.take().is_some() {
                    state.waiting.retain(|other| *other != slot);
                }
                seat.busy = true;
                state.busy += 1;
                state.bytes -= held.claimed.job.payload.len();
                return Poll::Ready(Some(held));
            }
            if !state.open {
                return Poll::Ready(None);
            }
            if let Some(waker) = &mut seat.waker {
                waker.clone_from(context.waker());
                return Poll::Pending;
            }
            seat.waker = Some(context.waker().clone());
            state.waiting.push(slot);
        }
        idle();
        Poll::Pending
    }

    /// Removes the jobs that have waited for longer than [`PATIENCE`].
    pub(crate) fn take_stale(&self, now: Instant) -> Vec<Held> {
        let mut state = self.lock();
        let fresh = |held: &Held| now.saturating_duration_since(held.since) < PATIENCE;
        let count = state.jobs.iter().position(fresh).unwrap_or(state.jobs.len());
        let stale: Vec<Held> = state.jobs.drain(..count).collect();
        state.bytes -= stale.iter().map(|held| held.claimed.job.payload.len()).sum::<usize>();
        stale
    }

    /// Removes the jobs with these ids.
    pub(crate) fn take_named(&self, ids: &HashSet<JobId>) -> Vec<Held> {
        let mut state = self.lock();
        let (named, rest): (VecDeque<Held>, VecDeque<Held>) =
            std::mem::take(&mut state.jobs).into_iter().partition(|held| ids.contains(&held.claimed.job.id));
        state.jobs = rest;
        state.bytes -= named.iter().map(|held| held.claimed.job.payload.len()).sum::<usize>();
        named.into()
    }

    /// Takes no more jobs, and gives back those that no slot has taken. Waiting slots end.
    pub(crate) fn close(&self) -> Vec<Held> {
        let (left, wake) = {
            let mut state = self.lock();
            state.open = false;
            state.bytes = 0;
            state.waiting.clear();
            let wake: Vec<Waker> = state.slots.iter_mut().filter_map(|seat| seat.waker.take()).collect();
            (std::mem::take(&mut state.jobs), wake)
        };
        wake.into_iter().for_each(Waker::wake);
        left.into()
    }

    pub(crate) fn fill(&self) -> Fill {
        let state = self.lock();
        Fill { jobs: state.jobs.len(), bytes: state.bytes, busy: state.busy }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use celeriac_core::{ClaimId, Extras, Job, Payload, Priority, QueueName, Receipt, TaskName, Timestamp};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn job(key: &str) -> Claimed {
        let job = Job::from_columns(
            JobId::from_key("t", key),
            QueueName::default(),
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

    fn take(buffer: &Buffer, slot: usize, counter: &Arc<Counter>) -> Poll<Option<JobId>> {
        let waker = Waker::from(Arc::clone(counter));
        buffer
            .poll_take(slot, &Context::from_waker(&waker), || ())
            .map(|held| held.map(|held| held.claimed.job.id))
    }

    #[tokio::test]
    async fn jobs_come_in_order_and_wake_as_many_slots() {
        let buffer = Buffer::new(3);
        let counters: Vec<Arc<Counter>> = (0..3).map(|_| Arc::default()).collect();
        for (slot, counter) in counters.iter().enumerate() {
            assert!(take(&buffer, slot, counter).is_pending());
        }
        buffer.push(vec![job("a"), job("b")], Instant::now()).unwrap();
        let woken = |slot: usize| counters[slot].0.load(Ordering::SeqCst);
        assert_eq!((woken(0), woken(1), woken(2)), (0, 1, 1));
        assert_eq!(buffer.fill(), Fill { jobs: 2, bytes: 6, busy: 0 });
        assert_eq!(take(&buffer, 2, &counters[2]), Poll::Ready(Some(JobId::from_key("t", "a"))));
        // A slot that was not woken may come first.
        assert_eq!(take(&buffer, 0, &counters[0]), Poll::Ready(Some(JobId::from_key("t", "b"))));
        assert_eq!(buffer.fill(), Fill { jobs: 0, bytes: 0, busy: 2 });
        assert!(take(&buffer, 1, &counters[1]).is_pending());
        assert!(take(&buffer, 0, &counters[0]).is_pending());
        assert_eq!(buffer.fill().busy, 1);
        buffer.push(vec![job("c"), job("d"), job("e")], Instant::now()).unwrap();
        assert_eq!((woken(0), woken(1)), (1, 2));
    }

    #[tokio::test]
    async fn closing_gives_back_what_nobody_took_and_ends_the_slots() {
        let buffer = Buffer::new(1);
        let counter = Arc::default();
        assert!(take(&buffer, 0, &counter).is_pending());
        buffer.push(vec![job("a"), job("b")], Instant::now()).unwrap();
        let left = buffer.close();
        assert_eq!(left.len(), 2);
        assert_eq!(take(&buffer, 0, &counter), Poll::Ready(None));
        assert_eq!(buffer.push(vec![job("c")], Instant::now()).unwrap_err().len(), 1);
    }

    #[tokio::test]
    async fn only_the_stale_and_the_named_leave() {
        let buffer = Buffer::new(1);
        let start = Instant::now();
        buffer.push(vec![job("a"), job("b")], start).unwrap();
        buffer.push(vec![job("c"), job("d")], start + PATIENCE / 2).unwrap();
        assert!(buffer.take_stale(start + PATIENCE / 2).is_empty());
        let stale = buffer.take_stale(start + PATIENCE);
        assert_eq!(stale.len(), 2);
        let named = buffer.take_named(&HashSet::from([JobId::from_key("t", "d")]));
        assert_eq!(named.len(), 1);
        assert_eq!(buffer.fill(), Fill { jobs: 1, bytes: 3, busy: 0 });
    }
}
