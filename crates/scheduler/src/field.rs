use std::fmt;

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Seconds, 0 to 59.
    Seconds,
    /// Minutes, 0 to 59.
    Minutes,
    /// Hours, 0 to 23.
    Hours,
    /// Days of the month, 1 to 31.
    Days,
    /// Months, 1 to 12 or by name.
    Months,
    /// Weekdays, 0 to 7 or by name; Monday is 1, Sunday is 0 and 7.
    Weekdays,
}

impl Field {
    /// In the order in which six of them are written.
    pub(crate) const ALL: [Self; 6] =
        [Self::Seconds, Self::Minutes, Self::Hours, Self::Days, Self::Months, Self::Weekdays];

    /// The smallest value.
    pub(crate) const fn first(self) -> u8 {
        match self {
            Self::Days | Self::Months => 1,
            Self::Seconds | Self::Minutes | Self::Hours | Self::Weekdays => 0,
        }
    }

    /// How many different values there are.
    pub(crate) const fn count(self) -> u8 {
        match self {
            Self::Seconds | Self::Minutes => 60,
            Self::Hours => 24,
            Self::Days => 31,
            Self::Months => 12,
            Self::Weekdays => 7,
        }
    }

    /// The largest value that may be written: 7 is another word for Sunday.
    pub(crate) const fn last_written(self) -> u8 {
        match self {
            Self::Weekdays => 7,
            _ => self.first() + self.count() - 1,
        }
    }

    /// All values, as bits.
    pub(crate) const fn all(self) -> u64 {
        ((1 << self.count()) - 1) << self.first()
    }

    /// What may be written, for errors.
    pub(crate) const fn allowed(self) -> &'static str {
        match self {
            Self::Seconds | Self::Minutes => "0 to 59",
            Self::Hours => "0 to 23",
            Self::Days => "1 to 31, L, LW and 15W",
            Self::Months => "1 to 12 and Jan to Dec",
            Self::Weekdays => "0 to 7, Sun to Sat, 5L and Fri#2",
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Months => &MONTHS,
            Self::Weekdays => &WEEKDAYS,
            _ => &[],
        }
    }

    /// The value of a name, whole or its first three letters, in any case.
    pub(crate) fn value_of_name(self, word: &str) -> Option<u8> {
        let matches = |name: &str| {
            name.eq_ignore_ascii_case(word)
                || name.get(..3).is_some_and(|short| short.eq_ignore_ascii_case(word))
        };
        let index = self.names().iter().position(|name| matches(name))?;
        u8::try_from(index).ok().map(|index| index + self.first())
    }

    /// The whole name of a value, if values of this field have names.
    pub(crate) fn name_of(self, value: u8) -> Option<&'static str> {
        self.names().get(usize::from(value.checked_sub(self.first())?)).copied()
    }

    /// A value as it is written in an expression.
    pub(crate) fn written(self, value: u8) -> String {
        match self.name_of(value).and_then(|name| name.get(..3)) {
            Some(short) => short.to_owned(),
            None => value.to_string(),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Days => "days of the month",
            Self::Months => "months",
            Self::Weekdays => "weekdays",
        })
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
