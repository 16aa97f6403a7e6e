use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use celeriac_core::{
    Attempt, AttemptKind, BulkAct, BulkOptions, Details, Error, Failure, Filter, Finished, JobId, OnExpire,
    Overflow, Page, PageOptions, Paused, QueueChange, QueueName, QueueSettings, QueueStats, Result, Room,
    Stats, TaskName, WorkerId, WorkerStats,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::fault::Fault;
use crate::row::{instant, job, limit, total};
use crate::statement::Statement;
use crate::store::micros;

/// A filter on the text of errors is applied here, to pages of this size, until the page that was asked for is full.
const SCAN: usize = 1_000;

/// Lanes of a queue.
const LANES: i16 = 12;

/// A job with what an act on it needs: its place in `jobs`, or its number in another room.
struct Found {
    details: Details,
    key: Key,
}

#[derive(Clone, Copy)]
enum Key {
    Number(i64),
    Place { queue: i32, lane: i16, seq: i64 },
}

/// Where a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    /// In the rooms that number their jobs.
    number: i64,
    /// In `jobs`: the last place of each stream that was passed.
    streams: BTreeMap<(i32, i16), i64>,
}

impl PostgresBroker {
    pub(crate) async fn find_job(&self, id: JobId) -> Result<Option<Details>> {
        // A job that moves between two looks into different rooms would be missed; the view is one look.
        let rows = self.store.query("find a job", Statement::Find, &[&id.as_uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(self.details(row).await?.details))
    }

    pub(crate) async fn finished_job(&self, id: JobId) -> Result<Option<Finished>> {
        let rows = self.store.query("look for a finished job", Statement::Finished, &[&id.as_uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let queue = self.store.queue_name(row.get(0)).await?;
        Ok(Some(Finished::new(id, queue, row.get(1), instant(row.get(2)))))
    }

    pub(crate) async fn list_page(&self, filter: &Filter, page: &PageOptions) -> Result<Page> {
        let wanted = page.checked_limit()?;
        let (found, next) = self.matching(filter, page.after.as_deref(), wanted, false).await?;
        Ok(Page::new(found.into_iter().map(|found| found.details).collect(), next))
    }

    pub(crate) async fn act_on(&self, filter: &Filter, act: &BulkAct, options: &BulkOptions) -> Result<Page> {
        let mut size = PageOptions::default();
        size.limit = options.limit;
        let wanted = size.checked_limit()?;
        let mut target = None;
        if let BulkAct::Replay { queue } = act {
            if filter.room != Room::Dead {
                return Err(Error::invalid(
                    "room",
                    filter.room.as_str(),
                    "only jobs in the room dead can be replayed",
                ));
            }
            if let Some(queue) = queue {
                target = Some(self.store.require_queue(queue).await?);
            }
        }
        let (found, next) = self.matching(filter, options.after.as_deref(), wanted, true).await?;
        match act {
            BulkAct::Nothing => {}
            BulkAct::Purge => self.purge(filter.room, &found).await?,
            BulkAct::Replay { .. } => self.replay(&found, target).await?,
            _ => return Err(Error::invalid("act", format!("{act:?}"), "this engine does not know it")),
        }
        Ok(Page::new(found.into_iter().map(|found| found.details).collect(), next))
    }

    async fn purge(&self, room: Room, found: &[Found]) -> Result<()> {
        let mut numbers = Vec::new();
        let mut places: BTreeMap<i32, (Vec<i16>, Vec<i64>)> = BTreeMap::new();
        for found in found {
            match found.key {
                Key::Number(number) => numbers.push(number),
                Key::Place { queue, lane, seq } => {
                    let (lanes, seqs) = places.entry(queue).or_default();
                    lanes.push(lane);
                    seqs.push(seq);
                }
            }
        }
        for (queue, (lanes, seqs)) in places {
            self.store.query("purge jobs", Statement::Pull, &[&queue, &lanes, &seqs, &"dropped"]).await?;
        }
        if !numbers.is_empty() {
            self.store.query("purge jobs", Statement::Purge, &[&room.as_str(), &numbers]).await?;
        }
        Ok(())
    }

    async fn replay(&self, found: &[Found], target: Option<i32>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let now = self.store_now().await?;
        let (mut numbers, mut extras) = (Vec::new(), Vec::new());
        for found in found {
            let Key::Number(number) = found.key else { continue };
            let job = &found.details.job;
            let mut changed = job.extras.clone();
            let failure = Failure::new(AttemptKind::Replayed, "sent back from the bin");
            changed.record(Attempt::new(now, job.attempt.max(1), "", failure));
            numbers.push(number);
            extras.push(changed.to_bytes());
        }
        let rows = self.store.query("replay jobs", Statement::Replay, &[&numbers, &extras, &target]).await?;
        if let Some(row) = rows.first() {
            self.notifier.wake(&row.get::<_, Vec<i32>>(0));
        }
        Ok(())
    }

    async fn matching(
        &self,
        filter: &Filter,
        after: Option<&str>,
        wanted: usize,
        idle_only: bool,
    ) -> Result<(Vec<Found>, Option<String>)> {
        let mut position = Position::read(after)?;
        let mut queue = None;
        if let Some(name) = &filter.queue {
            let Some(number) = self.store.queue_number(name).await? else { return Ok((Vec::new(), None)) };
            queue = Some(number);
        }
        let mut all = Vec::new();
        loop {
            // One more than wanted tells whether there is a next page.
            let size = if filter.error.is_some() { SCAN } else { wanted + 1 };
            let found = self.scan(filter, queue, &position, size, idle_only).await?;
            let last = found.len() < size;
            for found in found {
                let text = filter.error.as_deref();
                let fits = text.is_none_or(|text| found.details.last_error().unwrap_or("").contains(text));
                if fits && all.len() == wanted {
                    return Ok((all, Some(position.write())));
                }
                position.pass(found.key);
                if fits {
                    all.push(found);
                }
            }
            if last {
                return Ok((all, None));
            }
        }
    }

    async fn scan(
        &self,
        filter: &Filter,
        queue: Option<i32>,
        position: &Position,
        size: usize,
        idle_only: bool,
    ) -> Result<Vec<Found>> {
        let task = filter.task.as_ref().map(TaskName::as_str);
        let id = filter.id.map(|id| id.as_uuid());
        let older = filter.older_than.map(micros);
        let mut found = Vec::new();
        if filter.room != Room::Jobs {
            let reason = filter.reason.map(|reason| reason.as_str());
            let rows = self
                .store
                .query(
                    "list jobs",
                    Statement::ListRoom,
                    &[
                        &filter.room.as_str(),
                        &position.number,
                        &queue,
                        &task,
                        &id,
                        &reason,
                        &older,
                        &limit(size),
                    ],
                )
                .await?;
            for row in &rows {
                found.push(self.details(row).await?);
            }
            return Ok(found);
        }
        if filter.reason.is_some() {
            return Ok(found);
        }
        self.store.load_queues().await?;
        let queues = queue.map_or_else(|| self.store.queues.all(), |queue| vec![queue]);
        let streams = queues.into_iter().flat_map(|queue| (0..LANES).map(move |lane| (queue, lane)));
        let (mut qs, mut lanes, mut afters) = (Vec::new(), Vec::new(), Vec::new());
        for stream in streams {
            qs.push(stream.0);
            lanes.push(stream.1);
            afters.push(position.streams.get(&stream).copied().unwrap_or(0));
        }
        let rows = self
            .store
            .query(
                "list jobs",
                Statement::ListJobs,
                &[&qs, &lanes, &afters, &task, &id, &older, &idle_only, &limit(size)],
            )
            .await?;
        for row in &rows {
            let key = Key::Place { queue: row.get(0), lane: row.get(1), seq: row.get(2) };
            let job = job(row, 3, self.store.queue_name(row.get(0)).await?)?;
            let since = job.due_at;
            let mut details = Details::new(job, Room::Jobs, since);
            details.held_by = row.get(13);
            found.push(Found { details, key });
        }
        Ok(found)
    }

    /// From `room, n, queue, since, waits_for, reason`, the columns of a job, and the holder.
    async fn details(&self, row: &Row) -> Result<Found> {
        let queue = self.store.queue_name(row.get(2)).await?;
        let room: Room = row.get::<_, &str>(0).parse()?;
        let mut details = Details::new(job(row, 6, queue)?, room, instant(row.get(3)));
        details.waits_for = row.get(4);
        details.reason = row.get::<_, Option<&str>>(5).map(str::parse).transpose()?;
        details.held_by = row.get(16);
        Ok(Found { details, key: Key::Number(row.get::<_, Option<i64>>(1).unwrap_or(0)) })
    }

    pub(crate) async fn read_stats(&self) -> Result<Stats> {
        let mut stats = Stats::default();
        for row in self.store.query("read the figures", Statement::QueueStats, &[]).await? {
            let (name, mut settings, paused) = settings(&row)?;
            settings.history = duration(&row, 22);
            let mut queue = QueueStats::new(name, settings, paused);
            queue.ready = total(row.get(8));
            queue.held = total(row.get(9));
            queue.scheduled = total(row.get(10));
            queue.parked = total(row.get(11));
            queue.dead = total(row.get(12));
            let now = instant(row.get(21));
            queue.oldest_due = row.get::<_, Option<SystemTime>>(13).map(|due| now.since(instant(due)));
            queue.enqueued = total(row.get(14));
            queue.done = total(row.get(15));
            queue.retried = total(row.get(16));
            queue.buried = total(row.get(17));
            queue.redelivered = total(row.get(18));
            queue.cancelled = total(row.get(19));
            queue.dropped = total(row.get(20));
            stats.queues.push(queue);
        }
        for row in self.store.query("read the figures", Statement::Workers, &[]).await? {
            let id = WorkerId::from_uuid(row.get::<_, Uuid>(0));
            let lease_left = Duration::from_micros(total(row.get(6)));
            let mut worker = WorkerStats::new(id, row.get(1), instant(row.get(5)), lease_left);
            worker.queues =
                row.get::<_, Vec<&str>>(2).into_iter().map(QueueName::new).collect::<Result<_, _>>()?;
            worker.tasks =
                row.get::<_, Vec<&str>>(3).into_iter().map(TaskName::new).collect::<Result<_, _>>()?;
            worker.concurrency = u32::try_from(row.get::<_, i64>(4)).unwrap_or(u32::MAX);
            stats.workers.push(worker);
        }
        for row in self.store.query("read the figures", Statement::ParkedCounts, &[]).await? {
            stats.parked.push((TaskName::new(row.get::<_, &str>(0))?, total(row.get(1))));
        }
        Ok(stats)
    }

    pub(crate) async fn change_queue(&self, number: i32, change: &QueueChange) -> Result<()> {
        let run = async {
            let mut session = self.store.session().await?;
            session.begin().await?;
            let rows = session.query(Statement::QueueSettings, &[&number]).await?;
            let row = rows.first().ok_or(Fault::NoSuchQueue)?;
            let (_, mut found, paused) = settings(row)?;
            found.history = duration(row, 8);
            let settings = change.apply(found)?;
            let paused = change.paused.unwrap_or(paused) == Paused::Yes;
            session
                .query(
                    Statement::UpdateQueue,
                    &[
                        &number,
                        &i64::from(settings.delivery_limit),
                        &settings.ttl.map(micros),
                        &(settings.on_expire == OnExpire::Drop),
                        &settings.max_length.map(|most| i64::try_from(most).unwrap_or(i64::MAX)),
                        &(settings.overflow == Overflow::DropOldest),
                        &settings.dead_retention.map(micros),
                        &paused,
                        &settings.history.map(micros),
                    ],
                )
                .await?;
            session.commit().await
        };
        run.await.map_err(|fault: Fault| self.store.error(fault, "change a queue"))
    }
}

/// From `name, delivery_limit, ttl, drop_expired, max_length, drop_oldest, dead_retention, paused`.
fn settings(row: &Row) -> Result<(QueueName, QueueSettings, Paused)> {
    let duration =
        |at: usize| row.get::<_, Option<i64>>(at).map(|micros| Duration::from_micros(total(micros)));
    let mut settings = QueueSettings::default();
    settings.delivery_limit = u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX);
    settings.ttl = duration(2);
    settings.on_expire = if row.get(3) { OnExpire::Drop } else { OnExpire::Bury };
    settings.max_length = row.get::<_, Option<i64>>(4).map(total);
    settings.overflow = if row.get(5) { Overflow::DropOldest } else { Overflow::Refuse };
    settings.dead_retention = duration(6);
    let paused = if row.get(7) { Paused::Yes } else { Paused::No };
    Ok((QueueName::new(row.get::<_, &str>(0))?, settings, paused))
}

fn duration(row: &Row, at: usize) -> Option<Duration> {
    row.get::<_, Option<i64>>(at).map(|micros| Duration::from_micros(total(micros)))
}

impl Position {
    fn read(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
        let refuse = || Error::invalid("page", text, "it is not what an earlier page gave as next");
        let mut position = Self::default();
        for part in text.split(',') {
            let numbers: Vec<i64> =
                part.split('.').map(|number| number.parse().map_err(|_| refuse())).collect::<Result<_>>()?;
            match numbers[..] {
                [number] => position.number = number,
                [queue, lane, seq] => {
                    let stream = (
                        i32::try_from(queue).map_err(|_| refuse())?,
                        i16::try_from(lane).map_err(|_| refuse())?,
                    );
                    position.streams.insert(stream, seq);
                }
                _ => return Err(refuse()),
            }
        }
        Ok(position)
    }

    fn write(&self) -> String {
        let streams = self.streams.iter().map(|((queue, lane), seq)| format!("{queue}.{lane}.{seq}"));
        std::iter::once(self.number.to_string()).chain(streams).collect::<Vec<_>>().join(",")
    }

    fn pass(&mut self, key: Key) {
        match key {
            Key::Number(number) => self.number = number,
            Key::Place { queue, lane, seq } => {
                self.streams.insert((queue, lane), seq);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_the_round_and_others_are_refused() {
        let mut position = Position::default();
        position.pass(Key::Place { queue: 3, lane: 10, seq: 1 << 40 });
        position.pass(Key::Number(7));
        assert_eq!(Position::read(Some(&position.write())).unwrap(), position);
        for text in ["", "x", "1.2", "1.2.3.4", "1.99999.3", "1,"] {
            assert!(Position::read(Some(text)).is_err(), "{text:?}");
        }
    }
}
