use celeriac_postgres::{PostgresBroker, grants, migration_sql};
use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::store::{Missing, Store};

/// Create the store, or take it to this program's schema version.
///
/// Workers and clients do the same when they connect. This command is for a deployment that wants it as a step
/// of its own, or whose services have no right to change a schema.
#[derive(Debug, Args)]
pub(crate) struct MigrateCommand {
    /// Change nothing; print the SQL that would be run
    #[arg(long)]
    dry_run: bool,
    /// Change nothing; print the SQL that gives a PostgreSQL role what services and workers need, and no more
    #[arg(long, value_name = "ROLE", conflicts_with = "dry_run")]
    grants: Option<String>,
}

/// What there is to do.
#[derive(Serialize)]
struct Plan {
    store: String,
    /// The schema version found, 0 for none, and this program's.
    from: i64,
    to: i64,
    /// Empty if there is nothing to do.
    sql: String,
}

/// Opening a store migrates it, under the store's lock; this command does nothing more.
pub(crate) async fn run(
    command: MigrateCommand,
    store: &Store,
    output: &mut Output,
) -> Result<Exit, Failure> {
    if let Some(role) = command.grants {
        return print_grants(&role, store, output);
    }
    let plan = Plan::of(store).await?;
    if command.dry_run {
        return plan.print(output);
    }
    let created = plan.from == 0;
    let broker = store.open(Missing::Create).await?;
    if output.is_json() {
        output.json(&serde_json::json!({ "store": broker.to_string(), "created": created }))?;
    } else if created {
        output.line(format_args!("{broker} created"))?;
    } else {
        output.line(format_args!("{broker} has the schema of this program"))?;
    }
    Ok(Exit::Done)
}

impl Plan {
    async fn of(store: &Store) -> Result<Self, Failure> {
        if let Some(options) = store.postgres()? {
            let from = PostgresBroker::schema_version(&options).await?;
            let to = PostgresBroker::SCHEMA_VERSION;
            let sql = if from < to {
                // As the program itself does it: whole or not at all, and without holding up others for long.
                format!(
                    "begin;\nset local lock_timeout = '10s';\n\n{}\ncommit;\n",
                    migration_sql(&options, from)
                )
            } else {
                String::new()
            };
            return Ok(Self { store: options.to_string(), from, to, sql });
        }
        let Some(options) = store.sqlite()? else {
            return Err(Failure::usage(format!("the schema of {} is not known", store.engine()?)));
        };
        let from = celeriac_sqlite::schema_version(&options)?;
        let sql = celeriac_sqlite::migration_sql(from);
        Ok(Self { store: options.to_string(), from, to: celeriac_sqlite::SCHEMA_VERSION, sql })
    }

    fn print(&self, output: &mut Output) -> Result<Exit, Failure> {
        if output.is_json() {
            output.json(self)?;
        } else if self.sql.is_empty() {
            output.line(format_args!("-- {} has schema version {}: nothing to do", self.store, self.from))?;
        } else {
            output
                .line(format_args!("-- {}: from schema version {} to {}", self.store, self.from, self.to))?;
            output.line(self.sql.trim_end())?;
        }
        Ok(Exit::Done)
    }
}

fn print_grants(role: &str, store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let Some(options) = store.postgres()? else {
        return Err(Failure::usage("--grants is for PostgreSQL: a file has no roles"));
    };
    if role.is_empty() || role.chars().any(char::is_control) {
        return Err(Failure::usage(format!("{role:?} is no name of a role")));
    }
    let sql = grants(&options, role);
    if output.is_json() {
        output.json(&serde_json::json!({ "store": options.to_string(), "role": role, "sql": sql }))?;
    } else {
        output.line(sql.trim_end())?;
    }
    Ok(Exit::Done)
}
