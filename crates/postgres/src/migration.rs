use std::time::Duration;

use celeriac_core::{Error, Result};

use crate::fault::Fault;
use crate::options::PostgresOptions;
use crate::statement::{Statement, lock_class};
use crate::store::{Session, Store, render};

/// One step of the schema. Steps only add; a program of the version before goes on working beside the next.
struct Migration {
    version: i64,
    name: &'static str,
    parts: &'static [&'static str],
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "claims ledger",
        parts: &[
            include_str!("../sql/0001_tables.sql"),
            include_str!("../sql/0002_queues.sql"),
            include_str!("../sql/0003_enqueue.sql"),
            include_str!("../sql/0004_claim.sql"),
            include_str!("../sql/0005_settle.sql"),
            include_str!("../sql/0006_duties.sql"),
            include_str!("../sql/0007_inspect.sql"),
            "select @.declare_queue('default');\n",
        ],
    },
    Migration {
        version: 2,
        name: "transactions of handlers",
        parts: &[include_str!("../sql/0008_transactions.sql")],
    },
    Migration { version: 3, name: "upkeep", parts: &[include_str!("../sql/0009_upkeep.sql")] },
    Migration { version: 4, name: "samples", parts: &[include_str!("../sql/0010_sample.sql")] },
    Migration { version: 5, name: "history", parts: &[include_str!("../sql/0011_history.sql")] },
];

/// The newest schema that this program knows.
pub(crate) const SUPPORTED: i64 = 5;

/// The oldest program that works with the newest schema: the one that knew this version. It changes when a step takes
/// something away, which must not happen while such programs run.
const OLDEST: i64 = 1;

/// How long a step waits for others who use the tables; they would wait behind it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A whole migration takes seconds; this ends one that hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// The SQL that brings a schema of version `from` (0: there is none) to the newest, for `celeriac migrate --dry-run`
/// and for those who run it by hand.
pub fn migration_sql(options: &PostgresOptions, from: i64) -> String {
    let schema = &options.schema;
    let mut text = String::new();
    if from == 0 {
        text.push_str(&render(
            &format!(
                "create schema if not exists \"{schema}\";\n\
                 create table @.migrations (version bigint primary key, name text not null, at timestamptz not null default now());\n\n"
            ),
            schema,
        ));
    }
    for step in MIGRATIONS.iter().filter(|step| step.version > from) {
        for part in step.parts {
            text.push_str(&render(part, schema));
            text.push('\n');
        }
        text.push_str(&format!(
            "insert into \"{schema}\".migrations (version, name) values ({}, '{}');\n",
            step.version, step.name
        ));
    }
    if from < SUPPORTED {
        text.push_str(&format!(
            "update \"{schema}\".migrations set oldest = {OLDEST} where version = {SUPPORTED};\n"
        ));
    }
    text
}

/// SQL that gives `role` what a service and a worker need and no more: it cannot change the schema. Run it as the
/// schema's owner, once; queues that are declared later are covered.
pub fn grants(options: &PostgresOptions, role: &str) -> String {
    let schema = format!("\"{}\"", options.schema);
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    format!(
        "grant usage on schema {schema} to {role};\n\
         grant select, insert, update, delete on all tables in schema {schema} to {role};\n\
         revoke insert, update, delete on {schema}.migrations from {role};\n\
         grant usage, select on all sequences in schema {schema} to {role};\n\
         grant execute on all functions in schema {schema} to {role};\n\
         alter default privileges in schema {schema} grant select, insert, update, delete on tables to {role};\n\
         alter default privileges in schema {schema} grant usage, select on sequences to {role};\n\
         alter default privileges in schema {schema} grant execute on functions to {role};\n"
    )
}

impl Store {
    /// The version of the schema; 0 if there is none.
    pub(crate) async fn schema_version(&self) -> Result<i64> {
        let version = async {
            let session = self.session().await?;
            version(&session, &self.options.schema).await
        };
        version.await.map_err(|fault| self.error(fault, "read the schema's version"))
    }

    /// Refuses a schema that this program cannot work with.
    pub(crate) async fn judge_version(&self, found: i64) -> Result<()> {
        if found > SUPPORTED {
            let oldest = self.query("read the schema's version", Statement::OldestProgram, &[]).await?;
            let oldest = oldest.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(found);
            if oldest <= SUPPORTED {
                tracing::info!(
                    schema = %self.options.schema, found, supported = SUPPORTED,
                    "the schema is newer than this program and serves it too"
                );
                return Ok(());
            }
            return Err(Error::SchemaTooNew {
                store: self.options.shown.clone(),
                found,
                supported: SUPPORTED,
            });
        }
        if found < SUPPORTED {
            return Err(Error::NotAStore {
                store: self.options.shown.clone(),
                problem: format!(
                    "schema {} has version {found} and this program needs {SUPPORTED}; run `celeriac migrate`",
                    self.options.schema
                ),
            });
        }
        Ok(())
    }

    /// Brings the schema to the newest version. Of several who try at once one does it and the others wait.
    pub(crate) async fn migrate(&self) -> Result<()> {
        let found = self.schema_version().await?;
        if found >= SUPPORTED {
            return self.judge_version(found).await;
        }
        let run = async {
            let mut session = self.session().await?;
            let open = format!(
                "begin isolation level read committed; set local lock_timeout = {}; set local statement_timeout = {}; \
                 select pg_advisory_xact_lock({}, -1)",
                LOCK_TIMEOUT.as_millis(),
                DEADLINE.as_millis(),
                lock_class(&self.options.schema),
            );
            session.batch(&open, DEADLINE).await?;
            let found = version(&session, &self.options.schema).await?;
            if found < SUPPORTED {
                let mut text = migration_sql(&self.options, found);
                if found == 0 && schema_exists(&session, &self.options.schema).await? {
                    // `create … if not exists` asks for the right to create even where nothing is to be made.
                    text = text.split_once(";\n").map(|(_, rest)| rest.to_owned()).unwrap_or(text);
                }
                session.batch(&text, DEADLINE).await?;
            }
            session.batch("commit", DEADLINE).await?;
            session.settled();
            Ok::<_, Fault>(found)
        };
        let found = run.await.map_err(|fault| self.error(fault, "migrate the schema"))?;
        if found < SUPPORTED {
            tracing::info!(schema = %self.options.schema, from = found, to = SUPPORTED, "migrated");
        }
        self.clear_statements();
        self.judge_version(found.max(SUPPORTED)).await
    }
}

async fn version(session: &Session<'_>, schema: &str) -> Result<i64, Fault> {
    let table = format!("\"{schema}\".migrations");
    // Not `to_regclass`: it answers from the session's cache, and whoever has just waited for another's migration would
    // be told that there is no such schema. A query of the catalogue locks it, and so hears of what was committed.
    let made = "select exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                where n.nspname = $1 and c.relname = 'migrations')";
    if !session.exists(made, schema).await? {
        return Ok(0);
    }
    session.number(&format!("select coalesce(max(version), 0) from {table}")).await
}

async fn schema_exists(session: &Session<'_>, schema: &str) -> Result<bool, Fault> {
    session.exists("select exists (select 1 from pg_namespace where nspname = $1)", schema).await
}
