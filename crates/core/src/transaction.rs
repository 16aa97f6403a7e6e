use std::any::{Any, TypeId};
use std::fmt::Debug;

use crate::broker::{BoxFuture, Receipt};
use crate::error::{Error, Result};
use crate::id::WorkerId;

/// What a store adds that can take a handler's writes and the verdict on its job in one transaction.
pub trait Transactions: Debug + Send + Sync {
    /// The type that handlers take, for a check at the start of a worker.
    fn handle(&self) -> TypeId;

    /// Begins the transaction of a held job.
    ///
    /// # Errors
    /// As any call to the store. Nothing has begun then.
    fn begin(&self, worker: WorkerId, receipt: Receipt) -> BoxFuture<'_, Result<Box<dyn JobTransaction>>>;
}

/// An open transaction that belongs to one delivery of a job.
///
/// Dropped without an end it is rolled back: its connection is closed.
pub trait JobTransaction: Debug + Send {
    /// What the handler works with: a value of the type [`Transactions::handle`]. Only the first call gives one.
    fn lend(&mut self) -> Option<Box<dyn Any + Send>>;

    /// Writes the verdict `done` in the transaction and commits it.
    ///
    /// The verdict is fenced like any other, and within the transaction: if the job is not held any more, nothing is
    /// committed.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Committed>;

    /// Rolls back. Never fails: a connection that does not answer is closed.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// How the commit of a [`JobTransaction`] ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Committed {
    /// The writes and the verdict are stored.
    Applied,
    /// Nothing is stored: the store or the transaction's own state stood against it.
    Refused(Error),
    /// Nothing is stored: the job is not held by this delivery any more.
    Stale,
    /// The answer was lost. Either everything is stored or nothing; the job's row tells, so a verdict that gives the
    /// job back is right in both cases.
    Unknown(Error),
}

/// The type of a parameter by which a handler takes the worker's transaction. Implemented by engines.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that a worker can hand in",
    label = "not `celeriac::postgres::Transaction`",
    note = "a parameter whose type is named `Transaction` is handed in by the worker and must be \
            `celeriac::postgres::Transaction`",
    note = "an argument of such a name needs another one: `use my::Transaction as Booking;`"
)]
pub trait TransactionHandle: Send + Sync + 'static {}
