use celeriac_core::{Declared, Error, Paused, QueueChange, QueueName, QueueSettings, TaskInfo};
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::state::{MAX_QUEUES, QueueState, settings_text};
use crate::transaction::Transaction;

pub(crate) fn declare(
    transaction: &mut Transaction<'_>,
    name: &QueueName,
    change: &QueueChange,
) -> Result<Declared, Fault> {
    let Some(queue) = transaction.number(name)? else {
        let settings = change.apply(QueueSettings::default())?;
        let queue = declare_number(transaction, name, &settings)?;
        pause(transaction, queue, change.paused)?;
        return Ok(Declared::Created);
    };
    let settings = change.apply(transaction.queue(queue)?.settings.clone())?;
    if settings != transaction.queue(queue)?.settings {
        transaction
            .connection
            .prepare_cached("update queues set settings = ?2 where queue = ?1")?
            .execute(params![queue, settings_text(&settings)])?;
        transaction.reload(queue)?;
    }
    pause(transaction, queue, change.paused)?;
    Ok(Declared::Existed)
}

fn pause(transaction: &mut Transaction<'_>, queue: i32, paused: Option<Paused>) -> Result<(), Fault> {
    let Some(paused) = paused else { return Ok(()) };
    transaction
        .connection
        .prepare_cached("update queues set paused = ?2 where queue = ?1")?
        .execute(params![queue, paused == Paused::Yes])?;
    transaction.reload(queue)?;
    // Whoever waits for a queue that goes on again must look.
    transaction.woke = true;
    Ok(())
}

/// Adds a queue that is not there and returns its number.
pub(crate) fn declare_number(
    transaction: &Transaction<'_>,
    name: &QueueName,
    settings: &QueueSettings,
) -> Result<i32, Fault> {
    let queue: i32 =
        transaction
            .connection
            .query_row("select coalesce(max(queue), 0) + 1 from queues", [], |row| row.get(0))?;
    if queue >= MAX_QUEUES {
        return Err(Error::invalid(
            "queue",
            name.as_str(),
            format!(
                "a store holds at most {} queues; put what tells them apart into the arguments",
                MAX_QUEUES - 1
            ),
        )
        .into());
    }
    QueueState::new(settings).insert(transaction.connection, queue, name)?;
    Ok(queue)
}

/// Every task that a worker ever announced.
pub(crate) fn tasks(connection: &Connection) -> Result<Vec<TaskInfo>, Fault> {
    let infos: Vec<String> = connection
        .prepare_cached("select info from tasks order by name")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    infos
        .iter()
        .map(|info| {
            serde_json::from_str(info)
                .map_err(|error| Error::corrupt("a task's description", error.to_string()).into())
        })
        .collect()
}
