use std::time::SystemTime;

use celeriac_core::{EnqueueOptions, Enqueued, Error, Extras, Idempotency, NewJob, QueueName, Result, Start};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::fault::Fault;
use crate::row::system_time;
use crate::statement::Statement;
use crate::store::{Store, micros};

/// Jobs of one statement: one message of at most about this size, and places that fit their batch.
const CHUNK_JOBS: usize = 5_000;
const CHUNK_BYTES: usize = 32 * 1024 * 1024;

/// What an enqueue did besides storing.
pub(crate) struct Stored {
    pub(crate) answers: Vec<Enqueued>,
    /// Queues that got something.
    pub(crate) queues: Vec<i32>,
    /// Queues whose oldest must make room.
    pub(crate) crowded: Vec<i32>,
}

/// Jobs as the columns of one statement.
struct Columns<'a> {
    jobs: &'a [NewJob],
    queues: Vec<i32>,
    extras: Vec<Option<Vec<u8>>>,
}

/// One statement with its values, ready to be sent on any connection.
enum Insert<'a> {
    Now(NowValues<'a>),
    All(AllValues<'a>),
}

struct NowValues<'a> {
    queue: i32,
    lane: i16,
    ids: Vec<Uuid>,
    tasks: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
    ttls: Option<Vec<Option<i64>>>,
    extras: Option<&'a [Option<Vec<u8>>]>,
}

struct AllValues<'a> {
    queues: &'a [i32],
    lanes: Vec<i16>,
    ids: Vec<Uuid>,
    tasks: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
    delays: Vec<Option<i64>>,
    ats: Vec<Option<SystemTime>>,
    ttls: Vec<Option<i64>>,
    extras: &'a [Option<Vec<u8>>],
    once: Vec<bool>,
}

impl Store {
    /// Stores jobs on a connection of the pool: one statement, or one transaction of several if they are many.
    pub(crate) async fn enqueue(&self, jobs: &[NewJob], options: &EnqueueOptions) -> Result<Stored> {
        let queues = self.prepare(jobs, options).await?;
        let chunks = chunks(jobs);
        let run = async {
            let mut rows = Vec::with_capacity(chunks.len());
            if let [_] = chunks[..] {
                let columns = Columns::new(jobs, queues.clone());
                let insert = columns.insert();
                let values = insert.values();
                rows.push(self.try_query(insert.statement(), &values).await?);
            } else {
                let mut session = self.session().await?;
                session.begin().await?;
                let mut at = 0;
                for length in &chunks {
                    let columns = Columns::new(&jobs[at..at + length], queues[at..at + length].to_vec());
                    let insert = columns.insert();
                    let values = insert.values();
                    rows.push(session.query(insert.statement(), &values).await?);
                    at += length;
                }
                session.commit().await?;
            }
            Ok(rows)
        };
        let rows = run.await.map_err(|fault| self.enqueue_error(fault, jobs))?;
        Ok(gather(jobs, &queues, &chunks, &rows))
    }

    /// Stores jobs in a transaction of the caller. Also gives the transaction's id.
    pub(crate) async fn enqueue_in(
        &self,
        transaction: &Client,
        jobs: &[NewJob],
        options: &EnqueueOptions,
    ) -> Result<(Stored, String)> {
        let queues = self.prepare(jobs, options).await?;
        let chunks = chunks(jobs);
        let mut rows = Vec::with_capacity(chunks.len());
        let mut at = 0;
        for length in &chunks {
            let columns = Columns::new(&jobs[at..at + length], queues[at..at + length].to_vec());
            let insert = columns.insert();
            let values = insert.values();
            let answer =
                run_in(transaction, self.text(insert.statement()), insert.statement().types(), &values).await;
            rows.push(answer.map_err(|fault| self.enqueue_error(fault, jobs))?);
            at += length;
        }
        let id = run_in(transaction, self.text(Statement::XactId), &[], &[])
            .await
            .map_err(|fault| self.error(fault, "enqueue"))?;
        let id = id.first().map(|row| row.get(0)).unwrap_or_default();
        Ok((gather(jobs, &queues, &chunks, &rows), id))
    }

    /// Everything that can be wrong with the jobs themselves, and the numbers of their queues.
    async fn prepare(&self, jobs: &[NewJob], options: &EnqueueOptions) -> Result<Vec<i32>> {
        for job in jobs {
            job.check(options.max_payload)?;
        }
        let mut queues = Vec::with_capacity(jobs.len());
        let mut last: Option<(&QueueName, i32)> = None;
        for job in jobs {
            let number = match last {
                Some((name, number)) if *name == job.queue => number,
                _ => match self.queue_number(&job.queue).await? {
                    Some(number) => number,
                    None if options.declare_missing => self.create_queue(&job.queue).await?.0,
                    None => return Err(self.no_such_queue(&job.queue)),
                },
            };
            last = Some((&job.queue, number));
            queues.push(number);
        }
        Ok(queues)
    }

    fn enqueue_error(&self, fault: Fault, jobs: &[NewJob]) -> Error {
        match fault {
            Fault::QueueFull(name, length, limit) => match QueueName::new(name) {
                Ok(queue) => Error::QueueFull { queue, length, limit },
                Err(error) => error.into(),
            },
            Fault::NoSuchQueue => {
                // The store was made anew behind our back; what we remember of it is wrong.
                self.queues.forget();
                self.clear_statements();
                self.no_such_queue(&jobs[0].queue)
            }
            fault => self.error(fault, "enqueue"),
        }
    }
}

async fn run_in(
    transaction: &Client,
    text: &str,
    types: &[Type],
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Fault> {
    let typed: Vec<_> = values.iter().copied().zip(types.iter().cloned()).collect();
    Ok(transaction.query_typed(text, &typed).await?)
}

/// How many jobs go into each statement.
fn chunks(jobs: &[NewJob]) -> Vec<usize> {
    let mut chunks = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    for job in jobs {
        if count == CHUNK_JOBS || (count > 0 && bytes + job.payload.len() > CHUNK_BYTES) {
            chunks.push(count);
            (count, bytes) = (0, 0);
        }
        count += 1;
        bytes += job.payload.len();
    }
    chunks.push(count);
    chunks
}

fn gather(jobs: &[NewJob], queues: &[i32], chunks: &[usize], rows: &[Vec<Row>]) -> Stored {
    let mut stored =
        Stored { answers: Vec::with_capacity(jobs.len()), queues: Vec::new(), crowded: Vec::new() };
    let mut at = 0;
    for (length, rows) in chunks.iter().zip(rows) {
        let (part, numbers) = (&jobs[at..at + length], &queues[at..at + length]);
        at += length;
        let Some(row) = rows.first() else { continue };
        if row.len() == 1 {
            stored.answers.extend(part.iter().map(|job| Enqueued::New(job.id)));
            stored.queues.extend(numbers.first());
            if row.get(0) {
                stored.crowded.extend(numbers.first());
            }
            continue;
        }
        let fresh: Vec<i32> = row.get(0);
        stored.answers.extend(part.iter().map(|job| Enqueued::Existed(job.id)));
        let base = at - length;
        for place in fresh.into_iter().filter_map(|place| usize::try_from(place - 1).ok()) {
            stored.answers[base + place] = Enqueued::New(part[place].id);
            stored.queues.push(numbers[place]);
        }
        stored.crowded.extend(row.get::<_, Vec<i32>>(1));
    }
    for list in [&mut stored.queues, &mut stored.crowded] {
        list.sort_unstable();
        list.dedup();
    }
    stored
}

impl<'a> Columns<'a> {
    fn new(jobs: &'a [NewJob], queues: Vec<i32>) -> Self {
        let extras = jobs
            .iter()
            .map(|job| {
                if job.policy.is_empty() && job.headers.is_empty() {
                    return None;
                }
                let mut extras = Extras::default();
                extras.policy = job.policy.clone();
                extras.headers = job.headers.clone();
                Some(extras.to_bytes())
            })
            .collect();
        Self { jobs, queues, extras }
    }

    fn insert(&self) -> Insert<'_> {
        let ids = self.jobs.iter().map(|job| job.id.as_uuid()).collect();
        let tasks = self.jobs.iter().map(|job| job.task.as_str()).collect();
        let payloads = self.jobs.iter().map(|job| job.payload.as_bytes()).collect();
        let ttls: Vec<Option<i64>> = self.jobs.iter().map(|job| job.ttl.map(micros)).collect();
        let alike = self.jobs.first().filter(|first| {
            self.queues.iter().all(|queue| *queue == self.queues[0])
                && self.jobs.iter().all(|job| {
                    job.priority == first.priority
                        && job.start == Start::Now
                        && job.idempotency == Idempotency::None
                })
        });
        if let Some(first) = alike {
            return Insert::Now(NowValues {
                queue: self.queues[0],
                lane: i16::from(first.priority.get()),
                ids,
                tasks,
                payloads,
                ttls: ttls.iter().any(Option::is_some).then_some(ttls),
                extras: self.extras.iter().any(Option::is_some).then_some(&self.extras),
            });
        }
        Insert::All(AllValues {
            queues: &self.queues,
            lanes: self.jobs.iter().map(|job| i16::from(job.priority.get())).collect(),
            ids,
            tasks,
            payloads,
            delays: self
                .jobs
                .iter()
                .map(|job| if let Start::After(delay) = job.start { Some(micros(delay)) } else { None })
                .collect(),
            ats: self
                .jobs
                .iter()
                .map(|job| if let Start::At(at) = job.start { Some(system_time(at)) } else { None })
                .collect(),
            ttls,
            extras: &self.extras,
            once: self.jobs.iter().map(|job| job.idempotency == Idempotency::ById).collect(),
        })
    }
}

impl Insert<'_> {
    const fn statement(&self) -> Statement {
        match self {
            Self::Now(_) => Statement::EnqueueNow,
            Self::All(_) => Statement::EnqueueAll,
        }
    }

    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        match self {
            Self::Now(v) => {
                vec![&v.queue, &v.lane, &v.ids, &v.tasks, &v.payloads, &v.ttls, &v.extras]
            }
            Self::All(v) => vec![
                &v.queues,
                &v.lanes,
                &v.ids,
                &v.tasks,
                &v.payloads,
                &v.delays,
                &v.ats,
                &v.ttls,
                &v.extras,
                &v.once,
            ],
        }
    }
}
