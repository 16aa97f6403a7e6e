use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use celeriac_core::{
    AttemptKind, Claimed, Delivery, Failure, Holding, Job, Outcome, Payload, TaskSpec, Verdict,
    format_duration, judge, max_attempts,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::abandoned;
use crate::buffer::Held;
use crate::context::{Context, Facts};
use crate::definition::{Invocation, TaskFuture};
use crate::outbox::Finished;
use crate::panic_capture::{Panicked, catch};
use crate::registry::Registered;
use crate::session::Session;
use crate::settler::account;
use crate::slot::{Slot, Stop};
use crate::task_error::TaskError;
use crate::trace;
use crate::transaction::{self, Begun, Rest};

/// Runs one claimed job to its verdict. `None` when the job turned out to belong to somebody else.
pub(crate) async fn deliver(session: &Session, index: usize, held: Held) -> Option<Finished> {
    let Held { mut claimed, since } = held;
    let meter = session.meter(&claimed);
    let Some(registered) = session.plan.registry.get(&claimed.job.task) else {
        tracing::warn!(
            job = %claimed.job.id,
            task = %claimed.job.task,
            queue = %claimed.job.queue,
            "no such task in this worker: the job is set aside until a worker comes that knows it"
        );
        return Some(Finished::new(&claimed, Verdict::Park, meter));
    };
    let slot = session.slot(index);
    let token = slot.begin(session, claimed.job.id);
    if token.is_cancelled() {
        // Told to stop between the buffer and here: a handler that never waits would run to its end.
        slot.end();
        return Some(Finished::new(&claimed, Verdict::Release, meter));
    }
    if registered.spec.delivery == Delivery::AtMostOnce {
        match acknowledge(session, &claimed, &token).await {
            Acknowledged::Yes => {}
            Acknowledged::Lost => {
                slot.end();
                session.let_go(1, usize::from(claimed.is_suspect()));
                return None;
            }
            // It has not run and is not going to: giving it back cannot make it run twice.
            Acknowledged::Stopped => {
                slot.end();
                return Some(Finished::new(&claimed, Verdict::Release, meter));
            }
        }
    }
    let mut transaction = None;
    if registered.definition.transaction.is_some() {
        match transaction::begin(session, &claimed, &token).await {
            Begun::Open(begun) => transaction = Some(begun),
            Begun::Stopped => {
                let cancelled = slot.stopped() == Some(Stop::Cancelled);
                slot.end();
                let verdict = if cancelled { Verdict::Cancel } else { Verdict::Release };
                return Some(Finished::new(&claimed, verdict, meter));
            }
        }
    }
    let lent = transaction.as_mut().and_then(|transaction| transaction.lend());
    let started = Instant::now();
    let waited = claimed.claimed_at.since(claimed.job.due_at) + started.saturating_duration_since(since);
    meter.started(waited);
    // Of the level that is shown by default: what a handler logs is worth little without its job.
    let span = tracing::info_span!(
        "run",
        job = %claimed.job.id,
        task = %claimed.job.task,
        queue = %claimed.job.queue,
        attempt = claimed.job.attempt.saturating_add(1)
    );
    trace::extract(&claimed.job.extras.headers, &span, waited);
    let ended = run(session, slot, registered, &mut claimed.job, lent, token, (started, span)).await;
    let stop = slot.stopped();
    slot.end();
    let run = started.elapsed();
    meter.ran(run);
    let mut outcome = outcome(ended, stop, time_limit(&claimed.job, &registered.spec));
    if let Some(transaction) = transaction {
        match transaction::end(transaction, &claimed.job, outcome).await {
            Rest::Settle(left) => outcome = left,
            Rest::Nothing(answer) => {
                log(&claimed.job, &Outcome::Succeeded, run);
                let finished = [Finished::new(&claimed, Verdict::Done, meter).after(run, since)];
                session.observe(&finished);
                account(session, &finished, &[answer], 0);
                return None;
            }
        }
    }
    log(&claimed.job, &outcome, run);
    let verdict = judge(&claimed.job, &registered.spec, outcome, fastrand::f64());
    Some(Finished::new(&claimed, verdict, meter).after(run, since))
}

/// How a run ended, before it is weighed.
#[derive(Debug)]
enum Ended {
    /// It did not stop when it was told to.
    Dropped,
    Panicked(Panicked),
    Returned(Result<(), TaskError>),
    Undecodable(String),
}

async fn run(
    session: &Session,
    slot: &Slot,
    registered: &Registered,
    job: &mut Job,
    transaction: Option<Box<dyn Any + Send>>,
    token: CancellationToken,
    (started, span): (Instant, Span),
) -> Ended {
    let spec = &registered.spec;
    // An end beyond the clock's range is none.
    let end = time_limit(job, spec).and_then(|limit| started.checked_add(limit));
    let mut invocation = invocation(session, spec, job, token.clone());
    invocation.transaction = transaction;
    let called = span.in_scope(|| catch(|| (registered.definition.run)(invocation)));
    let mut handler = match called {
        Ok(Ok(future)) => Handler { future: Some(future), span },
        Ok(Err(error)) => return Ended::Undecodable(error.to_string()),
        Err(panicked) => return Ended::Panicked(panicked),
    };
    // In this order: a handler that is ready has ended by itself, whatever else happened meanwhile. The other
    // two are not even looked at for a handler that never waits.
    tokio::select! {
        biased;
        ended = &mut handler => return ended,
        () = token.cancelled() => {}
        () = past(end) => slot.stop(Stop::TimedOut),
    }
    let patience = slot.stopped().unwrap_or(Stop::Now).patience();
    if let Ok(ended) = timeout(patience, &mut handler).await {
        return ended;
    }
    let left = abandoned::count(|| handler.discard());
    if left > 0 {
        session.totals.lock().abandoned += left;
        tracing::warn!(
            job = %job.id,
            task = %job.task,
            "a synchronous handler did not stop when it was told to; it goes on without its worker"
        );
    }
    Ended::Dropped
}

/// The longest run of one attempt.
fn time_limit(job: &Job, spec: &TaskSpec) -> Option<Duration> {
    job.extras.policy.timeout.or(spec.timeout)
}

/// What the handler is called with. The payload and the headers are moved: no verdict needs them.
fn invocation(session: &Session, spec: &TaskSpec, job: &mut Job, token: CancellationToken) -> Invocation {
    let facts = Facts {
        id: job.id,
        task: job.task.clone(),
        queue: job.queue.clone(),
        attempt: job.attempt.saturating_add(1),
        max_attempts: max_attempts(job, spec),
        deliveries: job.deliveries,
        enqueued_at: job.enqueued_at,
        headers: std::mem::take(&mut job.extras.headers),
    };
    let payload = std::mem::replace(&mut job.payload, Payload::from_stored(Vec::new()));
    Invocation::new(payload, Context::new(facts, token), session.plan.states.clone())
}

/// Returns at this instant; never without one.
async fn past(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// A handler whose panics are results.
struct Handler {
    /// `None` after the end, and after [`Handler::discard`].
    future: Option<TaskFuture>,
    span: Span,
}

impl Handler {
    /// Drops the future; a panic in a destructor is of no interest any more.
    fn discard(&mut self) {
        let _in_span = self.span.enter();
        let future = self.future.take();
        if let Err(Panicked(text)) = catch(|| drop(future)) {
            tracing::warn!("a handler panicked while it was dropped: {text}");
        }
    }
}

impl Future for Handler {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let Some(future) = this.future.as_mut() else { return Poll::Pending };
        let polled = {
            let _in_span = this.span.enter();
            catch(|| future.as_mut().poll(context))
        };
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Ended::Returned(result),
            Err(panicked) => Ended::Panicked(panicked),
        };
        this.discard();
        Poll::Ready(ended)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.discard();
    }
}

/// What a run came to, given why it was told to stop, if it was.
fn outcome(ended: Ended, stop: Option<Stop>, limit: Option<Duration>) -> Outcome {
    match (ended, stop) {
        (Ended::Undecodable(error), _) => Outcome::Undecodable(Failure::new(AttemptKind::Undecodable, error)),
        // Its time was up. That it still came to some end is no success: a handler that stops early because it
        // was told to often returns `Ok`.
        (_, Some(Stop::TimedOut)) => Outcome::Failed {
            failure: Failure::new(
                AttemptKind::TimedOut,
                format!("the time limit of {} passed", format_duration(limit.unwrap_or_default())),
            ),
            after: None,
        },
        (Ended::Returned(Ok(())), _) => Outcome::Succeeded,
        (_, Some(Stop::Cancelled)) => Outcome::Cancelled,
        (Ended::Returned(Err(TaskError::Cancel)), _) => Outcome::Cancelled,
        (Ended::Returned(Err(TaskError::Reject(error))), _) => {
            Outcome::Rejected(Failure::new(AttemptKind::Rejected, error))
        }
        (Ended::Returned(Err(TaskError::Snooze(after))), _) => Outcome::Snoozed(after),
        // A failure of a handler that was told to stop says nothing about the job.
        (_, Some(Stop::GraceOver | Stop::Now | Stop::LeaseLost)) => Outcome::Released,
        (Ended::Returned(Err(TaskError::Failed(error))), None) => {
            Outcome::Failed { failure: Failure::failed(error), after: None }
        }
        (Ended::Returned(Err(TaskError::RetryAfter { after, error })), None) => {
            Outcome::Failed { failure: Failure::failed(error), after: Some(after) }
        }
        (Ended::Panicked(Panicked(error)), None) => {
            Outcome::Failed { failure: Failure::new(AttemptKind::Panicked, error), after: None }
        }
        // A handler is only dropped after a stop.
        (Ended::Dropped, None) => Outcome::Released,
    }
}

fn log(job: &Job, outcome: &Outcome, run: Duration) {
    let attempt = job.attempt.saturating_add(1);
    match outcome {
        Outcome::Failed { failure, .. } | Outcome::Rejected(failure) | Outcome::Undecodable(failure) => {
            tracing::warn!(
                job = %job.id, task = %job.task, queue = %job.queue, attempt, ?run,
                kind = %failure.kind, "job failed: {}", failure.error
            );
        }
        _ => tracing::debug!(
            job = %job.id, task = %job.task, queue = %job.queue, attempt, ?run, ?outcome, "job ended"
        ),
    }
}

/// What became of the acknowledgement before a run.
enum Acknowledged {
    /// The job may run, now and never again.
    Yes,
    /// The job is not ours any more.
    Lost,
    /// The worker stops, and the store did not answer.
    Stopped,
}

async fn acknowledge(session: &Session, claimed: &Claimed, token: &CancellationToken) -> Acknowledged {
    loop {
        if token.is_cancelled() {
            return Acknowledged::Stopped;
        }
        match session.plan.broker.acknowledge(session.id, vec![claimed.receipt]).await {
            Ok(answers) => {
                session.acknowledging().passed();
                return match answers.first() {
                    Some(Holding::Held) => Acknowledged::Yes,
                    _ => Acknowledged::Lost,
                };
            }
            Err(error) => {
                session.meters.store_failed("acknowledge", &error);
                let pause = session.acknowledging().failed(&error);
                tokio::select! {
                    () = token.cancelled() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}
