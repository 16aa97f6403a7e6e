//! Tasks that do what a test says, and tell it what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, poll_fn};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use celeriac_core::{AttemptKind, DecodeError, Delivery, TaskName, TaskSpec};
use celeriac_worker::generated::blocking;
use celeriac_worker::{
    Context, Invocation, Registry, State, StateKey, TaskDefinition, TaskError, TaskFuture,
};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Longer than anything a test waits for takes on the busiest machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What happened to the run of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    Told,
    Ended,
    Dropped,
}

/// The window between a test and its handlers.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<ProbeState>,
    opened: Condvar,
    changed: Notify,
}

#[derive(Default)]
struct ProbeState {
    events: Vec<(Event, String)>,
    open: BTreeSet<String>,
    all_open: bool,
    wakers: Vec<Waker>,
}

impl Probe {
    /// Lets the run of `key` go on.
    pub(crate) fn open(&self, key: &str) {
        self.lock().open.insert(key.to_owned());
        self.opened();
    }

    /// Lets all runs go on, now and later.
    pub(crate) fn open_all(&self) {
        self.lock().all_open = true;
        self.opened();
    }

    /// The keys of all runs with this event, in order.
    pub(crate) fn keys(&self, event: Event) -> Vec<String> {
        let state = self.lock();
        state.events.iter().filter(|(seen, _)| *seen == event).map(|(_, key)| key.clone()).collect()
    }

    pub(crate) fn count(&self, event: Event) -> usize {
        self.keys(event).len()
    }

    pub(crate) async fn wait_for(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.0.changed.notified());
                changed.as_mut().enable();
                if condition(self) {
                    return;
                }
                changed.await;
            }
        };
        if timeout(LIMIT, wait).await.is_err() {
            panic!("waited in vain until {what}; seen: {:?}", self.lock().events);
        }
    }

    /// Waits until as many runs had this event.
    pub(crate) async fn wait_count(&self, event: Event, count: usize) {
        self.wait_for(&format!("{count} runs {event:?}"), |probe| probe.count(event) >= count).await;
    }

    /// How many runs are between their start and their end.
    pub(crate) fn running(&self, keys: impl Fn(&str) -> bool) -> usize {
        let state = self.lock();
        let count = |event| state.events.iter().filter(|(seen, key)| *seen == event && keys(key)).count();
        count(Event::Started) - count(Event::Ended) - count(Event::Dropped)
    }

    pub(crate) fn record(&self, event: Event, key: &str) {
        self.lock().events.push((event, key.to_owned()));
        self.0.changed.notify_waiters();
    }

    fn opened(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
        self.0.opened.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ProbeState> {
        self.0.state.lock().unwrap()
    }
}

/// One run of a task below.
struct Run {
    key: String,
    answer: String,
    probe: State<Probe>,
    context: Context,
    ended: bool,
}

impl Run {
    fn new(invocation: &Invocation) -> Result<Self, DecodeError> {
        let mut arguments: BTreeMap<String, String> = invocation.payload.decode()?;
        Ok(Self {
            key: arguments.remove("key").unwrap_or_default(),
            answer: arguments.remove("answer").unwrap_or_default(),
            probe: invocation.states.get::<Probe>().unwrap(),
            context: invocation.context.clone(),
            ended: false,
        })
    }

    fn start(&self) {
        self.probe.record(Event::Started, &self.key);
    }

    fn end(&mut self) {
        self.ended = true;
        self.probe.record(Event::Ended, &self.key);
    }

    async fn opened(&self) {
        poll_fn(|context| {
            let mut state = self.probe.lock();
            if state.all_open || state.open.contains(&self.key) {
                return Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn opened_blocking(&self) {
        let state = self.probe.lock();
        let closed = |state: &mut ProbeState| !state.all_open && !state.open.contains(&self.key);
        let (_state, wait) = self.probe.0.opened.wait_timeout_while(state, LIMIT, closed).unwrap();
        assert!(!wait.timed_out(), "nobody opened {}", self.key);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            self.probe.record(Event::Dropped, &self.key);
        }
    }
}

macro_rules! task {
    ($(#[$doc:meta])* $name:ident, $tweak:expr, |$run:ident| $body:expr) => {
        $(#[$doc])*
        pub(crate) fn $name() -> TaskDefinition {
            fn spec() -> TaskSpec {
                let mut spec = TaskSpec::new(TaskName::new(stringify!($name)).unwrap());
                let tweak: fn(&mut TaskSpec) = $tweak;
                tweak(&mut spec);
                spec
            }
            fn run(invocation: Invocation) -> Result<TaskFuture, DecodeError> {
                #[allow(unused_mut)]
                let mut $run = Run::new(&invocation)?;
                Ok($body)
            }
            let states = || vec![StateKey::of::<Probe>()];
            TaskDefinition::new(stringify!($name), spec, run, |_| Ok(()), &[], states, file!(), line!())
        }
    };
}

task!(
    /// Succeeds at once.
    ok,
    |_| (),
    |run| Box::pin(async move {
        run.start();
        run.end();
        Ok(())
    })
);

task!(
    /// Succeeds once it is opened.
    gate,
    |_| (),
    |run| Box::pin(async move {
        run.start();
        run.opened().await;
        run.end();
        Ok(())
    })
);

task!(
    /// The same, acknowledged before it runs.
    once,
    |spec| spec.delivery = Delivery::AtMostOnce,
    |run| Box::pin(async move {
        run.start();
        run.opened().await;
        run.end();
        if run.answer == "fail" { Err(TaskError::failed("no second try")) } else { Ok(()) }
    })
);

task!(
    /// As `gate`, but blocks the thread that it runs on.
    thread_gate,
    |_| (),
    |run| Box::pin(async move {
        run.start();
        run.opened_blocking();
        run.end();
        Ok(())
    })
);

task!(
    /// As `gate`, synchronous.
    sync_gate,
    |_| (),
    |run| blocking(move || {
        run.start();
        run.opened_blocking();
        run.end();
        Ok(())
    })
);

task!(
    /// Waits until it is told to stop, and gives the answer that its arguments name.
    polite,
    |_| (),
    |run| Box::pin(async move {
        run.start();
        run.context.cancelled().await;
        run.probe.record(Event::Told, &run.key);
        run.end();
        if run.answer == "ok" { Ok(()) } else { Err(TaskError::failed("interrupted")) }
    })
);

task!(
    /// Never ends by itself.
    deaf,
    |_| (),
    |run| Box::pin(async move {
        run.start();
        pending::<()>().await;
        run.end();
        Ok(())
    })
);

task!(
    /// As `deaf`, with a time limit.
    limited,
    |spec| spec.timeout = Some(Duration::from_millis(20)),
    |run| Box::pin(async move {
        run.start();
        if run.answer == "told" {
            run.context.cancelled().await;
            run.end();
            return Ok(());
        }
        pending::<()>().await;
        run.end();
        Ok(())
    })
);

task!(
    /// Ends as its answer says.
    verdict,
    |spec| spec.retry = "1h, 1h".parse().unwrap(),
    |run| Box::pin(async move {
        run.start();
        run.end();
        match run.answer.as_str() {
            "fail" => Err(TaskError::failed("no route to host")),
            "reject" => Err(TaskError::reject("no such user")),
            "retry after" => Err(TaskError::retry_after(Duration::from_secs(7), "429")),
            "snooze" => Err(TaskError::snooze(Duration::from_secs(9))),
            "cancel" => Err(TaskError::cancel()),
            "panic" => panic!("a bad day for {}", run.key),
            other => panic!("no such answer: {other}"),
        }
    })
);

task!(
    /// Panics on the pool for blocking work.
    sync_panic,
    |_| (),
    |run| blocking(move || {
        run.start();
        panic!("a bad day for {}", run.key)
    })
);

task!(
    /// Panics before there is a future.
    early_panic,
    |_| (),
    |run| {
        assert!(run.key.is_empty(), "too early for {}", run.key);
        Box::pin(async move {
            run.end();
            Ok(())
        })
    }
);

/// All of them.
pub(crate) fn registry() -> Registry {
    let tasks =
        [ok, gate, once, thread_gate, sync_gate, polite, deaf, limited, verdict, sync_panic, early_panic];
    tasks.into_iter().fold(Registry::new(), |registry, task| registry.with(task()).unwrap())
}

/// How a failed attempt is kept, for short assertions.
pub(crate) fn failure(details: &celeriac_core::Details) -> (AttemptKind, String) {
    let attempt = details.job.extras.history.last().expect("a history");
    (attempt.kind, attempt.error.clone())
}
