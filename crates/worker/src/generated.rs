//! What the code that `#[task]` writes calls. Nothing here is meant for people.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::error::Error;
use std::fmt::{self, Display};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::time::Duration;

use celeriac_core::{Delivery, Priority, QueueName, RetryPolicy, TaskName, TaskSpec, TransactionHandle};
use serde::de::DeserializeOwned;
pub use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;

use crate::abandoned::Running;
use crate::definition::TaskFuture;
use crate::panic_capture::catch;
use crate::task_error::{TaskError, with_causes};

/// The attributes of a task as literals.
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

/// What can be an argument of a task.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a task",
    label = "cannot travel in a job",
    note = "arguments are stored: derive `serde::Serialize` and `serde::Deserialize` for `{Self}`, or turn on the `serde` \
            feature of its crate; it must own its data and be `Send`",
    note = "what cannot be stored is handed in by the worker: take `State<{Self}>` instead"
)]
pub trait Argument {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Argument for T {}

/// Fails to compile, with one error, for a type that is no argument. What is generated besides gives no further
/// errors for it: see [`Field`].
pub const fn argument<T: Argument>() {}

/// A field of the payload on its way into bytes and back.
///
/// The compiler finds a method by the number of references, the most specific first: serde's where the type has
/// it, otherwise one that always fails and is never run, because [`argument`] has stopped the build.
#[derive(Debug)]
pub struct Field<T>(PhantomData<T>);

impl<T> Field<T> {
    /// Holds nothing but the type.
    #[allow(clippy::new_without_default, reason = "called by generated code only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

#[allow(missing_docs)]
pub trait WriteField<T> {
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

impl<T: Serialize> WriteField<T> for &Field<T> {
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }
}

#[allow(missing_docs)]
pub trait WriteNothing<T> {
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

impl<T> WriteNothing<T> for Field<T> {
    fn write<S: Serializer>(&self, _: &T, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no argument"))
    }
}

#[allow(missing_docs)]
pub trait ReadField<T> {
    fn read<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error>;
}

impl<T: DeserializeOwned> ReadField<T> for &Field<T> {
    fn read<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

#[allow(missing_docs)]
pub trait ReadNothing<T> {
    fn read<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error>;
}

impl<T> ReadNothing<T> for Field<T> {
    fn read<'de, D: Deserializer<'de>>(&self, _: D) -> Result<T, D::Error> {
        Err(serde::de::Error::custom("no argument"))
    }
}

/// A newtype for a field of the payload.
#[doc(hidden)]
#[macro_export]
macro_rules! __celeriac_field {
    ($name:ident, $ty:ty) => {
        struct $name($ty);

        impl $crate::generated::Serialize for $name {
            fn serialize<S: $crate::generated::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                #[allow(unused_imports)]
                use $crate::generated::{WriteField as _, WriteNothing as _};
                (&&$crate::generated::Field::<$ty>::new()).write(&self.0, serializer)
            }
        }

        impl<'de> $crate::generated::Deserialize<'de> for $name {
            fn deserialize<D: $crate::generated::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                #[allow(unused_imports)]
                use $crate::generated::{ReadField as _, ReadNothing as _};
                (&&$crate::generated::Field::<$ty>::new()).read(deserializer).map(Self)
            }
        }
    };
}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "a task cannot return `{Self}`",
    label = "must be nothing, or a `Result` whose error can be displayed",
    note = "return `()`, or `Result<T, E>` where `E` implements `Display`, such as `TaskError`"
)]
pub trait HandlerOutput {}

impl HandlerOutput for () {}

#[diagnostic::do_not_recommend]
impl<T, E: Display> HandlerOutput for Result<T, E> {}

/// Fails to compile, with one error, for a type that a task cannot return.
pub const fn handler_output<O: HandlerOutput>() {}

/// The output of a handler on its way to a verdict.
///
/// The compiler finds a method by the number of references, the most specific first: a `TaskError` stays itself, an
/// `Error` (boxed or not) brings its causes, anything else its `Display`.
pub struct Output<O>(Cell<Option<O>>);

impl<O> Output<O> {
    /// Wraps what a handler returned.
    pub const fn new(output: O) -> Self {
        Self(Cell::new(Some(output)))
    }
}

impl<T, E> Output<Result<T, E>> {
    fn settle(&self, convert: impl FnOnce(E) -> TaskError) -> Result<(), TaskError> {
        self.0.take().map_or(Ok(()), |result| result.map(drop).map_err(convert))
    }
}

impl<O> fmt::Debug for Output<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// Errors that are known by name: [`TaskError`], and the boxed errors, which are no `Error` themselves.
#[allow(missing_docs)]
pub trait ViaName {
    fn settled(&self) -> Result<(), TaskError>;
}

impl<T> ViaName for &&&Output<Result<T, TaskError>> {
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(|error| error)
    }
}

impl<T> ViaName for &&&Output<Result<T, Box<dyn Error>>> {
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(|error| TaskError::Failed(with_causes(&*error)))
    }
}

impl<T> ViaName for &&&Output<Result<T, Box<dyn Error + Send>>> {
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(|error| TaskError::Failed(with_causes(&*error)))
    }
}

impl<T> ViaName for &&&Output<Result<T, Box<dyn Error + Send + Sync>>> {
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(|error| TaskError::Failed(with_causes(&*error)))
    }
}

#[allow(missing_docs)]
pub trait ViaError {
    fn settled(&self) -> Result<(), TaskError>;
}

impl<T, E: Error> ViaError for &&Output<Result<T, E>> {
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(TaskError::from)
    }
}

#[allow(missing_docs)]
pub trait ViaDisplay {
    fn settled(&self) -> Result<(), TaskError>;
}

impl<T, E: Display> ViaDisplay for &Output<Result<T, E>> {
    /// With `#`, by which error reports (`anyhow`, `eyre`) print their causes as well; others ignore it.
    fn settled(&self) -> Result<(), TaskError> {
        self.settle(|error| TaskError::Failed(format!("{error:#}")))
    }
}

/// `()`. Other types end here as well, but [`handler_output`] has stopped the build for them.
#[allow(missing_docs)]
pub trait ViaNothing {
    fn settled(&self) -> Result<(), TaskError>;
}

impl<O> ViaNothing for Output<O> {
    fn settled(&self) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Fails to compile, with one error, for a type that is no transaction of an engine.
pub const fn transaction<T: TransactionHandle>() {}

/// The worker's transaction for a handler. A worker gives one to each task that takes it, so the failure is seen only
/// by who runs a definition by hand.
pub fn hand_in<T: Send + 'static>(given: &mut Option<Box<dyn Any + Send>>) -> Result<T, TaskError> {
    match given.take().map(<Box<dyn Any + Send>>::downcast::<T>) {
        Some(Ok(transaction)) => Ok(*transaction),
        _ => Err(TaskError::failed(format!("the worker has no {} for this task", type_name::<T>()))),
    }
}

/// The run of an asynchronous handler.
pub fn asynchronous<F: Future<Output = Result<(), TaskError>> + Send + 'static>(handler: F) -> TaskFuture {
    Box::pin(handler)
}

/// The run of a synchronous handler, on the runtime's threads for blocking work.
///
/// A panic goes on in the caller, so that both kinds of handler look alike to the worker.
pub fn blocking<F: FnOnce() -> Result<(), TaskError> + Send + 'static>(handler: F) -> TaskFuture {
    Box::pin(async move {
        // If this future is dropped, the handler goes on; the worker counts those. One that still waits for a
        // thread never starts: its job may be another worker's by then.
        let mut running = Running::new();
        let ended = AbortOnDropHandle::new(spawn_blocking(|| catch(handler))).await;
        running.finished();
        match ended {
            Ok(Ok(result)) => result,
            Ok(Err(panicked)) => resume_unwind(Box::new(panicked)),
            Err(error) => Err(TaskError::failed(format!("the handler was not run: {error}"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panic_capture::Panicked;

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

    #[derive(Debug)]
    struct Inner;
    impl Display for Inner {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("connection refused")
        }
    }
    impl Error for Inner {}

    #[derive(Debug)]
    struct Outer(Inner);
    impl Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("upload failed")
        }
    }
    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    #[allow(clippy::needless_borrow, reason = "the number of references is what is tested")]
    fn each_kind_of_error_takes_its_own_way() {
        type Boxed = Box<dyn Error + Send + Sync>;
        let own = Output::new(Err::<(), _>(TaskError::reject("no")));
        assert!(matches!((&&&&own).settled(), Err(TaskError::Reject(text)) if text == "no"));
        let standard = Output::new(Err::<u8, _>(Outer(Inner)));
        let text = (&&&&standard).settled().unwrap_err().to_string();
        assert_eq!(text, "upload failed: connection refused");
        let boxed = Output::new(Err::<(), Boxed>(Box::new(Outer(Inner))));
        let text = (&&&&boxed).settled().unwrap_err().to_string();
        assert_eq!(text, "upload failed: connection refused");
        let plain = Output::new(Err::<(), _>("just text"));
        assert_eq!((&&&&plain).settled().unwrap_err().to_string(), "just text");
        assert!((&&&&Output::new(())).settled().is_ok());
        assert!((&&&&Output::new(Ok::<_, Outer>(7))).settled().is_ok());
    }

    #[tokio::test]
    async fn a_panic_of_a_blocking_handler_goes_on_in_the_caller() {
        let caught = tokio::spawn(blocking(|| panic!("boom"))).await.unwrap_err().into_panic();
        assert_eq!(caught.downcast_ref::<Panicked>().unwrap().0, "boom");
    }
}
