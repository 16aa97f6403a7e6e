//! One thread writes. It takes all requests that wait, runs them in one transaction, commits once, and answers
//! all: the disk is waited for once per group, so the safe setting is also the fast one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use celeriac_core::{Error, Result, Timestamp};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::OpenedFile;
use crate::fault::Fault;
use crate::options::{SqliteOptions, Synchronous};
use crate::state::Cache;
use crate::transaction::Transaction;
use crate::wake::Wake;

/// At most this many requests share a commit: bounds how long the first of them waits.
const MAX_GROUP: usize = 512;
/// How long a group waits, at most, for callers that were part of the one before and are likely to come again.
const REGROUP: Duration = Duration::from_micros(150);
/// The wait is worth this part of what the last commit took: on a slow disk larger groups pay, on a fast one the
/// callers better prepare the next group while this one is written.
const REGROUP_SHARE: u32 = 8;

/// Whether a piece of work must be on disk before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// As the store is set.
    Durable,
    /// A crash of the machine may undo it: claims, which then are redeliveries.
    Volatile,
}

/// The sending side. Dropping the last one ends the thread after the requests that wait.
#[derive(Debug)]
pub(crate) struct Writer {
    requests: Option<Sender<Box<dyn Request>>>,
    thread: Option<JoinHandle<()>>,
    store: Arc<str>,
    deadline: Duration,
}

/// The store's clock: this machine's, but never backwards within a process.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicI64);

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        let now = Timestamp::from_system_time(SystemTime::now()).as_micros();
        Timestamp::from_micros(self.0.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

/// A piece of work and where its answer goes.
trait Request: Send {
    fn durability(&self) -> Durability;
    /// May run again after a rollback.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Fault>;
    /// Whether the caller has given up. Nothing is done for it then.
    fn is_abandoned(&self) -> bool;
    /// Answers the caller. Gives what must be done about it if that has just given up, or if nobody waits and it failed.
    fn answer(self: Box<Self>, outcome: Result<()>) -> Option<Box<dyn Request>>;
    fn operation(&self) -> &'static str;
}

/// Makes the work that takes back what was done for a caller that is gone.
type Undo<T> = fn(T) -> Box<dyn FnMut(&mut Transaction<'_>) -> Result<(), Fault> + Send>;

struct Work<T, F> {
    operation: &'static str,
    durability: Durability,
    work: F,
    value: Option<T>,
    undo: Option<Undo<T>>,
    /// `None` if nobody waits, which is not the same as a caller who has given up.
    reply: Option<oneshot::Sender<Result<T>>>,
}

impl<T, F> Request for Work<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Fault> {
        self.value = Some((self.work)(transaction)?);
        Ok(())
    }

    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    fn answer(self: Box<Self>, outcome: Result<()>) -> Option<Box<dyn Request>> {
        if self.reply.is_none() {
            return outcome.is_err().then_some(self as Box<dyn Request>);
        }
        let lost = || Error::corrupt("a request", "it was answered without a result");
        let Self { value, reply, undo, .. } = *self;
        let unheard = reply?.send(outcome.and_then(|()| value.ok_or_else(lost))).err()?.ok()?;
        Some(taking_back(undo?, unheard))
    }

    fn operation(&self) -> &'static str {
        self.operation
    }
}

/// The request that undoes what nobody heard of.
fn taking_back<T: Send + 'static>(undo: Undo<T>, unheard: T) -> Box<dyn Request> {
    let (operation, durability) = ("take back what nobody heard of", Durability::Volatile);
    Box::new(Work { operation, durability, work: undo(unheard), value: None, undo: None, reply: None })
}

/// The caller's side of an answer. A caller that gives up after the thread has answered, and before it has read that,
/// has heard nothing: then this sends the undoing.
struct Answer<'a, T: Send + 'static> {
    receiver: oneshot::Receiver<Result<T>>,
    undo: Option<Undo<T>>,
    requests: &'a Sender<Box<dyn Request>>,
}

impl<T: Send + 'static> Drop for Answer<'_, T> {
    fn drop(&mut self) {
        self.receiver.close();
        if let (Some(undo), Ok(Ok(unheard))) = (self.undo, self.receiver.try_recv()) {
            // Fails only when the thread has ended; then the lease lapses.
            let _ = self.requests.send(taking_back(undo, unheard));
        }
    }
}

impl Writer {
    /// Starts the thread on a connection whose schema is up to date.
    pub(crate) fn start(
        connection: Connection,
        options: &SqliteOptions,
        clock: Arc<Clock>,
        wake: Arc<Wake>,
    ) -> Result<Self> {
        let store: Arc<str> = Arc::from(options.to_string());
        let (requests, inbox) = channel();
        let session = Session {
            connection,
            cache: Cache::default(),
            synchronous: options.synchronous,
            set_to: options.synchronous,
            store: Arc::clone(&store),
            file: OpenedFile::of(options),
            clock,
            wake,
            undone: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("celeriac-sqlite".to_owned())
            .spawn(move || session.serve(&inbox))
            .map_err(|error| Error::Unavailable {
                store: store.to_string(),
                operation: "start the writer thread",
                source: error.into(),
            })?;
        Ok(Self { requests: Some(requests), thread: Some(thread), store, deadline: options.deadline })
    }

    /// Runs `work` in the next transaction and returns when it is committed.
    pub(crate) async fn run<T, F>(
        &self,
        operation: &'static str,
        durability: Durability,
        work: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.send(Work { operation, durability, work, value: None, undo: None, reply: Some(reply) }, answer)
            .await
    }

    /// As [`Writer::run`] for work that must not stay done if its caller has given up meanwhile.
    pub(crate) async fn run_or_undo<T, F>(&self, operation: &'static str, work: F, undo: Undo<T>) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let durability = Durability::Volatile;
        self.send(
            Work { operation, durability, work, value: None, undo: Some(undo), reply: Some(reply) },
            answer,
        )
        .await
    }

    async fn send<T, F>(&self, work: Work<T, F>, receiver: oneshot::Receiver<Result<T>>) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let operation = work.operation;
        let gone = || Error::Unavailable {
            store: self.store.to_string(),
            operation,
            source: "the writer thread has ended".into(),
        };
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        let mut answer = Answer { receiver, undo: work.undo, requests };
        requests.send(Box::new(work)).map_err(|_| gone())?;
        match tokio::time::timeout(self.deadline, &mut answer.receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(gone()),
            Err(_) => {
                // One that came in the last moment counts: the thread takes it for heard, and undoes nothing.
                answer.receiver.close();
                answer.receiver.try_recv().unwrap_or_else(|_| {
                    let store = self.store.to_string();
                    Err(Error::DeadlinePassed { store, operation, after: self.deadline })
                })
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // Waits for the last commit, a few milliseconds: what was sent must not be lost by a quick exit.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Session {
    connection: Connection,
    cache: Cache,
    synchronous: Synchronous,
    /// What the connection is set to at the moment.
    set_to: Synchronous,
    store: Arc<str>,
    file: OpenedFile,
    clock: Arc<Clock>,
    wake: Arc<Wake>,
    /// What must be taken back, and could not be yet.
    undone: Vec<Box<dyn Request>>,
}

impl Session {
    fn serve(mut self, inbox: &Receiver<Box<dyn Request>>) {
        let mut last_group = 1;
        let mut patience = Duration::ZERO;
        while let Ok(first) = inbox.recv() {
            let mut group = vec![first];
            gather(inbox, &mut group, last_group, patience);
            last_group = group.len();
            let started = Instant::now();
            self.undo_again();
            group.retain(|request| !request.is_abandoned());
            if group.is_empty() {
                continue;
            }
            let mut outcomes = self.attempt(&mut group);
            patience = REGROUP.min(started.elapsed() / REGROUP_SHARE);
            if outcomes.is_err() && group.len() > 1 {
                // One of them has spoilt the transaction; alone, only the culprit fails.
                for mut request in group.drain(..) {
                    // Each try may wait for another process's lock, so callers give up meanwhile.
                    if request.is_abandoned() {
                        continue;
                    }
                    let alone = std::slice::from_mut(&mut request);
                    let outcome = self.attempt(alone).map_or_else(Err, |mut outcomes| outcomes.remove(0));
                    self.answer(request, outcome);
                }
                continue;
            }
            for (index, request) in group.into_iter().enumerate() {
                let outcome = match &mut outcomes {
                    Ok(outcomes) => std::mem::replace(&mut outcomes[index], Ok(())),
                    Err(fault) => Err(std::mem::replace(fault, Fault::Sql(rusqlite::Error::InvalidQuery))),
                };
                self.answer(request, outcome);
            }
        }
        // No checkpoint here: the last process to close the file makes one, and a log that other processes still use
        // is fastest at its full length.
    }

    fn answer(&mut self, request: Box<dyn Request>, outcome: Result<(), Fault>) {
        let operation = request.operation();
        let outcome = outcome.map_err(|fault| fault.into_error(&self.store, operation));
        if let Some(undo) = request.answer(outcome) {
            self.undone.push(undo);
            self.undo_again();
        }
    }

    /// Takes back what nobody heard of. What the store refuses now is tried again before the next group: a worker
    /// must not claim anew while it holds jobs that it does not know of.
    fn undo_again(&mut self) {
        for mut undo in std::mem::take(&mut self.undone) {
            if self.attempt(std::slice::from_mut(&mut undo)).is_err() {
                self.undone.push(undo);
            }
        }
    }

    /// Runs a group in one transaction. `Err` means that nothing of it was stored; the inner errors are of
    /// requests that changed nothing and spoil nothing.
    fn attempt(&mut self, group: &mut [Box<dyn Request>]) -> Result<Vec<Result<(), Fault>>, Fault> {
        let attempt = catch_unwind(AssertUnwindSafe(|| self.transact(group)));
        let outcome = attempt.unwrap_or_else(|_| {
            Err(Fault::Refused(Error::corrupt("the engine", "a request panicked; this is a bug of ours")))
        });
        if outcome.is_err() {
            self.cache.clear();
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("rollback");
            }
        }
        outcome
    }

    fn transact(&mut self, group: &mut [Box<dyn Request>]) -> Result<Vec<Result<(), Fault>>, Fault> {
        // Once for the group: to look costs as much as to write a row.
        self.file.check(&self.store)?;
        let durable = group.iter().any(|request| request.durability() == Durability::Durable);
        let wanted = if durable { self.synchronous } else { Synchronous::Normal };
        if wanted != self.set_to {
            self.connection.pragma_update(None, "synchronous", wanted.word())?;
            self.set_to = wanted;
        }
        self.connection.prepare_cached("begin immediate")?.execute([])?;
        self.cache.refresh(&self.connection)?;
        let before = self.connection.total_changes();
        let mut transaction = Transaction::new(&self.connection, self.clock.now(), &mut self.cache);
        let mut outcomes = Vec::with_capacity(group.len());
        for request in group.iter_mut() {
            let mark = transaction.mark();
            let outcome = request.run(&mut transaction);
            if let Err(fault) = outcome {
                let untouched = transaction.mark() == mark;
                if !untouched || matches!(fault, Fault::Sql(_)) {
                    return Err(fault);
                }
                outcomes.push(Err(fault));
                continue;
            }
            outcomes.push(Ok(()));
        }
        transaction.flush()?;
        let woke = transaction.woke;
        if self.connection.total_changes() == before {
            // Nothing written: no reason to touch the disk.
            self.connection.prepare_cached("rollback")?.execute([])?;
            return Ok(outcomes);
        }
        self.connection.prepare_cached("commit")?.execute([])?;
        if woke {
            self.wake.work_came();
        }
        Ok(outcomes)
    }
}

/// Adds the requests that wait, and gives those of the last group a moment to come back: with many callers at
/// once nearly all of them then share each commit.
fn gather(
    inbox: &Receiver<Box<dyn Request>>,
    group: &mut Vec<Box<dyn Request>>,
    last_group: usize,
    patience: Duration,
) {
    let expected = last_group.min(MAX_GROUP);
    let until = Instant::now() + patience;
    while group.len() < MAX_GROUP {
        match inbox.try_recv() {
            Ok(request) => group.push(request),
            Err(TryRecvError::Disconnected) => return,
            // Not asleep: each caller would have to wake this thread, which costs more than the whole wait.
            Err(TryRecvError::Empty) if group.len() < expected && Instant::now() < until => {
                std::thread::yield_now();
            }
            Err(TryRecvError::Empty) => return,
        }
    }
}
