//! What the code that `#[task]` writes calls. Nothing here is meant for people.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use celeriac_core::{Delivery, Priority, QueueName, RetryPolicy, TaskName, TaskSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::definition::TaskFuture;
use crate::task_error::TaskError;

/// The attributes of a task as literals.
#[doc(hidden)]
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, missing_docs, reason = "written by generated code, field by field")]
pub struct SpecLiterals {
    pub name: &'static str,
    pub queue: Option<&'static str>,
    pub priority: u8,
    pub timeout: Option<Duration>,
    pub retry: Option<&'static str>,
    pub max_attempts: Option<u32>,
    pub ttl: Option<Duration>,
    pub delivery: Delivery,
}

/// The specification that the attributes mean.
///
/// # Panics
/// When a literal is malformed. The macro reads each with the same parser and would not have compiled it.
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "the macro has read each literal with the same parser")]
pub fn spec(literals: SpecLiterals) -> TaskSpec {
    let mut spec = TaskSpec::new(TaskName::new(literals.name).expect("checked by #[task]"));
    if let Some(queue) = literals.queue {
        spec.queue = QueueName::new(queue).expect("checked by #[task]");
    }
    spec.priority = Priority::new(literals.priority).expect("checked by #[task]");
    spec.timeout = literals.timeout;
    if let Some(retry) = literals.retry {
        spec.retry = retry.parse::<RetryPolicy>().expect("checked by #[task]");
        spec.max_attempts = spec.retry.default_attempts();
    }
    if matches!(literals.delivery, Delivery::AtMostOnce) {
        spec.max_attempts = 1;
    }
    if let Some(attempts) = literals.max_attempts {
        spec.max_attempts = attempts;
    }
    spec.ttl = literals.ttl;
    spec.delivery = literals.delivery;
    spec
}

/// What can be an argument. The payload's fields are declared through [`Argument::Own`], so that a type that
/// cannot be one gives this one error and none from within serde.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a task",
    label = "cannot travel in a job",
    note = "derive `serde::Serialize` and `serde::Deserialize` for `{Self}` (or turn on its crate's `serde` feature); \
            it must be owned and `Send`",
    note = "or let the worker hand it in: take `State<{Self}>`"
)]
pub trait Argument {
    /// The type itself.
    type Own;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Argument for T {
    type Own = T;
}

/// What a handler may return.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a task cannot return `{Self}`",
    label = "must be nothing, or a `Result` whose error can be displayed",
    note = "return `()`, or `Result<T, E>` where `E` implements `Display`, such as `TaskError`"
)]
pub trait HandlerOutput {
    /// What it fails with.
    type Error;

    /// Without the value, which nobody waits for.
    fn into_result(self) -> Result<(), Self::Error>;
}

impl HandlerOutput for () {
    type Error = Infallible;

    fn into_result(self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[diagnostic::do_not_recommend]
impl<T, E: Display> HandlerOutput for Result<T, E> {
    type Error = E;

    fn into_result(self) -> Result<(), E> {
        self.map(drop)
    }
}

/// The run of an asynchronous handler.
#[doc(hidden)]
pub fn asynchronous<F: Future<Output = Result<(), TaskError>> + Send + 'static>(handler: F) -> TaskFuture {
    Box::pin(handler)
}

/// The run of a synchronous handler, on the runtime's threads for blocking work.
///
/// A panic goes on in the caller, so that both kinds of handler look alike to the worker.
#[doc(hidden)]
pub fn blocking<F: FnOnce() -> Result<(), TaskError> + Send + 'static>(handler: F) -> TaskFuture {
    Box::pin(async move {
        match tokio::task::spawn_blocking(handler).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => Err(TaskError::failed(format!("the handler was not run: {error}"))),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: SpecLiterals = SpecLiterals {
        name: "mail",
        queue: None,
        priority: 0,
        timeout: None,
        retry: None,
        max_attempts: None,
        ttl: None,
        delivery: Delivery::AtLeastOnce,
    };

    #[test]
    fn a_plain_task_has_the_defaults() {
        assert_eq!(spec(PLAIN), TaskSpec::new(TaskName::new("mail").unwrap()));
    }

    #[test]
    fn attempts_follow_the_policy_unless_they_are_given() {
        assert_eq!(spec(SpecLiterals { retry: Some("5s, 1m"), ..PLAIN }).max_attempts, 3);
        assert_eq!(spec(SpecLiterals { retry: Some("exponential(base=1s)"), ..PLAIN }).max_attempts, 10);
        let given = SpecLiterals { retry: Some("5s"), max_attempts: Some(7), ..PLAIN };
        assert_eq!(spec(given).max_attempts, 7);
        assert_eq!(spec(SpecLiterals { delivery: Delivery::AtMostOnce, ..PLAIN }).max_attempts, 1);
    }

    #[tokio::test]
    async fn a_panic_of_a_blocking_handler_goes_on_in_the_caller() {
        let caught = tokio::spawn(blocking(|| panic!("boom"))).await.unwrap_err().into_panic();
        assert_eq!(caught.downcast_ref::<&str>(), Some(&"boom"));
    }
}
