//! Jobs whose handler writes in the transaction that settles them.

use celeriac_core::{
    Claimed, Committed, Error, Failure, Job, JobTransaction, Outcome, Settled, Transactions,
};
use tokio_util::sync::CancellationToken;

use crate::session::Session;

/// What came of beginning the transaction of a job.
pub(crate) enum Begun {
    Open(Box<dyn JobTransaction>),
    /// The worker stops, or the job is cancelled, and the store did not answer before.
    Stopped,
}

/// What is left to do for a job after its transaction.
pub(crate) enum Rest {
    /// Nothing: the verdict was written with the handler's writes, or the job belongs to somebody else.
    Nothing(Settled),
    /// The handler's writes are gone, or nobody knows; this outcome is to be judged and settled as usual.
    Settle(Outcome),
}

/// Begins the transaction of a job, however long the store takes.
pub(crate) async fn begin(session: &Session, claimed: &Claimed, token: &CancellationToken) -> Begun {
    loop {
        // A worker checks at its start that its broker has transactions for its tasks.
        let Some(transactions) = session.plan.broker.transactions() else { return Begun::Stopped };
        let begun = tokio::select! {
            begun = Transactions::begin(transactions, session.id, claimed.receipt) => begun,
            () = token.cancelled() => return Begun::Stopped,
        };
        let pause = match begun {
            Ok(transaction) => {
                session.beginning().passed();
                return Begun::Open(transaction);
            }
            Err(error) => session.beginning().failed(&error),
        };
        tokio::select! {
            () = token.cancelled() => return Begun::Stopped,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Commits what a handler wrote if it succeeded, with its verdict, and rolls it back otherwise.
pub(crate) async fn end(transaction: Box<dyn JobTransaction>, job: &Job, outcome: Outcome) -> Rest {
    if outcome != Outcome::Succeeded {
        transaction.roll_back().await;
        return Rest::Settle(outcome);
    }
    match transaction.commit().await {
        Committed::Applied => Rest::Nothing(Settled::Applied),
        Committed::Stale => Rest::Nothing(Settled::Stale),
        Committed::Refused(error) => Rest::Settle(Outcome::Failed { failure: refusal(&error), after: None }),
        Committed::Unknown(error) => {
            tracing::warn!(
                job = %job.id,
                task = %job.task,
                "the answer to a commit was lost; the job runs again if it was not carried out: {}",
                error.full()
            );
            Rest::Settle(Outcome::Released)
        }
        // A way to end that this version does not know: the job's row decides.
        _ => Rest::Settle(Outcome::Released),
    }
}

fn refusal(error: &Error) -> Failure {
    Failure::failed(format!("the transaction was not committed: {}", error.full()))
}
