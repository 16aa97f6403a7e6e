use std::any::{Any, TypeId};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use celeriac_core::{
    BoxFuture, Committed, Error, JobTransaction, Receipt, Result, TransactionHandle, Transactions, WorkerId,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::claim::Claims;
use crate::fault::Fault;
use crate::statement::Statement;
use crate::store::{SharedStore, Store, session_config};

/// The longest that a transaction may lie idle while its handler does something else. It holds back the clean-up of the
/// whole database all that time; a handler that waits for something slow should do so before its first statement, or
/// in a task of its own.
const IDLE: Duration = Duration::from_secs(600);

/// How long a rollback may take before the connection is closed instead, which is a rollback too.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(1);

/// What the last user of a connection may have left behind. One message with the next `begin`, so it costs no time.
const CLEAN: &str =
    "reset session authorization; reset all; discard temp; unlisten *; select pg_advisory_unlock_all()";

/// The transaction in which a worker writes the verdict on a job, for the job's handler to write in: either both are
/// committed or neither is.
///
/// A task takes it as a parameter:
///
/// ```
/// # mod celeriac { pub mod postgres { pub use celeriac_postgres::Transaction; } }
/// # type Result<T> = std::result::Result<T, tokio_postgres::Error>;
/// # /*
/// #[task]
/// # */
/// async fn charge(order: i64, transaction: celeriac::postgres::Transaction) -> Result<()> {
///     transaction.execute("update orders set paid = true where id = $1", &[&order]).await?;
///     Ok(())
/// }
/// ```
///
/// It is used like a [`tokio_postgres::Client`]. The worker commits it after the handler returned `Ok`, and rolls it back
/// after an error, a panic, a time-out or a cancellation. A worker that dies leaves nothing, and one that lost the job
/// to another cannot commit. So each job's writes happen once, however often it is tried; what a handler does elsewhere
/// (mail, HTTP) may still happen again.
///
/// The isolation level is `read committed`. A handler that wants another begins with
/// `set transaction isolation level …`, and its job is tried again after a serialization failure like after any other
/// error. `statement_timeout` is off: the task's `timeout` ends a statement too. A transaction that lies idle for ten
/// minutes is ended by the server. Do not end the transaction yourself: a handler that runs `commit` gives up the
/// promise, and its job counts as failed.
///
/// Each transaction uses a connection of its own while the handler runs, at most `transactions=N` of them (see
/// [`PostgresOptions::from_url`](crate::PostgresOptions::from_url)); further handlers wait for one before they start.
pub struct Transaction {
    connection: Arc<Connection>,
}

impl Deref for Transaction {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connection.client
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl TransactionHandle for Transaction {}

/// A transaction that jobs can be stored in.
pub trait InTransaction: sealed::Sealed + Sync {
    /// What sends statements in it.
    #[doc(hidden)]
    fn client(&self) -> &Client;
}

impl InTransaction for Transaction {
    fn client(&self) -> &Client {
        self
    }
}

impl InTransaction for tokio_postgres::Transaction<'_> {
    fn client(&self) -> &Client {
        GenericClient::client(self)
    }
}

impl InTransaction for deadpool_postgres::Transaction<'_> {
    fn client(&self) -> &Client {
        GenericClient::client(&**self)
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "others cannot implement what they cannot name")]
    pub trait Sealed {}
    impl Sealed for super::Transaction {}
    impl Sealed for tokio_postgres::Transaction<'_> {}
    impl Sealed for deadpool_postgres::Transaction<'_> {}
}

/// Connections for handlers' transactions. They are not of the pool: handlers may keep them long, and the worker's own
/// calls must not wait for that.
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    client: Client,
    link: Link,
}

/// The task that carries the bytes of a connection. Its end closes the socket, whoever holds the client.
struct Link {
    task: AbortHandle,
    /// The SQLSTATE with which the server ended the connection.
    ended: Arc<OnceLock<String>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Connection {
    client: Client,
    link: Link,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)), idle: Mutex::default() }
    }

    /// Closes those that nobody uses.
    pub(crate) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn take(&self) -> Option<Idle> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if !connection.client.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn give_back(&self, connection: Connection) {
        let Connection { client, link, .. } = connection;
        if !client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(Idle { client, link });
        }
    }
}

impl Store {
    async fn begin_transaction(&self, marker: &str) -> Result<Connection, Fault> {
        let late = || Fault::Late(self.options.deadline);
        // No end: whoever waits here stops by dropping this future. The semaphore is never closed.
        let permit = Arc::clone(&self.transactions.permits).acquire_owned().await.map_err(|_| late())?;
        let begin = format!(
            "begin isolation level read committed; set local statement_timeout = 0; \
             set local idle_in_transaction_session_timeout = {}; set local celeriac.delivery = '{marker}'",
            IDLE.as_millis()
        );
        if let Some(Idle { client, link }) = self.transactions.take() {
            let run = async { tokio::join!(client.batch_execute(CLEAN), client.batch_execute(&begin)) };
            if let Ok((Ok(()), Ok(()))) = timeout(self.options.deadline, run).await {
                return Ok(Connection { client, link, _permit: permit });
            }
            // It led nowhere any more, and the others were made at the same time.
            self.transactions.clear();
        }
        let run = async {
            let config = session_config(&self.options.config, self.options.pooler, self.options.deadline);
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let ended = Arc::new(OnceLock::new());
            let told = Arc::clone(&ended);
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await
                    && let Some(code) = error.code()
                {
                    let _ = told.set(code.code().to_owned());
                }
            });
            let link = Link { task: task.abort_handle(), ended };
            client.batch_execute(&begin).await?;
            Ok(Connection { client, link, _permit: permit })
        };
        timeout(self.options.deadline, run).await.map_err(|_| late())?
    }
}

impl Transactions for PostgresBroker {
    fn handle(&self) -> TypeId {
        TypeId::of::<Transaction>()
    }

    fn begin(&self, worker: WorkerId, receipt: Receipt) -> BoxFuture<'_, Result<Box<dyn JobTransaction>>> {
        Box::pin(async move {
            let Receipt { claim, queue, lane, seq } = receipt;
            let marker = format!("{queue}.{}.{lane}.{seq}", claim.get());
            let begun = self.store.begin_transaction(&marker).await;
            let connection = begun.map_err(|fault| self.store.error(fault, "begin a transaction"))?;
            let open: Box<dyn JobTransaction> = Box::new(Open {
                store: Arc::clone(&self.store),
                claims: Arc::clone(&self.claims),
                worker,
                receipt,
                marker,
                connection: Some(Arc::new(connection)),
                lent: false,
            });
            Ok(open)
        })
    }
}

/// A transaction on its way from its begin to its end.
struct Open {
    store: SharedStore,
    claims: Arc<Claims>,
    worker: WorkerId,
    receipt: Receipt,
    /// What the transaction knows of itself: gone when somebody else ended it.
    marker: String,
    connection: Option<Arc<Connection>>,
    lent: bool,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("receipt", &self.receipt).finish_non_exhaustive()
    }
}

impl JobTransaction for Open {
    fn lend(&mut self) -> Option<Box<dyn Any + Send>> {
        if std::mem::replace(&mut self.lent, true) {
            return None;
        }
        let connection = Arc::clone(self.connection.as_ref()?);
        Some(Box::new(Transaction { connection }))
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Committed> {
        Box::pin(async move {
            let Some(connection) = self.taken_back() else {
                let problem = "the handler returned and something that it left behind still holds its transaction; \
                               end what it started before it returns";
                return Committed::Refused(Error::invalid("transaction", &self.marker, problem));
            };
            let (worker, receipt) = (Uuid::from_bytes(*self.worker.as_bytes()), self.receipt);
            let (close_queues, close_claims) = self.claims.ending(self.worker, [receipt].into_iter());
            let claim = receipt.claim.get();
            let ended = self.settle(&connection, worker, receipt, claim, &close_queues, &close_claims).await;
            if matches!(ended, Committed::Applied | Committed::Stale) {
                self.claims.settled([receipt].into_iter(), &close_claims);
            }
            if matches!(ended, Committed::Unknown(_)) {
                // Whatever the server makes of it, nothing more comes over this connection.
                connection.cancel(&self.store);
            } else {
                self.store.transactions.give_back(connection);
            }
            ended
        })
    }

    fn roll_back(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(connection) = self.taken_back() else { return };
            let answer = timeout(ROLLBACK_PATIENCE, connection.client.batch_execute("rollback")).await;
            match answer {
                Ok(Ok(())) => self.store.transactions.give_back(connection),
                Ok(Err(_)) => {}
                // A statement of the handler still runs.
                Err(_) => connection.cancel(&self.store),
            }
        })
    }
}

impl Open {
    /// The connection, if nobody else holds it. Otherwise it is closed, which rolls back.
    fn taken_back(&mut self) -> Option<Connection> {
        match Arc::try_unwrap(self.connection.take()?) {
            Ok(connection) => Some(connection),
            Err(shared) => {
                shared.cancel(&self.store);
                shared.link.task.abort();
                None
            }
        }
    }

    /// Verdict and commit are on their way together: the job's row is locked for no longer than the server needs for
    /// both. A commit after a verdict that was refused is a rollback.
    async fn settle(
        &self,
        connection: &Connection,
        worker: Uuid,
        receipt: Receipt,
        claim: i64,
        close_queues: &[i32],
        close_claims: &[i64],
    ) -> Committed {
        let refused = |fault: Fault| self.store.error(fault, "commit a handler's transaction");
        let lost = || {
            if connection.link.ended.get().is_some_and(|code| code == "25P03") {
                let problem = "it lay idle for ten minutes and was ended by the server; wait for slow things before the \
                               first statement";
                return Committed::Refused(Error::invalid("transaction", &self.marker, problem));
            }
            Committed::Unknown(refused(Fault::Refused(Error::Unavailable {
                store: self.store.options.shown.clone(),
                operation: "commit a handler's transaction",
                source: "the connection was lost".into(),
            })))
        };
        if connection.client.is_closed() {
            return lost();
        }
        let Receipt { queue, lane, seq, .. } = receipt;
        let statement = Statement::SettleIn;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [&worker, &queue, &claim, &lane, &seq, &self.marker, &close_queues, &close_claims];
        let typed: Vec<_> = values.into_iter().zip(statement.types().iter().cloned()).collect();
        let run = async {
            tokio::join!(
                connection.client.query_typed(self.store.text(statement), &typed),
                connection.client.batch_execute("commit")
            )
        };
        let deadline = self.store.options.deadline;
        let Ok((settled, committed)) = timeout(deadline, run).await else {
            return Committed::Unknown(refused(Fault::Late(deadline)));
        };
        let Err(error) = settled.map(drop).and(committed) else { return Committed::Applied };
        if error.as_db_error().is_none() {
            return lost();
        }
        match Fault::from(error) {
            Fault::Stale => Committed::Stale,
            fault if fault.spoils_the_connection() => Committed::Unknown(refused(fault)),
            fault => Committed::Refused(refused(fault)),
        }
    }
}

impl Connection {
    /// Tells the server to stop what runs on it. Best effort, through a connection of its own.
    fn cancel(&self, store: &Store) {
        let (token, tls) = (self.client.cancel_token(), store.tls.clone());
        tokio::spawn(async move {
            let _ = timeout(Duration::from_secs(5), token.cancel_query(tls)).await;
        });
    }
}
