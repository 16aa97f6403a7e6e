use std::sync::Arc;
use std::time::{Duration, Instant};

use celeriac_postgres::PostgresOptions;
use celeriac_postgres::tokio_postgres::{Client, Statement};
use tokio::task::JoinSet;

use super::{DURATION, FILL, Load, Part, Rate};
use crate::bench::scratch::Scratch;
use crate::bench::server::{Server, refused};
use crate::failure::Failure;

/// The bare server: a table with a key and the payload, in a schema beside the store's.
#[derive(Debug)]
pub(crate) struct PostgresFloor {
    options: Box<PostgresOptions>,
}

/// One connection with its own range of keys: neighbours never meet.
struct Lane {
    client: Client,
    insert: Statement,
    read: Statement,
    delete: Statement,
    first: i64,
    next: i64,
    times: Vec<Duration>,
}

impl PostgresFloor {
    pub(crate) fn new(options: PostgresOptions) -> Self {
        Self { options: Box::new(options) }
    }

    pub(crate) async fn measure(&self, part: Part, load: Load) -> Result<Rate, Failure> {
        let scratch = Scratch::create(
            &self.options,
            "create table @.floor (id bigint primary key, payload bytea not null)",
        )
        .await?;
        let measured = self.measure_in(&scratch, part, &load).await;
        scratch.remove().await?;
        measured
    }

    async fn measure_in(&self, scratch: &Scratch, part: Part, load: &Load) -> Result<Rate, Failure> {
        let connections = match part {
            Part::InsertSingly => 1,
            Part::ReadAndDelete => load.processes,
            Part::Insert | Part::InsertAndDelete => load.callers,
        };
        let mut lanes = Vec::with_capacity(connections);
        for number in 0..connections {
            lanes.push(Lane::open(&self.options, scratch, number).await?);
        }
        let batch = if part == Part::InsertSingly { 1 } else { load.batch };
        let rows = load.jobs / connections as u64;
        if part == Part::ReadAndDelete {
            for lane in &mut lanes {
                while lane.stored() < rows {
                    lane.insert(FILL, &load.payload).await?;
                }
            }
        }
        let server = Server::connect(&self.options).await?;
        let before = server.read().await?;
        let start = Instant::now();
        let mut running = JoinSet::new();
        for mut lane in lanes {
            let payload = Arc::clone(&load.payload);
            running.spawn(async move {
                let jobs = match part {
                    Part::Insert | Part::InsertSingly => lane.insert_for_a_while(batch, &payload).await,
                    Part::InsertAndDelete => lane.insert_and_delete_for_a_while(batch, &payload).await,
                    Part::ReadAndDelete => lane.read_and_delete(batch, rows).await,
                }?;
                Ok::<_, Failure>((jobs, lane.times))
            });
        }
        let (mut jobs, mut times) = (0, Vec::new());
        while let Some(lane) = running.join_next().await {
            let (done, took) =
                lane.map_err(|error| Failure::failed("bench", format!("the floor failed: {error}")))??;
            jobs += done;
            times.extend(took);
        }
        let elapsed = start.elapsed();
        let cost = server.cost_since(&before, jobs).await?;
        Ok(Rate { cost, ..Rate::new(jobs, elapsed, &mut times) })
    }
}

impl Lane {
    async fn open(options: &PostgresOptions, scratch: &Scratch, number: usize) -> Result<Self, Failure> {
        let client = options.connect().await?;
        let prepare = async |text: &str| client.prepare(&scratch.named(text)).await.map_err(refused);
        let first = i64::try_from(number).unwrap_or_default() << 40;
        Ok(Self {
            insert: prepare(
                "insert into @.floor (id, payload) select id, payload from unnest($1::bigint[], $2::bytea[]) as x (id, payload)",
            )
            .await?,
            read: prepare("select id, payload from @.floor where id >= $1 and id < $2 order by id limit $3")
                .await?,
            delete: prepare("delete from @.floor where id >= $1 and id < $2").await?,
            client,
            first,
            next: first,
            times: Vec::new(),
        })
    }

    fn stored(&self) -> u64 {
        u64::try_from(self.next - self.first).unwrap_or_default()
    }

    async fn insert(&mut self, batch: usize, payload: &[u8]) -> Result<(), Failure> {
        let end = self.next + i64::try_from(batch).unwrap_or(1);
        let ids: Vec<i64> = (self.next..end).collect();
        let payloads = vec![payload; ids.len()];
        self.client.execute(&self.insert, &[&ids, &payloads]).await.map_err(refused)?;
        self.next = end;
        Ok(())
    }

    async fn delete(&self, from: i64, end: i64) -> Result<u64, Failure> {
        self.client.execute(&self.delete, &[&from, &end]).await.map_err(refused)
    }

    async fn insert_for_a_while(&mut self, batch: usize, payload: &[u8]) -> Result<u64, Failure> {
        let start = Instant::now();
        while start.elapsed() < DURATION {
            let one = Instant::now();
            self.insert(batch, payload).await?;
            self.times.push(one.elapsed());
        }
        Ok(self.stored())
    }

    async fn insert_and_delete_for_a_while(&mut self, batch: usize, payload: &[u8]) -> Result<u64, Failure> {
        let start = Instant::now();
        while start.elapsed() < DURATION {
            let (one, from) = (Instant::now(), self.next);
            self.insert(batch, payload).await?;
            self.delete(from, self.next).await?;
            self.times.push(one.elapsed());
        }
        Ok(self.stored())
    }

    async fn read_and_delete(&mut self, batch: usize, rows: u64) -> Result<u64, Failure> {
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let (mut at, mut deleted) = (self.first, 0);
        while deleted < rows {
            let one = Instant::now();
            let found = self.client.query(&self.read, &[&at, &self.next, &limit]).await.map_err(refused)?;
            let Some(last) = found.last().map(|row| row.get::<_, i64>(0)) else { break };
            for row in &found {
                std::hint::black_box(row.get::<_, &[u8]>(1).len());
            }
            deleted += self.delete(at, last + 1).await?;
            at = last + 1;
            self.times.push(one.elapsed());
        }
        Ok(deleted)
    }
}
