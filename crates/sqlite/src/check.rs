//! The proof of the invariants on a live store.

use std::collections::HashMap;

use celeriac_core::{CheckReport, Room, Violation, WorkerId};
use rusqlite::Connection;
use uuid::Uuid;

use crate::fault::Fault;
use crate::inspect::{Holders, queue_name};
use crate::lease::retire;
use crate::settle::unadopt;
use crate::state::{ADOPTED, QueueState, SUSPECTS, parts};
use crate::transaction::Transaction;

/// At most this many violations of one kind are listed; what is broken once is often broken a million times.
const MAX_LISTED: usize = 100;

const PLACE: &str = "a job in `jobs` is after the cursor, in a hole, or in one open claim";
const ONE_ROOM: &str = "a job is in exactly one room";
const COUNTERS: &str = "a queue's counters agree with its jobs";

const ORPHAN: &str = "a claim's worker is registered";

/// Whether a violation keeps a job from ever being handed out.
pub(crate) fn breaks_a_place(violation: &Violation) -> bool {
    violation.invariant == ORPHAN
        || (violation.invariant == PLACE && violation.detail.ends_with("is nowhere"))
}

/// What is where, as counted row by row.
#[derive(Default)]
struct Counted {
    ready: i64,
    suspects: i64,
    held: i64,
    scheduled: i64,
    parked: i64,
    dead: i64,
}

/// Looks at every job in one read transaction, on a connection that is in none.
pub(crate) fn check(connection: &Connection) -> Result<CheckReport, Fault> {
    connection.execute_batch("begin")?;
    let report = check_within(connection);
    connection.execute_batch("rollback")?;
    report
}

/// Looks at every job in the transaction that the connection is in.
pub(crate) fn check_within(connection: &Connection) -> Result<CheckReport, Fault> {
    Ok(look(connection)?.0)
}

/// What is broken, and the keys of the jobs that nothing leads to.
fn look(connection: &Connection) -> Result<(CheckReport, Vec<i64>), Fault> {
    let mut report = CheckReport::default();
    let mut stray = Vec::new();
    let damage: Vec<String> = connection
        .prepare("pragma quick_check(20)")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for problem in damage.into_iter().filter(|line| line != "ok") {
        report.violations.push(Violation::new("the file is sound", problem));
    }
    let mut queues: HashMap<i32, (QueueState, Counted)> = HashMap::new();
    let numbers: Vec<i32> = connection
        .prepare("select queue from queues")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for queue in numbers {
        queues.insert(queue, (QueueState::load(connection, queue)?, Counted::default()));
    }
    check_claims(connection, &mut report)?;
    let holders = Holders::load(connection)?;
    check_places(connection, &holders, &mut queues, &mut report, &mut stray)?;
    check_rooms(connection, &mut queues, &mut report)?;
    compare_counters(connection, &queues, &mut report)?;
    Ok((report, stray))
}

/// Claims overlap nowhere, belong to registered workers, and name jobs that exist.
fn check_claims(connection: &Connection, report: &mut CheckReport) -> Result<(), Fault> {
    let orphans: Vec<i64> = connection
        .prepare(
            "select claim from claims where not exists \
             (select 1 from workers where workers.worker = claims.worker) limit 100",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for claim in orphans {
        report.violations.push(Violation::new(ORPHAN, format!("claim {claim}")));
    }
    let holders = Holders::load(connection)?;
    let mut last = -1;
    let mut exists = connection.prepare("select count(*) from jobs where key between ?1 and ?2")?;
    for range in holders.ranges() {
        if range.low <= last {
            let detail = format!("key {} is in two claims", range.low);
            report.violations.push(Violation::new("a job is in at most one open claim", detail));
        }
        last = last.max(range.high);
        let found: i64 = exists.query_row([range.low, range.high], |row| row.get(0))?;
        let missing = range.high - range.low + 1 - found;
        if missing > 0 {
            let detail = format!("{missing} of keys {} to {} are gone", range.low, range.high);
            report.violations.push(Violation::new("a claim names jobs that exist", detail));
        }
    }
    Ok(())
}

fn check_places(
    connection: &Connection,
    holders: &Holders,
    queues: &mut HashMap<i32, (QueueState, Counted)>,
    report: &mut CheckReport,
    stray: &mut Vec<i64>,
) -> Result<(), Fault> {
    let held: Vec<_> = holders.ranges().collect();
    let mut statement = connection.prepare(
        "select key, iif(typeof(priority) = 'integer' and priority between 0 and 9, priority, 0), \
         typeof(id) = 'blob' and length(id) = 16 and typeof(task) = 'text' and task <> '' \
         and typeof(payload) = 'blob' and typeof(extras) = 'blob' \
         and typeof(attempt) = 'integer' and attempt between 0 and 4294967295 \
         and typeof(deliveries) = 'integer' and deliveries between 0 and 4294967295 \
         and typeof(priority) = 'integer' and priority between 0 and 9 from jobs order by key",
    )?;
    let mut rows = statement.query([])?;
    let mut at = 0;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let priority: u8 = row.get(1)?;
        report.jobs += 1;
        if !row.get::<_, bool>(2)? {
            list(report, "a job's record is sound", format!("key {key}: a claim will move it to the bin"));
        }
        let (queue, lane, seq) = parts(key);
        let Some((state, counted)) = queues.get_mut(&queue) else {
            list(report, "a job's queue exists", format!("key {key} is of queue {queue}"));
            continue;
        };
        while held.get(at).is_some_and(|range| range.high < key) {
            at += 1;
        }
        let is_held = held.get(at).is_some_and(|range| range.low <= key);
        let is_ready = state.is_ready(key);
        if lane < SUSPECTS && lane != priority {
            list(report, "a job is in the lane of its priority", format!("key {key}: priority {priority}"));
        }
        if lane > ADOPTED || seq >= state.lanes[usize::from(lane.min(ADOPTED))].next {
            list(report, "a job's number was given out", format!("key {key}"));
        }
        match (is_ready, is_held) {
            (true, false) => {
                counted.ready += 1;
                counted.suspects += i64::from(lane == SUSPECTS);
            }
            (false, true) => counted.held += 1,
            (true, true) => list(report, PLACE, format!("key {key} is ready and held")),
            (false, false) => {
                list(report, PLACE, format!("key {key} is nowhere"));
                stray.push(key);
            }
        }
    }
    Ok(())
}

fn check_rooms(
    connection: &Connection,
    queues: &mut HashMap<i32, (QueueState, Counted)>,
    report: &mut CheckReport,
) -> Result<(), Fault> {
    let rooms = [
        (Room::Scheduled, "select queue, count(*) from scheduled group by queue"),
        (Room::Parked, "select queue, count(*) from parked group by queue"),
        (Room::Dead, "select queue, count(*) from dead group by queue"),
    ];
    for (room, sql) in rooms {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (queue, jobs): (i32, i64) = (row.get(0)?, row.get(1)?);
            report.jobs += u64::try_from(jobs).unwrap_or(0);
            match queues.get_mut(&queue) {
                Some((_, counted)) => match room {
                    Room::Scheduled => counted.scheduled = jobs,
                    Room::Parked => counted.parked = jobs,
                    _ => counted.dead = jobs,
                },
                None => list(
                    report,
                    "a job's queue exists",
                    format!("{jobs} jobs in {room} are of queue {queue}"),
                ),
            }
        }
    }
    let twice = [
        "select lower(hex(id)) from jobs group by id having count(*) > 1 limit 100",
        "select lower(hex(id)) from scheduled group by id having count(*) > 1 limit 100",
        "select lower(hex(id)) from parked group by id having count(*) > 1 limit 100",
        "select lower(hex(id)) from dead group by id having count(*) > 1 limit 100",
        "select lower(hex(s.id)) from scheduled s where exists (select 1 from jobs j where j.id = s.id) limit 100",
        "select lower(hex(p.id)) from parked p where exists (select 1 from jobs j where j.id = p.id) limit 100",
        "select lower(hex(d.id)) from dead d where exists (select 1 from jobs j where j.id = d.id) limit 100",
        "select lower(hex(p.id)) from parked p where exists (select 1 from scheduled s where s.id = p.id) limit 100",
        "select lower(hex(d.id)) from dead d where exists (select 1 from scheduled s where s.id = d.id) limit 100",
        "select lower(hex(d.id)) from dead d where exists (select 1 from parked p where p.id = d.id) limit 100",
    ];
    for sql in twice {
        let ids: Vec<String> =
            connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for id in ids {
            list(report, ONE_ROOM, format!("job {id} is stored twice"));
        }
    }
    Ok(())
}

fn compare_counters(
    connection: &Connection,
    queues: &HashMap<i32, (QueueState, Counted)>,
    report: &mut CheckReport,
) -> Result<(), Fault> {
    for (queue, (state, counted)) in queues {
        let kept = &state.counts;
        let pairs = [
            ("ready", kept.ready, counted.ready),
            ("suspects", kept.suspects, counted.suspects),
            ("held", kept.held, counted.held),
            ("scheduled", kept.scheduled, counted.scheduled),
            ("parked", kept.parked, counted.parked),
            ("dead", kept.dead, counted.dead),
        ];
        for (name, kept, counted) in pairs {
            if kept != counted {
                let detail = format!(
                    "queue {}: {name} is kept as {kept}, counted {counted}",
                    queue_name(connection, *queue)?
                );
                list(report, COUNTERS, detail);
            }
        }
    }
    Ok(())
}

fn list(report: &mut CheckReport, invariant: &str, detail: String) {
    let listed = report.violations.iter().filter(|violation| violation.invariant == invariant).count();
    if listed < MAX_LISTED {
        report.violations.push(Violation::new(invariant, detail));
    }
}

/// Takes back what workers hold that are not registered, gives stray jobs back to their queues and sets
/// counters right: one write transaction, in which everything is looked at again.
pub(crate) fn repair(transaction: &mut Transaction<'_>) -> Result<CheckReport, Fault> {
    transaction.flush()?;
    let mut report = check_within(transaction.connection)?;
    let gone: Vec<[u8; 16]> = transaction
        .connection
        .prepare(
            "select distinct worker from claims where not exists \
             (select 1 from workers where workers.worker = claims.worker)",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for worker in gone {
        // As after a lost lease: what was acknowledged must not run again.
        retire(transaction, WorkerId::from_uuid(Uuid::from_bytes(worker)))?;
    }
    transaction.flush()?;
    let (_, stray) = look(transaction.connection)?;
    let mut places: HashMap<i32, Vec<i64>> = HashMap::new();
    for key in stray {
        let (queue, lane, _) = parts(key);
        if lane < ADOPTED {
            places.entry(queue).or_default().push(key);
        } else {
            // No claim looks for holes there.
            unadopt(transaction, queue, key)?;
        }
    }
    for (queue, keys) in places {
        transaction.queue_mut(queue)?.give_back(keys);
    }
    transaction.flush()?;
    recount(transaction)?;
    let left = check_within(transaction.connection)?.violations;
    for violation in &mut report.violations {
        violation.repaired = !left.contains(violation);
    }
    transaction.woke = true;
    Ok(report)
}

/// Sets the counters of every queue to what is there.
fn recount(transaction: &mut Transaction<'_>) -> Result<(), Fault> {
    let connection = transaction.connection;
    let numbers: Vec<i32> = connection
        .prepare("select queue from queues")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut queues: HashMap<i32, (QueueState, Counted)> = HashMap::new();
    for queue in &numbers {
        queues.insert(*queue, (QueueState::load(connection, *queue)?, Counted::default()));
    }
    let mut ignored = CheckReport::default();
    check_places(connection, &Holders::load(connection)?, &mut queues, &mut ignored, &mut Vec::new())?;
    check_rooms(connection, &mut queues, &mut ignored)?;
    for (queue, (_, counted)) in queues {
        let counts = &mut transaction.queue_mut(queue)?.counts;
        counts.ready = counted.ready;
        counts.suspects = counted.suspects;
        counts.held = counted.held;
        counts.scheduled = counted.scheduled;
        counts.parked = counted.parked;
        counts.dead = counted.dead;
    }
    transaction.flush()
}
