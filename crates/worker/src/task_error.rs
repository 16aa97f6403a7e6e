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

/// An error's text with its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
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
    fn an_error_brings_its_causes() {
        assert_eq!(TaskError::from(Outer(Inner)).to_string(), "upload failed: connection refused");
    }
}
