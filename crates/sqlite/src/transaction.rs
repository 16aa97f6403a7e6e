use celeriac_core::{QueueName, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::fault::Fault;
use crate::state::{Cache, QueueState};

/// A write transaction: the connection that holds the lock, the store's clock, and the queues' states.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) now: Timestamp,
    cache: &'a mut Cache,
    /// Whether something became ready, so that waiters are woken after the commit.
    pub(crate) woke: bool,
}

impl<'a> Transaction<'a> {
    pub(crate) const fn new(connection: &'a Connection, now: Timestamp, cache: &'a mut Cache) -> Self {
        Self { connection, now, cache, woke: false }
    }

    /// The number of a queue, if it was declared.
    pub(crate) fn number(&mut self, name: &QueueName) -> Result<Option<i32>, Fault> {
        self.cache.number(self.connection, name)
    }

    pub(crate) fn name(&mut self, queue: i32) -> Result<QueueName, Fault> {
        Ok(self.cache.queue(self.connection, queue)?.0.clone())
    }

    pub(crate) fn queue(&mut self, queue: i32) -> Result<&QueueState, Fault> {
        Ok(&self.cache.queue(self.connection, queue)?.1)
    }

    pub(crate) fn queue_mut(&mut self, queue: i32) -> Result<&mut QueueState, Fault> {
        self.cache.queue_mut(self.connection, queue)
    }

    /// To be called after a queue's row was changed by a statement.
    pub(crate) fn reload(&mut self, queue: i32) -> Result<(), Fault> {
        self.cache.reload(self.connection, queue)
    }

    /// Writes the queues' states, so that statements see them.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.cache.flush(self.connection)
    }

    /// The mark by which it is told whether a piece of work has changed anything.
    pub(crate) fn mark(&self) -> (u64, u64) {
        (self.connection.total_changes(), self.cache.touched)
    }

    /// Whether any cancellation is asked for: nearly always none, and then no job is looked up for it.
    pub(crate) fn has_cancellations(&self) -> Result<bool, Fault> {
        let found: Option<i64> = self
            .connection
            .prepare_cached("select 1 from cancellations limit 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(found.is_some())
    }

    /// Takes the request for a job's cancellation, if there is one.
    pub(crate) fn take_cancellation(&self, id: &[u8]) -> Result<bool, Fault> {
        Ok(self.connection.prepare_cached("delete from cancellations where id = ?1")?.execute([id])? > 0)
    }
}
