//! A thread that reads, on a connection of its own: looking never waits behind writing, and the other way round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use celeriac_core::{Error, Result, Timestamp};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::OpenedFile;
use crate::fault::Fault;
use crate::options::SqliteOptions;
use crate::writer::Clock;

type Job = Box<dyn FnOnce(&Connection, Timestamp) + Send>;

/// The sending side. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Reader {
    requests: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    store: Arc<str>,
    file: OpenedFile,
    deadline: Duration,
}

impl Reader {
    pub(crate) fn start(
        name: &'static str,
        connection: Connection,
        options: &SqliteOptions,
        clock: Arc<Clock>,
    ) -> Result<Self> {
        let store: Arc<str> = Arc::from(options.to_string());
        let (requests, inbox) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Ok(job) = inbox.recv() {
                    // A panic answers its own caller, by the end of the channel, and nobody else.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&connection, clock.now())));
                }
            })
            .map_err(|error| Error::Unavailable {
                store: store.to_string(),
                operation: "start a reader thread",
                source: error.into(),
            })?;
        let file = OpenedFile::of(options);
        Ok(Self { requests: Some(requests), thread: Some(thread), store, file, deadline: options.deadline })
    }

    /// Runs `work` on the thread.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        self.file.check(&self.store)?;
        let (reply, answer) = oneshot::channel();
        let store = Arc::clone(&self.store);
        let job: Job = Box::new(move |connection, now| {
            // Nobody waits any more, and whoever is next does.
            if reply.is_closed() {
                return;
            }
            let result = work(connection, now).map_err(|fault| fault.into_error(&store, operation));
            // A caller that gave up has dropped the other end.
            let _ = reply.send(result);
        });
        let gone = || Error::Unavailable {
            store: self.store.to_string(),
            operation,
            source: "the reader thread has ended".into(),
        };
        self.requests.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(gone()),
            Err(_) => {
                Err(Error::DeadlinePassed { store: self.store.to_string(), operation, after: self.deadline })
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
