use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client};

use crate::fault::Fault;
use crate::options::{Listening, Pooler};
use crate::statement::{Statement, channel};
use crate::store::{SharedStore, Store, session_config};

/// Stands for every queue in a notification: parked jobs may interest anybody.
pub(crate) const EVERYBODY: i32 = 0;

/// At most one notification in this time: a notifying transaction takes a lock of the whole server at its commit.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);

/// How often the listener proves that notifications arrive, and how long it waits for its own.
const SELF_TEST: Duration = Duration::from_secs(30);
const SELF_TEST_PATIENCE: Duration = Duration::from_secs(10);

/// Between two attempts to listen, at the longest: short enough that a server that is back is noticed within seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Transactions of users are asked for at these paces until they end, and given up after a while: then polling finds
/// their jobs.
const COMMIT_PAUSE: Duration = Duration::from_millis(2);
const COMMIT_PAUSE_MOST: Duration = Duration::from_millis(500);
const COMMIT_PATIENCE: Duration = Duration::from_secs(900);

/// What this process knows of changes in the queues: a number for each that grows with every wake-up.
#[derive(Debug)]
pub(crate) struct Signals {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    generation: u64,
    /// The generation in which a queue was last touched.
    touched: HashMap<i32, u64>,
    everybody: u64,
    /// What the last claim saw: the generation before it, if it found the queue empty.
    seen: HashMap<i32, Option<u64>>,
    listening: bool,
}

impl Default for Signals {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

/// Whether a wait may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something changed since the last claim.
    Changed,
    /// The last claim left nothing, and nothing changed.
    Nothing,
    /// No claim proved the queues empty: look.
    Unknown,
}

impl Signals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for one of the queues.
    pub(crate) fn touch(&self, queues: &[i32]) {
        {
            let mut state = self.state();
            state.generation += 1;
            let generation = state.generation;
            for queue in queues {
                if *queue == EVERYBODY {
                    state.everybody = generation;
                } else {
                    state.touched.insert(*queue, generation);
                }
            }
        }
        self.changed.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Call before a claim; its answer goes to [`Signals::claimed`].
    pub(crate) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Notes what a claim saw of the queues. `emptied`: it took all there was.
    pub(crate) fn claimed(&self, queues: &[i32], before: u64, emptied: bool) {
        let mut state = self.state();
        for queue in queues {
            state.seen.insert(*queue, emptied.then_some(before));
        }
    }

    pub(crate) fn news(&self, queues: &[i32]) -> News {
        let state = self.state();
        let mut unknown = false;
        for queue in queues {
            match state.seen.get(queue).copied().flatten() {
                Some(seen) => {
                    let touched = state.touched.get(queue).copied().unwrap_or(0).max(state.everybody);
                    if touched > seen {
                        return News::Changed;
                    }
                }
                None => unknown = true,
            }
        }
        if unknown { News::Unknown } else { News::Nothing }
    }

    /// Whether notifications of other processes arrive.
    pub(crate) fn is_listening(&self) -> bool {
        self.state().listening
    }

    fn set_listening(&self, listening: bool) -> bool {
        std::mem::replace(&mut self.state().listening, listening) != listening
    }
}

/// Tells other processes. Dropped with the broker, which ends its task.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    signals: Arc<Signals>,
    queues: mpsc::UnboundedSender<i32>,
    commits: mpsc::UnboundedSender<(String, i32)>,
}

impl Notifier {
    /// Starts the tasks that send notifications and follow users' transactions.
    pub(crate) fn start(store: &SharedStore, signals: &Arc<Signals>, tag: &str) -> Self {
        // Unbounded, and still bounded by work: what waits in it is a few numbers a call, and each pass empties it.
        let (queues, waiting) = mpsc::unbounded_channel();
        let (commits, transactions) = mpsc::unbounded_channel();
        let notifier = Self { signals: Arc::clone(signals), queues, commits };
        tokio::spawn(notify(Arc::clone(store), waiting, tag.to_owned()));
        tokio::spawn(follow(
            Arc::clone(store),
            transactions,
            Arc::clone(signals),
            notifier.queues.downgrade(),
        ));
        notifier
    }

    /// Wakes workers here at once and elsewhere soon.
    pub(crate) fn wake(&self, queues: &[i32]) {
        if queues.is_empty() {
            return;
        }
        self.signals.touch(queues);
        for queue in queues {
            // It fails only when the task has ended with the runtime.
            let _ = self.queues.send(*queue);
        }
    }

    /// Wakes workers once the transaction has committed.
    pub(crate) fn wake_after(&self, transaction: &str, queues: &[i32]) {
        for queue in queues {
            let _ = self.commits.send((transaction.to_owned(), *queue));
        }
    }
}

/// Sends what gathers as one notification, at most one in [`NOTIFY_PAUSE`].
async fn notify(store: SharedStore, mut waiting: mpsc::UnboundedReceiver<i32>, tag: String) {
    let mut last: Option<Instant> = None;
    while let Some(first) = waiting.recv().await {
        if let Some(rest) = last.and_then(|last| NOTIFY_PAUSE.checked_sub(last.elapsed())) {
            sleep(rest).await;
        }
        last = Some(Instant::now());
        let mut queues = BTreeSet::from([first]);
        while let Ok(queue) = waiting.try_recv() {
            queues.insert(queue);
        }
        // A payload has at most 8,000 bytes.
        let list: Vec<String> = queues.iter().take(500).map(ToString::to_string).collect();
        let list = if queues.len() > 500 { EVERYBODY.to_string() } else { list.join(",") };
        if let Err(error) = store.query("wake workers", Statement::Wake, &[&format!("{tag}:{list}")]).await {
            // Polling finds the jobs; the calls that fail for the same reason report it.
            tracing::debug!(error = %error.full(), "no wake-up was sent");
        }
    }
}

/// Follows transactions of users until they commit.
async fn follow(
    store: SharedStore,
    mut transactions: mpsc::UnboundedReceiver<(String, i32)>,
    signals: Arc<Signals>,
    queues: mpsc::WeakUnboundedSender<i32>,
) {
    struct Open {
        queues: BTreeSet<i32>,
        since: Instant,
    }
    let mut open: HashMap<String, Open> = HashMap::new();
    let mut pause = COMMIT_PAUSE;
    loop {
        let next = if open.is_empty() {
            transactions.recv().await
        } else {
            match timeout(pause, transactions.recv()).await {
                Ok(next) => next,
                Err(_) => {
                    let ids: Vec<&str> = open.keys().map(String::as_str).collect();
                    let answer =
                        store.query("follow a transaction", Statement::TransactionStates, &[&ids]).await;
                    for row in answer.unwrap_or_default() {
                        let (id, state): (String, Option<&str>) = (row.get(0), row.get(1));
                        if state == Some("in progress") {
                            continue;
                        }
                        let Some(ended) = open.remove(&id) else { continue };
                        if state != Some("aborted") {
                            let touched: Vec<i32> = ended.queues.into_iter().collect();
                            signals.touch(&touched);
                            let Some(queues) = queues.upgrade() else { return };
                            for queue in touched {
                                let _ = queues.send(queue);
                            }
                        }
                    }
                    open.retain(|_, transaction| transaction.since.elapsed() < COMMIT_PATIENCE);
                    pause = (pause * 2).min(COMMIT_PAUSE_MOST);
                    continue;
                }
            }
        };
        let Some((id, queue)) = next else { return };
        pause = COMMIT_PAUSE;
        open.entry(id)
            .or_insert_with(|| Open { queues: BTreeSet::new(), since: Instant::now() })
            .queues
            .insert(queue);
    }
}

/// Keeps a connection that listens, for as long as it is not aborted.
pub(crate) async fn listen(store: SharedStore, signals: Arc<Signals>, tag: String) {
    let mut pause = Duration::from_millis(50);
    loop {
        let started = Instant::now();
        let ended = listen_once(&store, &signals, &tag).await;
        if signals.set_listening(false) {
            tracing::warn!(store = %store.options.shown, error = ended.full(), "wake-ups are lost; polling until they are back");
        }
        if started.elapsed() > SELF_TEST {
            pause = Duration::from_millis(50);
        }
        // Jitter: workers that lost the same server must not come back in step.
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn listen_once(store: &Store, signals: &Signals, tag: &str) -> celeriac_core::Error {
    let run = async {
        let config = match &store.options.listening {
            Listening::Direct(config) => config.as_ref(),
            _ => &store.options.config,
        };
        let config = session_config(config, Pooler::None, store.options.deadline);
        let late = || Fault::Late(store.options.deadline);
        let (client, mut connection) = timeout(store.options.deadline, config.connect(store.tls.clone()))
            .await
            .map_err(|_| late())??;
        // A few notifications may wait for this process; more of them say no more.
        let (told, mut heard) = mpsc::channel::<String>(64);
        let pump = async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(note))) => {
                        if told.send(note.payload().to_owned()).await.is_err() {
                            return Ok(());
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(Fault::from(error)),
                    None => return Ok(()),
                }
            }
        };
        let serve = async {
            let name = channel(&store.options.schema);
            timeout(store.options.deadline, client.batch_execute(&format!("listen \"{name}\"")))
                .await
                .map_err(|_| late())??;
            if signals.set_listening(true) {
                tracing::info!(store = %store.options.shown, "listening for wake-ups");
            }
            // Whatever was said before is lost.
            signals.touch(&[EVERYBODY]);
            let mut testing = false;
            loop {
                let patience = if testing { SELF_TEST_PATIENCE } else { SELF_TEST };
                match timeout(patience, heard.recv()).await {
                    Ok(Some(note)) => {
                        let (from, list) = note.split_once(':').unwrap_or(("", note.as_str()));
                        if from == tag {
                            // Our own: who waits here was told already. It proves that notifications arrive.
                            testing = false;
                            continue;
                        }
                        let queues: Vec<i32> =
                            list.split(',').map(|number| number.parse().unwrap_or(EVERYBODY)).collect();
                        signals.touch(&queues);
                        testing = false;
                    }
                    Ok(None) => return Ok(()),
                    Err(_) if !testing => {
                        send_test(&client, store, tag).await?;
                        testing = true;
                    }
                    Err(_) => return Err(late()),
                }
            }
        };
        tokio::select! {
            ended = pump => ended,
            ended = serve => ended,
        }
    };
    let fault = match run.await {
        Ok(()) => Fault::Late(Duration::ZERO),
        Err(fault) => fault,
    };
    store.error(fault, "listen for wake-ups")
}

async fn send_test(client: &Client, store: &Store, tag: &str) -> Result<(), Fault> {
    let note = format!("{tag}:test");
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&note, Type::TEXT)];
    let send = client.query_typed(store.text(Statement::Wake), &values);
    timeout(store.options.deadline, send).await.map_err(|_| Fault::Late(store.options.deadline))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_what_the_last_claim_did_not_see() {
        let signals = Signals::default();
        assert_eq!(signals.news(&[1]), News::Unknown);
        signals.claimed(&[1], signals.generation(), true);
        assert_eq!(signals.news(&[1]), News::Nothing);
        signals.touch(&[2]);
        assert_eq!(signals.news(&[1]), News::Nothing);
        signals.touch(&[1]);
        assert_eq!(signals.news(&[1]), News::Changed);
        let before = signals.generation();
        signals.touch(&[1]);
        signals.claimed(&[1], before, true);
        assert_eq!(signals.news(&[1]), News::Changed, "a wake-up during the claim counts");
        signals.claimed(&[1], signals.generation(), true);
        signals.touch(&[EVERYBODY]);
        assert_eq!(signals.news(&[1]), News::Changed);
        signals.claimed(&[1], signals.generation(), false);
        assert_eq!(signals.news(&[1]), News::Unknown);
    }
}
