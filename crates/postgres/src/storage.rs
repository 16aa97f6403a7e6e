use std::time::Duration;

use celeriac_core::{CheckReport, Result, format_duration};
use tokio_postgres::Row;

use crate::broker::PostgresBroker;
use crate::row::total;
use crate::statement::Statement;

/// A transaction that is younger and has seen fewer others holds nothing up.
const OLD: Duration = Duration::from_secs(30);
const MANY_TRANSACTIONS: i64 = 50_000;

/// Fewer dead rows are what a busy table has.
const MANY_DEAD_ROWS: i64 = 100_000;

impl PostgresBroker {
    /// Says what the server's storage suffers from, and what a confirmed job has survived.
    pub(crate) async fn note_server(&self, report: &mut CheckReport) -> Result<()> {
        let rows = self.store.query("check the store", Statement::ServerFacts, &[]).await?;
        if let Some(row) = rows.first() {
            self.note_durability(row, report).await?;
        }
        let schema = &self.store.options.schema;
        for row in self.store.query("check the store", Statement::HeldBack, &[]).await? {
            report.notes.extend(held_back(&row));
        }
        for row in self.store.query("check the store", Statement::DeadRows, &[schema]).await? {
            let (table, dead, live, bytes): (&str, i64, i64, i64) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            let vacuumed = match row.get::<_, Option<i64>>(4) {
                Some(seconds) => {
                    format!("vacuumed {} ago", format_duration(Duration::from_secs(total(seconds))))
                }
                None => "never vacuumed".to_owned(),
            };
            if dead >= MANY_DEAD_ROWS {
                report.notes.push(format!(
                    "table {schema}.{table} has {dead} dead rows beside {live} live ones in {} MiB, and was {vacuumed}: \
                     look for what holds vacuum back, or whether autovacuum is off",
                    bytes / (1024 * 1024)
                ));
            }
        }
        Ok(())
    }

    async fn note_durability(&self, row: &Row, report: &mut CheckReport) -> Result<()> {
        let (version, fsync, commit, standbys): (&str, &str, &str, &str) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let (sees_all, autovacuum): (bool, &str) = (row.get(5), row.get(6));
        report.notes.push(format!("PostgreSQL {version}, schema {}", self.store.options.schema));
        let replicas = self.store.query("check the store", Statement::Replicas, &[]).await?;
        let synchronous: Vec<String> = replicas
            .iter()
            .filter(|row| matches!(row.get::<_, &str>(1), "sync" | "quorum"))
            .map(|row| row.get::<_, String>(0))
            .collect();
        if fsync == "off" || commit == "off" {
            report.notes.push(format!(
                "fsync is {fsync} and synchronous_commit {commit}: a crash of the server can lose what was confirmed"
            ));
        } else if standbys.is_empty() || commit == "local" {
            report.notes.push(format!(
                "what is confirmed is on this server's disk (synchronous_commit = {commit}) and on no synchronous \
                 replica: a fail-over to another machine can lose what was confirmed last; to change that set \
                 synchronous_standby_names"
            ));
        } else if synchronous.is_empty() {
            report.notes.push(format!(
                "synchronous_standby_names is {standbys:?} and no such replica is connected: commits wait until one is"
            ));
        } else {
            report.notes.push(format!(
                "what is confirmed is on this server's disk and on a synchronous replica ({}; synchronous_commit = \
                 {commit}): a fail-over to it loses nothing",
                synchronous.join(", ")
            ));
        }
        if autovacuum == "off" {
            report.notes.push("autovacuum is off: dead rows pile up until somebody runs vacuum".to_owned());
        }
        if !sees_all {
            report.notes.push(
                "sessions of other roles cannot be seen, and one of them may hold vacuum back: grant \
                 pg_read_all_stats to this role to have them named"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// From `kind, name, detail, seconds, transactions`: what keeps dead rows from being removed.
fn held_back(row: &Row) -> Option<String> {
    let (kind, name, detail): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    let age = row.get::<_, Option<i64>>(3).map(|seconds| Duration::from_secs(total(seconds)));
    let transactions = row.get::<_, Option<i64>>(4).unwrap_or(0);
    if age.is_none_or(|age| age < OLD) && transactions < MANY_TRANSACTIONS {
        return None;
    }
    let age = age.map(|age| format!(" for {}", format_duration(age))).unwrap_or_default();
    let (what, remedy) = match kind {
        "session" => ("the open transaction of session", "end it with select pg_terminate_backend(…)"),
        "slot" => {
            ("replication slot", "let its consumer catch up, or drop it with pg_drop_replication_slot(…)")
        }
        "prepared" => ("prepared transaction", "commit or roll back prepared what nobody finishes"),
        _ => ("a query on replica", "end it there, or turn hot_standby_feedback off"),
    };
    Some(format!(
        "{what} {name} ({detail}) holds back vacuum{age}, {transactions} transactions: dead rows cannot be removed; {remedy}"
    ))
}
