use std::cell::Cell;
use std::error::Error;
use std::fmt::{self, Display};
use std::time::Duration;

/// What a handler can ask for instead of a plain failure.
///
/// Any error type that can be displayed is a failure, tried again as the task's policy says. This type adds
/// the other verdicts, and `?` turns any [`std::error::Error`] into it.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// Stop here: the job is removed as cancelled.
    Cancel,
    /// A failure: tried again while attempts are left.
    Failed(String),
    /// No attempt can help: to the dead-letter bin at once.
    Reject(String),
    /// A failure that names its own delay, such as a `Retry-After`.
    RetryAfter {
        /// The delay until the next attempt.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// No failure: run again after this time.
    Snooze(Duration),
}

impl TaskError {
    /// A failure that is tried again.
    pub fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failure that is not tried again.
    pub fn reject(error: impl Display) -> Self {
        Self::Reject(error.to_string())
    }

    /// A failure with its own delay until the next attempt.
    pub fn retry_after(after: Duration, error: impl Display) -> Self {
        Self::RetryAfter { after, error: error.to_string() }
    }

    /// Run again later, without a failure.
    pub const fn snooze(after: Duration) -> Self {
        Self::Snooze(after)
    }

    /// Give up without a failure: the job is removed as cancelled.
    pub const fn cancel() -> Self {
        Self::Cancel
    }
}

impl<E: Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::Failed(with_causes(&error))
    }
}

/// How the code that `#[task]` writes turns the error of a handler into a [`TaskError`].
///
/// The methods are found by the compiler from the most specific to the most general, by the number of
/// references: a `TaskError` stays itself, an `Error` (boxed or not) brings its causes, anything else its
/// `Display`.
#[doc(hidden)]
pub struct HandlerError<E>(Cell<Option<E>>);

impl<E> fmt::Debug for HandlerError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerError")
    }
}

impl<E> HandlerError<E> {
    /// Wraps the error of a handler.
    pub const fn new(error: E) -> Self {
        Self(Cell::new(Some(error)))
    }
}

/// A handler's error of a type that is known by name: [`TaskError`], and the boxed errors, which are no
/// `Error` themselves.
#[doc(hidden)]
pub trait ViaTaskError {
    /// The error as it is, or the boxed error's text with its causes.
    fn task_error(&self) -> TaskError;
}

impl ViaTaskError for &&HandlerError<TaskError> {
    fn task_error(&self) -> TaskError {
        self.0.take().unwrap_or(TaskError::Cancel)
    }
}

impl ViaTaskError for &&HandlerError<Box<dyn Error>> {
    fn task_error(&self) -> TaskError {
        TaskError::Failed(self.0.take().map(|error| with_causes(&*error)).unwrap_or_default())
    }
}

impl ViaTaskError for &&HandlerError<Box<dyn Error + Send>> {
    fn task_error(&self) -> TaskError {
        TaskError::Failed(self.0.take().map(|error| with_causes(&*error)).unwrap_or_default())
    }
}

impl ViaTaskError for &&HandlerError<Box<dyn Error + Send + Sync>> {
    fn task_error(&self) -> TaskError {
        TaskError::Failed(self.0.take().map(|error| with_causes(&*error)).unwrap_or_default())
    }
}

/// A handler's error that is a standard error.
#[doc(hidden)]
pub trait ViaError {
    /// The error's text with its causes.
    fn task_error(&self) -> TaskError;
}

impl<E: Error> ViaError for &HandlerError<E> {
    fn task_error(&self) -> TaskError {
        TaskError::Failed(self.0.take().map(|error| with_causes(&error)).unwrap_or_default())
    }
}

/// A handler's error that can only be displayed.
#[doc(hidden)]
pub trait ViaDisplay {
    /// The error's text.
    fn task_error(&self) -> TaskError;
}

impl<E: Display> ViaDisplay for HandlerError<E> {
    /// With `#`, by which error reports (`anyhow`, `eyre`) print their causes as well; others ignore it.
    fn task_error(&self) -> TaskError {
        TaskError::Failed(self.0.take().map(|error| format!("{error:#}")).unwrap_or_default())
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors print their source themselves.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancel => f.write_str("cancelled by its handler"),
            Self::Failed(error) | Self::Reject(error) | Self::RetryAfter { error, .. } => f.write_str(error),
            Self::Snooze(after) => write!(f, "snoozed for {}", celeriac_core::format_duration(*after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn each_kind_of_error_takes_its_own_way() {
        let own = HandlerError::new(TaskError::reject("no"));
        assert!(matches!((&&&own).task_error(), TaskError::Reject(text) if text == "no"));
        let standard = HandlerError::new(Outer(Inner));
        assert_eq!((&&&standard).task_error().to_string(), "upload failed: connection refused");
        let boxed: Box<dyn Error + Send + Sync> = Box::new(Outer(Inner));
        let boxed = HandlerError::new(boxed);
        assert_eq!((&&&boxed).task_error().to_string(), "upload failed: connection refused");
        let text = HandlerError::new("just text");
        assert_eq!((&&&text).task_error().to_string(), "just text");
    }
}
