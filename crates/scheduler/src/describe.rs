use crate::cron_expression::Cron;
use crate::field::Field;
use crate::item::{Item, Values};

impl Cron {
    /// A sentence in plain words, without a dot at its end: `at 09:00 on Monday to Friday`.
    pub fn describe(&self) -> String {
        let times = self.named_times();
        let named = times.is_some();
        let mut text = times.unwrap_or_else(|| self.recurring_times());
        match self.day_phrase() {
            Some(days) => text.push_str(&format!(" {days}")),
            None if named => text.push_str(" every day"),
            None => {}
        }
        if !self.months.is_full() {
            let names = runs_around(&self.months).into_iter().map(|run| run.said(month)).collect();
            text.push_str(&format!(", in {}", enumerated(names)));
        }
        text
    }

    /// The times of the day, if they are few enough to be read: `at 09:00 and 17:30`.
    fn named_times(&self) -> Option<String> {
        let (hours, minutes, seconds) = (self.hours.list(), self.minutes.list(), self.seconds.list());
        if hours.len() * minutes.len() * seconds.len() > FEW {
            return None;
        }
        let mut times = Vec::with_capacity(FEW);
        for hour in &hours {
            for minute in &minutes {
                for second in &seconds {
                    times.push(match seconds[..] {
                        [0] => format!("{hour:02}:{minute:02}"),
                        _ => format!("{hour:02}:{minute:02}:{second:02}"),
                    });
                }
            }
        }
        Some(format!("at {}", enumerated(times)))
    }

    /// What recurs within a day: `every 5 minutes between 09:00 and 17:59`.
    fn recurring_times(&self) -> String {
        let (minutes, seconds) = (self.minutes.list(), self.seconds.list());
        let whole_minutes = seconds == [0];
        if whole_minutes
            && let [minute] = minutes[..]
            && let Some(step) = regular(&self.hours)
        {
            let hours = if step == 1 { "every hour".to_owned() } else { format!("every {step} hours") };
            return match minute {
                0 => format!("{hours} on the hour"),
                _ => format!("{hours} at minute {minute}"),
            };
        }
        if whole_minutes
            && let [minute] = minutes[..]
            && let [Run { first, last }] = runs_around(&self.hours)[..]
        {
            return format!("every hour from {first:02}:{minute:02} to {last:02}:{minute:02}");
        }
        let rest_of_hours = if self.hours.is_full() { " of every hour".to_owned() } else { self.of_hours() };
        if whole_minutes {
            return match pace(&self.minutes, "minute") {
                Some(pace) => format!("{pace}{}", self.between_hours()),
                None => format!("at {}{rest_of_hours}", listed("minute", &minutes)),
            };
        }
        let seconds =
            pace(&self.seconds, "second").unwrap_or_else(|| format!("at {}", listed("second", &seconds)));
        match pace(&self.minutes, "minute") {
            Some(_) if self.minutes.is_full() => format!("{seconds}{}", self.between_hours()),
            Some(pace) => format!("{seconds} of one minute {pace}{}", self.between_hours()),
            None => format!("{seconds} of {}{rest_of_hours}", listed("minute", &minutes)),
        }
    }

    fn of_hours(&self) -> String {
        format!(" of {}", listed("hour", &self.hours.list()))
    }

    /// A limit to some hours, as a span of the day if they are one.
    fn between_hours(&self) -> String {
        if self.hours.is_full() {
            return String::new();
        }
        match runs_around(&self.hours)[..] {
            [Run { first, last }] => format!(" between {first:02}:00 and {last:02}:59"),
            _ => self.of_hours(),
        }
    }

    fn day_phrase(&self) -> Option<String> {
        let days = (!self.days.is_full()).then(|| self.month_days());
        let weekdays = (!self.weekdays.is_full()).then(|| self.week_days());
        let both_wanted = self.days.is_starred() || self.weekdays.is_starred();
        match (days, weekdays) {
            (Some(days), Some(weekdays)) if both_wanted => Some(format!("on {days} if that is {weekdays}")),
            (Some(days), Some(weekdays)) => {
                let every = if self.weekdays.is_special() { "" } else { "every " };
                Some(format!("on {days} and on {every}{weekdays}"))
            }
            // One field alone allows every day, and one is enough.
            (Some(_), None) | (None, Some(_)) if !both_wanted => None,
            (Some(days), None) => Some(format!("on {days}")),
            (None, Some(weekdays)) => Some(format!("on {weekdays}")),
            (None, None) => None,
        }
    }

    fn month_days(&self) -> String {
        if let [Item::Star { step }] = self.days.items[..] {
            return format!("every {} day of the month from the 1st", ordinal(step));
        }
        let mut parts: Vec<String> =
            runs(&self.days.list()).into_iter().map(|run| format!("the {}", run.said(ordinal))).collect();
        for item in &self.days.items {
            match *item {
                Item::LastDay => parts.push("the last day".to_owned()),
                Item::LastWorkday => parts.push("the last workday".to_owned()),
                Item::NearestWorkday(day) => {
                    parts.push(format!("the workday nearest to the {}", ordinal(day)));
                }
                _ => {}
            }
        }
        format!("{} of the month", enumerated(parts))
    }

    fn week_days(&self) -> String {
        let mut parts: Vec<String> =
            runs_around(&self.weekdays).into_iter().map(|run| run.said(weekday)).collect();
        for item in &self.weekdays.items {
            match *item {
                Item::LastOf(day) => parts.push(format!("the last {} of the month", weekday(day))),
                Item::NthOf(day, n) => {
                    parts.push(format!("the {} {} of the month", ordinal(n), weekday(day)));
                }
                _ => {}
            }
        }
        enumerated(parts)
    }
}

/// Values that follow each other.
#[derive(Clone, Copy)]
struct Run {
    first: u8,
    last: u8,
}

impl Run {
    fn said(self, name: impl Fn(u8) -> String) -> String {
        match self {
            Self { first, last } if first == last => name(first),
            Self { first, last } => format!("{} to {}", name(first), name(last)),
        }
    }
}

/// Three and more neighbours are one run; two are said one by one.
fn runs(values: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for group in values.chunk_by(|a, b| a + 1 == *b) {
        match *group {
            [first, .., last] if group.len() > 2 => runs.push(Run { first, last }),
            _ => runs.extend(group.iter().map(|value| Run { first: *value, last: *value })),
        }
    }
    runs
}

/// The same on a circle: hours from 22 to 2, weekdays from Friday to Monday. It starts after the widest gap.
fn runs_around(values: &Values) -> Vec<Run> {
    let (first, count) = (values.field.first(), values.field.count());
    // Among equal gaps a week starts on Monday, a day at midnight, a year in January.
    let origin = first + u8::from(values.field == Field::Weekdays);
    let mut circle: Vec<u8> = values.list().iter().map(|value| (value + count - origin) % count).collect();
    circle.sort_unstable();
    let gap_before = |index: usize| match index {
        0 => circle.first().zip(circle.last()).map(|(first, last)| first + count - last),
        _ => circle.get(index).zip(circle.get(index - 1)).map(|(value, before)| value - before),
    };
    let widest = (0..circle.len()).rev().max_by_key(|index| gap_before(*index)).unwrap_or(0);
    let Some(start) = circle.get(widest).copied() else { return Vec::new() };
    circle.rotate_left(widest);
    let turned: Vec<u8> = circle.iter().map(|value| (value + count - start) % count).collect();
    let back = |value: u8| (value + start + origin - first) % count + first;
    runs(&turned).into_iter().map(|run| Run { first: back(run.first), last: back(run.last) }).collect()
}

/// The step, if the values go evenly round the whole hour or day from zero.
fn regular(values: &Values) -> Option<u8> {
    let list = values.list();
    let count = values.field.count();
    let step = count / u8::try_from(list.len()).ok().filter(|n| *n > 1)?;
    (count.is_multiple_of(step) && list.iter().copied().eq((0..count).step_by(usize::from(step))))
        .then_some(step)
}

fn pace(values: &Values, unit: &str) -> Option<String> {
    regular(values)
        .map(|step| if step == 1 { format!("every {unit}") } else { format!("every {step} {unit}s") })
}

fn listed(unit: &str, values: &[u8]) -> String {
    let parts: Vec<String> =
        runs(values).into_iter().map(|run| run.said(|value| value.to_string())).collect();
    let plural = if values.len() == 1 { "" } else { "s" };
    format!("{unit}{plural} {}", enumerated(parts))
}

/// `a`, `a and b`, `a, b and c`.
fn enumerated(mut parts: Vec<String>) -> String {
    match parts.pop() {
        None => String::new(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

fn ordinal(number: u8) -> String {
    let ending = match (number % 10, number / 10 % 10) {
        (_, 1) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn month(value: u8) -> String {
    Field::Months.name_of(value).unwrap_or_default().to_owned()
}

fn weekday(value: u8) -> String {
    Field::Weekdays.name_of(value).unwrap_or_default().to_owned()
}

/// So many times of a day are read at a glance.
const FEW: usize = 6;
