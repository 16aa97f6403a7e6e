use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a queue.
///
/// * 1 to 100 characters,
/// * ASCII letters, digits and `_ - . :` only,
/// * starting with a letter or a digit.
///
/// The set is narrow so that a name is safe in a command line, a metric label and a file name as it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QueueName(Arc<str>);

/// The stable name of a task: the function's name, or the one given with `#[task(name = "…")]`.
///
/// * 1 to 200 characters,
/// * ASCII letters, digits and `_ - . : /` only,
/// * starting with a letter, a digit or `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskName(Arc<str>);

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name {value:?} {problem}")]
pub struct InvalidName {
    /// `queue` or `task`.
    pub kind: &'static str,
    /// What was given, shortened to 120 characters.
    pub value: String,
    /// What is wrong with it, and where.
    pub problem: String,
}

impl QueueName {
    /// The longest name, in characters.
    pub const MAX_LENGTH: usize = 100;

    /// The queue that always exists.
    pub fn default_queue() -> Self {
        Self(Arc::from("default"))
    }

    /// Checks `text` against the rules above.
    ///
    /// # Errors
    /// [`InvalidName`] names the first character that is not allowed, and its place.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        check("queue", text, Self::MAX_LENGTH, "_-.:", "")?;
        Ok(Self(Arc::from(text)))
    }
}

impl TaskName {
    /// The longest name, in characters.
    pub const MAX_LENGTH: usize = 200;

    /// Checks `text` against the rules above.
    ///
    /// # Errors
    /// [`InvalidName`] names the first character that is not allowed, and its place.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        check("task", text, Self::MAX_LENGTH, "_-.:/", "_")?;
        Ok(Self(Arc::from(text)))
    }
}

fn check(
    kind: &'static str,
    text: &str,
    longest: usize,
    inside: &str,
    also_first: &str,
) -> Result<(), InvalidName> {
    let refuse = |problem: String| {
        let mut value: String = text.chars().take(120).collect();
        if value.len() < text.len() {
            value.push('…');
        }
        Err(InvalidName { kind, value, problem })
    };
    let length = text.chars().count();
    if length == 0 {
        return refuse("is empty".to_owned());
    }
    if length > longest {
        return refuse(format!("has {length} characters; at most {longest} are allowed"));
    }
    for (place, c) in text.chars().enumerate() {
        let allowed =
            c.is_ascii_alphanumeric() || if place == 0 { also_first.contains(c) } else { inside.contains(c) };
        if !allowed {
            let spelled: Vec<String> = inside.chars().map(String::from).collect();
            return refuse(format!(
                "has {c:?} at character {}; allowed are ASCII letters, digits and {} (first a letter or digit)",
                place + 1,
                spelled.join(" ")
            ));
        }
    }
    Ok(())
}

macro_rules! name_impls {
    ($name:ident) => {
        impl $name {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_impls!(QueueName);
name_impls!(TaskName);

impl Default for QueueName {
    fn default() -> Self {
        Self::default_queue()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_refused_with_the_place() {
        let error = QueueName::new("two words").unwrap_err();
        assert_eq!(
            error.to_string(),
            "queue name \"two words\" has ' ' at character 4; allowed are ASCII letters, digits and _ - . : \
             (first a letter or digit)"
        );
        assert!(QueueName::new("").unwrap_err().problem.contains("empty"));
        let long = QueueName::new("x".repeat(300)).unwrap_err();
        assert!(long.problem.contains("300 characters; at most 100"), "{long}");
        assert!(long.value.chars().count() <= 121);
        assert!(QueueName::new("-x").is_err());
        assert!(QueueName::new("é").is_err());
        assert!(TaskName::new("reports/daily.v2").is_ok());
        assert!(TaskName::new("_private").is_ok());
    }
}
