use std::fmt;
use std::str::FromStr;

use chrono::{Days, NaiveDateTime, NaiveTime};
use cron::Schedule;

use crate::calendar::{day_exists, day_matches};
use crate::cron_error::CronError;
use crate::field::Field;
use crate::item::Values;

/// A cron expression. The crate's documentation has its language.
///
/// * Five fields, or six with seconds in front, each with at least one value.
/// * No date that no year has, such as 31 February.
/// * Printed, it reads back as an equal expression: blanks, macros and the numbers of months and weekdays are replaced.
#[derive(Clone, Debug)]
pub struct Cron {
    pub(crate) seconds: Values,
    pub(crate) minutes: Values,
    pub(crate) hours: Values,
    pub(crate) days: Values,
    pub(crate) months: Values,
    pub(crate) weekdays: Values,
    /// Whether seconds were written.
    has_seconds: bool,
    /// The library's schedules, on a wall clock that never changes; the earliest of them is next.
    schedules: Vec<Schedule>,
    /// Days that the schedules give are asked again.
    filtered: bool,
}

impl Cron {
    /// The longest expression, in bytes. A list of all 60 minutes needs 170.
    pub const MAX_LENGTH: usize = 256;

    /// Reads an expression such as `0 9 * * Mon-Fri` or `@daily`.
    ///
    /// Time and memory are bounded by [`MAX_LENGTH`](Self::MAX_LENGTH), whatever the numbers in the text.
    ///
    /// # Errors
    /// [`CronError`] points at what is wrong and says what is allowed there.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let refuse = |problem: String| CronError::new(text, None, 0..text.len(), problem);
        if text.len() > Self::MAX_LENGTH {
            let start: String = text.chars().take(40).collect();
            let problem =
                format!("an expression has at most {} bytes, this has {}", Self::MAX_LENGTH, text.len());
            let end = start.len();
            return Err(CronError::new(&format!("{start}…"), None, 0..end, problem));
        }
        let trimmed = text.trim();
        if trimmed.starts_with('@') {
            let expanded = expand_macro(trimmed).map_err(refuse)?;
            return Self::parse(expanded);
        }
        let words = words(text);
        let fields = match words.len() {
            5 => &Field::ALL[1..],
            6 => &Field::ALL[..],
            0 => return Err(refuse(format!("the expression is empty; {FORM}"))),
            7 => return Err(refuse(format!("it has 7 fields, and years are not supported; {FORM}"))),
            n => return Err(refuse(format!("it has {n} field{}; {FORM}", if n == 1 { "" } else { "s" }))),
        };
        let mut values = Vec::with_capacity(6);
        for (field, (start, word)) in fields.iter().zip(&words) {
            let read = Values::parse(*field, word).map_err(|(span, problem)| {
                CronError::new(text, Some(*field), start + span.start..start + span.end, problem)
            })?;
            values.push(read);
        }
        if values.len() == 5 {
            values.insert(0, Values::only(Field::Seconds, 0));
        }
        let [seconds, minutes, hours, days, months, weekdays] =
            <[Values; 6]>::try_from(values).map_err(|_| refuse(FORM.to_owned()))?;
        let either = !days.is_starred() && !weekdays.is_starred();
        if !either && !day_exists(&days, &months) {
            let (start, word) = words[fields.len() - 3];
            let problem = "no such day in any of the months; February has at most 29 days, and April, June, September and November have 30";
            return Err(CronError::new(text, Some(Field::Days), start..start + word.len(), problem));
        }
        Self::build(seconds, minutes, hours, days, months, weekdays, fields.len() == 6).map_err(refuse)
    }

    fn build(
        seconds: Values,
        minutes: Values,
        hours: Values,
        days: Values,
        months: Values,
        weekdays: Values,
        has_seconds: bool,
    ) -> Result<Self, String> {
        let filtered = days.is_special() || weekdays.is_special();
        let (any_day, any_weekday) = (Values::any(Field::Days), Values::any(Field::Weekdays));
        let day_fields = match (filtered, days.is_starred() || weekdays.is_starred()) {
            // Entries that depend on the month are unknown to the library: it gives every day, and we choose.
            (true, _) => vec![(&any_day, &any_weekday)],
            // It wants both fields to match …
            (false, true) => vec![(&days, &weekdays)],
            // … so where either is enough, there are two schedules.
            (false, false) => vec![(&days, &any_weekday), (&any_day, &weekdays)],
        };
        let schedules = day_fields
            .into_iter()
            .map(|(days, weekdays)| {
                let text = [&seconds, &minutes, &hours, days, &months, weekdays].map(library_field).join(" ");
                Schedule::from_str(&text)
                    .map_err(|error| format!("the expression is not understood: {error}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { seconds, minutes, hours, days, months, weekdays, has_seconds, schedules, filtered })
    }

    /// Whether it follows real time over a clock change, as opposed to naming its times.
    pub(crate) fn follows_real_time(&self) -> bool {
        self.minutes.is_starred() || self.hours.is_starred()
    }

    /// The first time after `wall` that matches, on a wall clock that never changes. None past the year 2100.
    pub(crate) fn next_local(&self, wall: NaiveDateTime) -> Option<NaiveDateTime> {
        let mut from = wall;
        loop {
            // The library knows clock changes only of zones; in UTC there are none.
            let next = (self.schedules.iter())
                .filter_map(|schedule| schedule.after(&from.and_utc()).next())
                .map(|next| next.naive_utc())
                .min()?;
            if !self.filtered || day_matches(&self.days, &self.weekdays, next.date()) {
                return Some(next);
            }
            // Each round is a day further, and the library ends in the year 2100.
            from = next.date().checked_add_days(Days::new(1))?.and_time(NaiveTime::MIN)
                - chrono::TimeDelta::seconds(1);
        }
    }

    /// Whether it names this time of a wall clock.
    pub(crate) fn includes(&self, wall: NaiveDateTime) -> bool {
        wall.checked_sub_signed(chrono::TimeDelta::seconds(1)).and_then(|before| self.next_local(before))
            == Some(wall)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cron {}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_seconds {
            write!(f, "{} ", self.seconds)?;
        }
        write!(f, "{} {} {} {} {}", self.minutes, self.hours, self.days, self.months, self.weekdays)
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// What a field means, in the library's language: plain lists, names for weekdays, which it numbers from Sunday = 1.
fn library_field(values: &Values) -> String {
    if values.is_full() {
        return "*".to_owned();
    }
    let list: Vec<String> = values.list().into_iter().map(|value| values.field.written(value)).collect();
    list.join(",")
}

fn expand_macro(text: &str) -> Result<&'static str, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "@annually" | "@yearly" => "0 0 1 1 *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@reboot" => {
            return Err(
                "@reboot is no time: nothing restarts here; enqueue the job when the service starts".into()
            );
        }
        word if word.starts_with("@every") => {
            return Err("an interval is no cron expression; give it as an interval, such as 30s".into());
        }
        _ => {
            return Err(
                "it is not known; allowed are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"
                    .into(),
            );
        }
    })
}

/// The words of a text with their places in bytes.
fn words(text: &str) -> Vec<(usize, &str)> {
    // A word is a part of the text, so the difference of their addresses is its place.
    text.split_whitespace().map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word)).collect()
}

const FORM: &str =
    "write five: minutes, hours, days of the month, months and weekdays, or six with seconds in front";
