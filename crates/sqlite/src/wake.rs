//! Waking up: an idle worker learns of new work within a fraction of a millisecond, from this process or
//! another, and costs next to nothing meanwhile.
//!
//! While somebody waits, one thread watches. It looks when this process's writer says that something came, when
//! the operating system reports a write to the file's log (Linux), when a scheduled job falls due, and every
//! [`SAFETY`] in any case, so that a lost hint costs latency and never a job.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use celeriac_core::{Result, Suspects, WaitOptions};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::Notify;

use crate::fault::Fault;
use crate::maintain::next_due;
use crate::options::{Place, SqliteOptions};
use crate::writer::Clock;

/// The poll under all hints.
const SAFETY: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 50 } else { 2 });
/// A write to the log is seen before the transaction is visible: its flush to the disk lies between. For this
/// long the watcher looks again and again.
const PATIENCE: Duration = Duration::from_millis(20);
/// Between two such looks.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Where waiters are kept and hints arrive.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    waiters: Mutex<Vec<Waiter>>,
    waiting: AtomicUsize,
    hints: Mutex<Option<Sender<Hint>>>,
    /// The strongest hint that is on its way, 0 for none: a busy writer must not fill the channel.
    hinted: AtomicU8,
    /// Sleeps while nobody waits, so that the log's events cost a busy process nothing.
    listener: OnceLock<Thread>,
}

#[derive(Debug)]
struct Waiter {
    queues: Vec<String>,
    suspects: Suspects,
    notify: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    /// Another process writes; what it writes may not be visible yet.
    LookFor = 1,
    /// Somebody began to wait, or this process's writer has committed something.
    Look = 2,
}

impl Wake {
    /// To be called after a commit that made something ready or moved a due time.
    pub(crate) fn work_came(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.hint(Hint::Look);
        }
    }

    fn hint(&self, hint: Hint) {
        if self.hinted.fetch_max(hint as u8, Ordering::SeqCst) >= hint as u8 {
            return;
        }
        match self.hints.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(hints) => {
                let _ = hints.send(hint);
            }
            // A store in memory has no watcher; its waiters look for themselves.
            None => {
                self.hinted.store(0, Ordering::SeqCst);
                for waiter in self.list().iter() {
                    waiter.notify.notify_one();
                }
            }
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something may be claimable, or for the limit.
    pub(crate) async fn wait(&self, options: &WaitOptions) {
        let registered = Registered::new(self, options);
        // What came before the registration is found by this look.
        self.hint(Hint::Look);
        let _ = tokio::time::timeout(options.limit, registered.notify.notified()).await;
    }

    /// As [`Wake::wait`] without a watcher: `look` tells whether something is there, and how long until a
    /// scheduled job is due.
    pub(crate) async fn wait_and_look<L>(&self, options: &WaitOptions, look: L) -> Result<()>
    where
        L: Future<Output = Result<Option<Duration>>> + Send,
    {
        let registered = Registered::new(self, options);
        let Some(next) = look.await? else { return Ok(()) };
        let _ = tokio::time::timeout(options.limit.min(next), registered.notify.notified()).await;
        Ok(())
    }
}

/// Whether a claim from one of `queues` could find something.
pub(crate) fn has_work<'q>(
    connection: &Connection,
    queues: impl Iterator<Item = &'q str>,
    suspects: Suspects,
) -> Result<bool, Fault> {
    let mut statement = connection
        .prepare_cached("select ready - suspects, suspects from queues where name = ?1 and paused = 0")?;
    for queue in queues {
        let found: Option<(i64, i64)> =
            statement.query_row([queue], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((ready, suspect)) = found
            && (ready > 0 || (suspect > 0 && suspects == Suspects::Take))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes a waiter off the list when its caller is served or gives up.
struct Registered<'a> {
    wake: &'a Wake,
    notify: Arc<Notify>,
}

impl<'a> Registered<'a> {
    fn new(wake: &'a Wake, options: &WaitOptions) -> Self {
        let notify = Arc::new(Notify::new());
        wake.list().push(Waiter {
            queues: options.queues.iter().map(|queue| queue.as_str().to_owned()).collect(),
            suspects: options.suspects,
            notify: Arc::clone(&notify),
        });
        if wake.waiting.fetch_add(1, Ordering::SeqCst) == 0
            && let Some(listener) = wake.listener.get()
        {
            listener.unpark();
        }
        Self { wake, notify }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.wake.list().retain(|waiter| !Arc::ptr_eq(&waiter.notify, &self.notify));
        self.wake.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The thread that watches. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
    listener: Option<Listener>,
}

impl Watcher {
    /// Starts watching on a connection of its own.
    pub(crate) fn start(
        connection: Connection,
        options: &SqliteOptions,
        clock: Arc<Clock>,
        wake: Arc<Wake>,
    ) -> std::io::Result<Self> {
        let (hints, inbox) = channel();
        *wake.hints.lock().unwrap_or_else(PoisonError::into_inner) = Some(hints);
        let watch = Watch { connection, clock, wake: Arc::clone(&wake), seen: 0 };
        let thread =
            std::thread::Builder::new().name("celeriac-watch".to_owned()).spawn(move || watch.run(&inbox))?;
        let listener = match &options.place {
            Place::File(path) => Listener::start(log_of(path), Arc::clone(&wake)),
            Place::Memory => None,
        };
        Ok(Self { wake, thread: Some(thread), listener })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.listener = None;
        *self.wake.hints.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The write-ahead log of a database file.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

struct Watch {
    connection: Connection,
    clock: Arc<Clock>,
    wake: Arc<Wake>,
    /// The version of the file at the last look.
    seen: i64,
}

impl Watch {
    fn run(mut self, inbox: &Receiver<Hint>) {
        loop {
            let received = if self.wake.waiting.load(Ordering::SeqCst) == 0 {
                // Nobody waits: no reason to look at anything.
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(self.pause())
            };
            self.wake.hinted.store(0, Ordering::SeqCst);
            match received {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Hint::LookFor) => {
                    if !self.look_for(inbox) {
                        return;
                    }
                }
                Ok(Hint::Look) | Err(RecvTimeoutError::Timeout) => self.look(),
            }
        }
    }

    /// Until the next scheduled job falls due, at most [`SAFETY`].
    fn pause(&self) -> Duration {
        match next_due(&self.connection) {
            Ok(Some(due)) => due.since(self.clock.now()).clamp(Duration::from_micros(200), SAFETY),
            _ => SAFETY,
        }
    }

    /// Looks again and again until the transaction of another process becomes visible. `false` at the end of
    /// the store.
    fn look_for(&mut self, inbox: &Receiver<Hint>) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let version = self.version();
            if version != self.seen {
                self.look();
                return true;
            }
            match inbox.try_recv() {
                Ok(hint) => {
                    self.wake.hinted.store(0, Ordering::SeqCst);
                    if hint == Hint::Look {
                        self.look();
                        return true;
                    }
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => {}
            }
            if Instant::now() > until {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn version(&self) -> i64 {
        self.connection
            .prepare_cached("pragma data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .unwrap_or(-1)
    }

    /// Wakes those that have something to claim.
    fn look(&mut self) {
        self.seen = self.version();
        let now = self.clock.now();
        let due = matches!(next_due(&self.connection), Ok(Some(due)) if due <= now);
        for waiter in self.wake.list().iter() {
            // In doubt the waiter is woken: its claim will tell.
            let queues = waiter.queues.iter().map(String::as_str);
            if due || has_work(&self.connection, queues, waiter.suspects).unwrap_or(true) {
                waiter.notify.notify_one();
            }
        }
    }
}

/// Hears of writes by other processes through inotify. The poll serves where it is not to be had.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Listener {
    stop: Arc<AtomicBool>,
    watches: inotify::Watches,
    descriptor: Option<inotify::WatchDescriptor>,
    thread: Option<JoinHandle<()>>,
}

#[cfg(target_os = "linux")]
impl Listener {
    fn start(log: PathBuf, wake: Arc<Wake>) -> Option<Self> {
        let mut inotify = inotify::Inotify::init().ok()?;
        let mut watches = inotify.watches();
        let descriptor = watches.add(log, inotify::WatchMask::MODIFY).ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("celeriac-listen".to_owned())
            .spawn(move || {
                let _ = wake.listener.set(std::thread::current());
                let mut buffer = [0; 4096];
                while !stopped.load(Ordering::SeqCst) {
                    if wake.waiting.load(Ordering::SeqCst) == 0 {
                        // Unparked by the first waiter, or at the end. Both may have come already: then this
                        // returns at once.
                        std::thread::park();
                        continue;
                    }
                    if inotify.read_events_blocking(&mut buffer).is_err() {
                        return;
                    }
                    wake.hint(Hint::LookFor);
                    // A busy writer makes thousands of events a second. Those of one pause are one event.
                    std::thread::sleep(LOOK_AGAIN);
                }
            })
            .ok()?;
        Some(Self { stop, watches, descriptor: Some(descriptor), thread: Some(thread) })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The end of the watch is an event too, and lets the thread see the stop.
        if let Some(descriptor) = self.descriptor.take()
            && self.watches.remove(descriptor).is_ok()
            && let Some(thread) = self.thread.take()
        {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Listener;

#[cfg(not(target_os = "linux"))]
impl Listener {
    fn start(_log: PathBuf, _wake: Arc<Wake>) -> Option<Self> {
        None
    }
}
