use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{Error, Result};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault::Fault;
use crate::options::{Pooler, PostgresOptions};
use crate::queues::Queues;
use crate::statement::{Statement, channel, lock_class};
use crate::transaction::Connections;

/// The values of a statement's parameters.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A store as this process reaches it: pools, statements, names.
pub(crate) struct Store {
    pub(crate) options: PostgresOptions,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) queues: Queues,
    pool: Pool,
    /// One connection for leases alone: a renewal must not wait behind the other calls of the process.
    leases: Pool,
    /// For the transactions of handlers.
    pub(crate) transactions: Connections,
    texts: Vec<String>,
}

/// A connection in use for one call. Unless its last statement came to its end, it is closed and not given back: a
/// future that is dropped half way must leave no transaction and no unread answer to the next user.
pub(crate) struct Session<'a> {
    store: &'a Store,
    object: Option<Object>,
    state: State,
    /// Of each statement.
    deadline: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between transactions.
    Idle,
    /// In a transaction of ours, or in the middle of a statement.
    Busy,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn new(options: PostgresOptions) -> Result<Self> {
        let tls = crate::tls::connector(&options)?;
        let pool = |size: usize| {
            let config = session_config(&options.config, options.pooler, options.deadline);
            let manager = Manager::from_config(
                config,
                tls.clone(),
                ManagerConfig { recycling_method: RecyclingMethod::Fast },
            );
            Pool::builder(manager)
                .max_size(size)
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(options.deadline))
                // The driver's own time-out covers the TCP connection alone, not TLS and authentication.
                .create_timeout(Some(options.deadline.min(Duration::from_secs(10))))
                .recycle_timeout(Some(Duration::from_secs(5)))
                .build()
                .map_err(|error| Error::UnsupportedUrl {
                    url: options.shown.clone(),
                    problem: error.to_string(),
                })
        };
        let texts = Statement::TEXTS.iter().map(|text| render(text, &options.schema)).collect();
        Ok(Self {
            pool: pool(options.pool_size)?,
            leases: pool(1)?,
            transactions: Connections::new(options.transactions),
            tls: tls.clone(),
            queues: Queues::default(),
            texts,
            options,
        })
    }

    pub(crate) fn text(&self, statement: Statement) -> &str {
        &self.texts[statement as usize]
    }

    /// Runs one statement on any connection, again if it collided with a neighbour.
    pub(crate) async fn query(
        &self,
        operation: &'static str,
        statement: Statement,
        values: Values<'_>,
    ) -> Result<Vec<Row>> {
        self.try_query(statement, values).await.map_err(|fault| self.error(fault, operation))
    }

    /// As [`Store::query`], for callers that know what a refusal means.
    pub(crate) async fn try_query(
        &self,
        statement: Statement,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let mut attempts = 0;
        loop {
            let mut session = self.session().await?;
            match session.query(statement, values).await {
                Err(fault) if fault.is_collision() && attempts < 3 => attempts += 1,
                answer => return answer,
            }
        }
    }

    /// Runs one statement on the connection that is kept for leases.
    pub(crate) async fn query_lease(
        &self,
        operation: &'static str,
        statement: Statement,
        values: Values<'_>,
    ) -> Result<Vec<Row>> {
        let run = async {
            let object = self.leases.get().await?;
            self.session_on(object).query(statement, values).await
        };
        run.await.map_err(|fault| self.error(fault, operation))
    }

    pub(crate) async fn session(&self) -> Result<Session<'_>, Fault> {
        let object = self.pool.get().await?;
        Ok(self.session_on(object))
    }

    const fn session_on(&self, object: Object) -> Session<'_> {
        Session { store: self, object: Some(object), state: State::Idle, deadline: self.options.deadline }
    }

    /// Runs one statement that looks at every job, in a look of its own: it takes as long as the store is large.
    pub(crate) async fn query_whole(
        &self,
        operation: &'static str,
        statement: Statement,
    ) -> Result<Vec<Row>> {
        let run = async {
            let mut session = self.session().await?;
            session.begin_whole().await?;
            let rows = session.query(statement, &[]).await?;
            session.commit().await?;
            Ok::<_, Fault>(rows)
        };
        run.await.map_err(|fault| self.error(fault, operation))
    }

    pub(crate) fn error(&self, fault: Fault, operation: &'static str) -> Error {
        fault.into_error(&self.options.shown, operation)
    }

    /// Forgets all prepared statements: after a migration they may be of another shape.
    pub(crate) fn clear_statements(&self) {
        self.pool.manager().statement_caches.clear();
        self.leases.manager().statement_caches.clear();
    }

    /// Closes connections that lead nowhere any more: to a server that was shut down, or is no primary now.
    fn drop_connections(&self) {
        self.pool.retain(|_, _| false);
        self.leases.retain(|_, _| false);
        self.transactions.clear();
    }
}

impl Session<'_> {
    /// Runs one statement within the deadline.
    pub(crate) async fn query(
        &mut self,
        statement: Statement,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let deadline = self.deadline;
        let before = self.state;
        self.state = State::Busy;
        let Some(object) = &self.object else { return Err(Fault::Late(deadline)) };
        let text = self.store.text(statement);
        let run = async {
            match self.store.options.pooler {
                Pooler::None => {
                    let prepared = object.prepare_typed_cached(text, statement.types()).await?;
                    object.query(&prepared, values).await
                }
                Pooler::Transaction => {
                    let typed: Vec<_> =
                        values.iter().copied().zip(statement.types().iter().cloned()).collect();
                    object.query_typed(text, &typed).await
                }
            }
        };
        // The server gives up at the deadline; this program waits a little longer for its answer.
        let answer = match timeout(deadline + Duration::from_millis(500), run).await {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => Err(Fault::Late(deadline)),
        };
        let fault = match answer {
            Ok(rows) => {
                self.state = match statement {
                    Statement::Begin | Statement::BeginSnapshot => State::Busy,
                    Statement::Commit => State::Idle,
                    _ => before,
                };
                return Ok(rows);
            }
            Err(fault) => fault,
        };
        if matches!(fault, Fault::Late(_)) {
            self.cancel();
        }
        if fault.spoils_the_connection() {
            self.close();
            if fault.spoils_the_pool() {
                self.store.drop_connections();
            }
        } else if before == State::Idle {
            self.state = State::Idle;
        }
        Err(match fault {
            Fault::Driver(error) if error.code().is_some_and(|code| code.code() == "57014") => {
                Fault::Late(deadline)
            }
            fault => fault,
        })
    }

    /// Runs text of several statements without parameters.
    pub(crate) async fn batch(&mut self, text: &str, deadline: Duration) -> Result<(), Fault> {
        self.state = State::Busy;
        let Some(object) = &self.object else { return Err(Fault::Late(deadline)) };
        match timeout(deadline, object.batch_execute(text)).await {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => {
                self.cancel();
                self.close();
                Err(Fault::Late(deadline))
            }
        }
    }

    /// Says that the connection is between transactions again.
    pub(crate) const fn settled(&mut self) {
        self.state = State::Idle;
    }

    pub(crate) async fn begin(&mut self) -> Result<(), Fault> {
        self.query(Statement::Begin, &[]).await.map(drop)
    }

    /// Begins a look at everything, of one instant: a live store changes between two statements.
    pub(crate) async fn begin_whole(&mut self) -> Result<(), Fault> {
        self.query(Statement::BeginSnapshot, &[]).await?;
        self.deadline = self.deadline.max(WHOLE);
        // In this transaction alone, so it holds behind a pooler too.
        let text = format!("set local statement_timeout = {}", self.deadline.as_millis());
        self.batch(&text, self.store.options.deadline).await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        self.query(Statement::Commit, &[]).await.map(drop)
    }

    /// Tells the server to stop, through a connection of its own. Best effort: it has its deadline too.
    fn cancel(&self) {
        let Some(object) = &self.object else { return };
        let (token, tls) = (object.cancel_token(), self.store.tls.clone());
        tokio::spawn(async move {
            let _ = timeout(Duration::from_secs(5), token.cancel_query(tls)).await;
        });
    }

    fn close(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.state == State::Busy {
            self.close();
        }
    }
}

/// The deadline of a look at every job. Half an hour is a hundred million of them; the look of a person who gave up should
/// not hold back vacuum for ever.
const WHOLE: Duration = Duration::from_secs(30 * 60);

/// What every session of ours needs, whatever the database, the role or the URL set. A transaction pooler takes no
/// session settings; there the functions check what they depend on.
pub(crate) fn session_config(config: &Config, pooler: Pooler, deadline: Duration) -> Config {
    let mut config = config.clone();
    if pooler == Pooler::None {
        let given = config.get_options().unwrap_or_default();
        let settings = format!(
            "{given} -c default_transaction_isolation=read\\ committed -c statement_timeout={} \
             -c idle_in_transaction_session_timeout=60000 -c client_min_messages=warning \
             -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
            deadline.as_millis()
        );
        config.options(settings.trim());
    }
    config
}

/// A text of ours with the schema's names in it.
pub(crate) fn render(text: &str, schema: &str) -> String {
    /// Plans are pinned: the planner takes the hot tables for empty and picks what is fast for zero rows. Without JIT,
    /// since the price of a scan that is switched off would start the compiler.
    const PINNED: &str = "set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off \
        set enable_mergejoin = off set max_parallel_workers_per_gather = 0 set jit = off \
        set plan_cache_mode = force_generic_plan";
    text.replace("@pinned", PINNED)
        .replace("@class", &lock_class(schema).to_string())
        .replace("@max_holes", "500")
        .replace("@channel", &channel(schema))
        .replace("@.", &format!("\"{schema}\"."))
}

/// A duration as the store takes it.
pub(crate) fn micros(duration: Duration) -> i64 {
    /// Ten thousand years: past it an instant could leave the range of a timestamp.
    const LONGEST: i64 = 315_360_000_000_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

/// Shared by the broker and its background tasks.
pub(crate) type SharedStore = Arc<Store>;

impl Session<'_> {
    /// Whether something is there; for the few questions that are asked before the schema is known to be.
    pub(crate) async fn exists(&self, question: &str, name: &str) -> Result<bool, Fault> {
        let Some(object) = &self.object else { return Err(Fault::Late(self.store.options.deadline)) };
        let rows = object.query_typed(question, &[(&name, tokio_postgres::types::Type::TEXT)]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// One number.
    pub(crate) async fn number(&self, question: &str) -> Result<i64, Fault> {
        let Some(object) = &self.object else { return Err(Fault::Late(self.store.options.deadline)) };
        let rows = object.query_typed(question, &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }
}
