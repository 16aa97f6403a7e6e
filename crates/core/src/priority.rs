use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// 0 to 9, higher first; 0 is the default, so that a raised priority is always something somebody chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

/// A number that is no priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("priority {value} is out of range; allowed are 0 to 9, higher first")]
pub struct InvalidPriority {
    /// What was given.
    pub value: String,
}

impl Priority {
    /// The highest priority, 9.
    pub const HIGHEST: Self = Self(9);
    /// The lowest priority and the default, 0.
    pub const LOWEST: Self = Self(0);

    /// Checks the range.
    ///
    /// # Errors
    /// [`InvalidPriority`] when `value` is over 9.
    pub fn new(value: u8) -> Result<Self, InvalidPriority> {
        if value > 9 {
            return Err(InvalidPriority { value: value.to_string() });
        }
        Ok(Self(value))
    }

    /// For constants, where a bad number must fail the build.
    ///
    /// # Panics
    /// When `value` is over 9; in a `const` that is a compile error.
    pub const fn constant(value: u8) -> Self {
        assert!(value <= 9, "priority is out of range; allowed are 0 to 9");
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Priority {
    type Err = InvalidPriority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<u8>()
            .ok()
            .and_then(|value| Self::new(value).ok())
            .ok_or_else(|| InvalidPriority { value: text.to_owned() })
    }
}

impl TryFrom<u8> for Priority {
    type Error = InvalidPriority;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        Self::new(value)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}
