use std::fmt;
use std::ops::Range;

use crate::field::Field;

/// A text that is no cron expression: which field, where, and what is allowed there.
///
/// Printed, it is a sentence with the expression and carets under the place:
///
/// ```text
/// hours: 25 is too large; allowed are 0 to 23
///   0 25 * * *
///     ^^
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    expression: String,
    field: Option<Field>,
    span: Range<usize>,
    problem: String,
}

impl CronError {
    pub(crate) fn new(
        expression: &str,
        field: Option<Field>,
        span: Range<usize>,
        problem: impl Into<String>,
    ) -> Self {
        Self { expression: expression.to_owned(), field, span, problem: problem.into() }
    }

    /// The field that is wrong, if it is one.
    pub const fn field(&self) -> Option<Field> {
        self.field
    }

    /// The place in bytes of what was given.
    pub const fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// What is wrong and what is allowed, on one line, without the expression.
    pub fn problem(&self) -> String {
        match self.field {
            Some(field) => format!("{field}: {}", self.problem),
            None => self.problem.clone(),
        }
    }

    /// What was given; only its beginning if it was too long to be an expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())?;
        if self.expression.trim().is_empty() {
            return Ok(());
        }
        // One column for each character, whatever it is.
        let shown: String = (self.expression.chars())
            .map(|c| match c {
                c if c.is_whitespace() => ' ',
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect();
        let columns =
            |range: Range<usize>| self.expression.char_indices().filter(|(at, _)| range.contains(at)).count();
        let before = columns(0..self.span.start);
        let under = columns(self.span.clone()).max(1);
        write!(f, "\n  {}\n  {}{}", shown.trim_end(), " ".repeat(before), "^".repeat(under))
    }
}

impl std::error::Error for CronError {}
