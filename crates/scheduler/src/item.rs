use std::fmt;
use std::ops::Range;

use crate::field::Field;

/// What one field of an expression says: the entries of its list, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) field: Field,
    pub(crate) items: Vec<Item>,
}

/// One entry of a field's list. Weekdays are 0 (Sunday) to 6 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `L` among the days: the last day of the month.
    LastDay,
    /// `5L` among the weekdays: the last one in the month.
    LastOf(u8),
    /// `LW`: the last workday of the month.
    LastWorkday,
    /// `15W`: the workday nearest to that day, in the same month.
    NearestWorkday(u8),
    /// `5#2`: the second one in the month.
    NthOf(u8, u8),
    /// `7`, `2-9`, `2-9/3`. It wraps when `from` is larger than `to`.
    Span { from: u8, to: u8, step: u8 },
    /// `*`, `*/5`, `?`.
    Star { step: u8 },
}

/// What is wrong with a part of a field, with its place in it.
pub(crate) type Problem = (Range<usize>, String);

impl Values {
    /// Reads one field. The caller bounds its length.
    pub(crate) fn parse(field: Field, text: &str) -> Result<Self, Problem> {
        let mut items = Vec::new();
        let mut at = 0;
        for entry in text.split(',') {
            let item = Item::parse(field, entry)
                .map_err(|(span, problem)| (span.start + at..span.end + at, problem))?;
            items.push(item);
            at += entry.len() + 1;
        }
        Ok(Self { field, items })
    }

    /// One value.
    pub(crate) fn only(field: Field, value: u8) -> Self {
        Self { field, items: vec![Item::Span { from: value, to: value, step: 1 }] }
    }

    /// Any value.
    pub(crate) fn any(field: Field) -> Self {
        Self { field, items: vec![Item::Star { step: 1 }] }
    }

    /// The plain values, as bits. Entries that depend on the month have none.
    pub(crate) fn bits(&self) -> u64 {
        self.items.iter().fold(0, |bits, item| bits | item.bits(self.field))
    }

    /// Whether it is written with a `*` in front: that decides about the two day fields and about clock changes.
    pub(crate) fn is_starred(&self) -> bool {
        matches!(self.items.first(), Some(Item::Star { .. }))
    }

    /// Whether an entry depends on the month.
    pub(crate) fn is_special(&self) -> bool {
        self.items.iter().any(|item| item.is_special())
    }

    /// Whether every value is meant.
    pub(crate) fn is_full(&self) -> bool {
        self.bits() == self.field.all()
    }

    /// The plain values in rising order.
    pub(crate) fn list(&self) -> Vec<u8> {
        let bits = self.bits();
        (0..64).filter(|value| bits >> value & 1 == 1).collect()
    }
}

impl Item {
    fn parse(field: Field, text: &str) -> Result<Self, Problem> {
        let whole = 0..text.len();
        if text.is_empty() {
            return Err((0..1, "an entry of the list is empty".to_owned()));
        }
        let (base, step) = match text.split_once('/') {
            None => (text, None),
            Some((base, step)) => {
                let start = base.len() + 1;
                let step = parse_step(field, step).map_err(|problem| (start..text.len(), problem))?;
                (base, Some(step))
            }
        };
        if base == "*" {
            return Ok(Self::Star { step: step.unwrap_or(1) });
        }
        if base == "?" {
            return match (field, step) {
                (Field::Days | Field::Weekdays, None) => Ok(Self::Star { step: 1 }),
                (Field::Days | Field::Weekdays, Some(_)) => {
                    Err((whole, "? takes no step; write * with a step".to_owned()))
                }
                _ => Err((whole, "? is for the day fields alone; write *".to_owned())),
            };
        }
        if let Some(special) = Self::parse_special(field, base)? {
            return match step {
                None => Ok(special),
                Some(_) => Err((whole, format!("{base} takes no step"))),
            };
        }
        let (from, to) = match base.split_once('-') {
            Some((from, to)) => {
                let start = from.len() + 1;
                let last =
                    parse_value(field, to).map_err(|problem| (start..(start + to.len().max(1)), problem))?;
                let first = parse_value(field, from).map_err(|problem| (0..from.len().max(1), problem))?;
                (first, last)
            }
            None => {
                let value = parse_value(field, base).map_err(|problem| (0..base.len(), problem))?;
                // As elsewhere, `5/15` starts at 5 and goes on to the end.
                let to = if step.is_some() { field.last_written() } else { value };
                (value, to)
            }
        };
        // 7 is Sunday too. Only from 0 to 7 would that turn the whole week into a single day.
        let (from, to) = match (field, from, to) {
            (Field::Weekdays, 0, 7) => (0, 6),
            (Field::Weekdays, from, to) => (from % 7, to % 7),
            (_, from, to) => (from, to),
        };
        Ok(Self::Span { from, to, step: step.unwrap_or(1) })
    }

    /// Reads what only the day fields have.
    fn parse_special(field: Field, text: &str) -> Result<Option<Self>, Problem> {
        let whole = 0..text.len();
        let before = |letter: char| {
            let end = text.char_indices().next_back()?;
            end.1.eq_ignore_ascii_case(&letter).then(|| &text[..end.0])
        };
        match field {
            Field::Days => {
                if text.eq_ignore_ascii_case("L") {
                    return Ok(Some(Self::LastDay));
                }
                if text.eq_ignore_ascii_case("LW") {
                    return Ok(Some(Self::LastWorkday));
                }
                let Some(day) = before('W') else { return Ok(None) };
                if day.is_empty() || day.contains('-') {
                    return Err((whole, "W stands after a single day, such as 15W, or as LW".to_owned()));
                }
                let day = parse_value(field, day).map_err(|problem| (0..day.len(), problem))?;
                Ok(Some(Self::NearestWorkday(day)))
            }
            Field::Weekdays => {
                if let Some((day, n)) = text.split_once('#') {
                    let start = day.len() + 1;
                    let day = parse_value(field, day).map_err(|problem| (0..day.len().max(1), problem))?;
                    return match n.parse::<u8>() {
                        Ok(n @ 1..=5) if n.to_string().len() == text.len() - start => {
                            Ok(Some(Self::NthOf(day % 7, n)))
                        }
                        _ => Err((
                            start..text.len().max(start + 1),
                            "after # stands which one of the month, 1 to 5".to_owned(),
                        )),
                    };
                }
                let Some(day) = before('L') else { return Ok(None) };
                if day.is_empty() || day.contains('-') {
                    let problem = "L stands after a single weekday: 5L and FriL are the last Friday";
                    return Err((whole, problem.to_owned()));
                }
                let day = parse_value(field, day).map_err(|problem| (0..day.len(), problem))?;
                Ok(Some(Self::LastOf(day % 7)))
            }
            _ => Ok(None),
        }
    }

    const fn is_special(self) -> bool {
        !matches!(self, Self::Span { .. } | Self::Star { .. })
    }

    fn bits(self, field: Field) -> u64 {
        let (first, count) = (field.first(), field.count());
        let (from, to, step) = match self {
            Self::Span { from, to, step } => (from, to, step),
            Self::Star { step } => (first, first + count - 1, step),
            _ => return 0,
        };
        let length = if from <= to { to - from } else { to + count - from };
        (0..=length)
            .step_by(usize::from(step.max(1)))
            .fold(0, |bits, offset| bits | 1 << (first + (from - first + offset) % count))
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let shown = |value: u8| self.field.written(value);
            match *item {
                Item::LastDay => f.write_str("L")?,
                Item::LastOf(day) => write!(f, "{}L", shown(day))?,
                Item::LastWorkday => f.write_str("LW")?,
                Item::NearestWorkday(day) => write!(f, "{day}W")?,
                Item::NthOf(day, n) => write!(f, "{}#{n}", shown(day))?,
                Item::Span { from, to, .. } if from == to => f.write_str(&shown(from))?,
                Item::Span { from, to, step: 1 } => write!(f, "{}-{}", shown(from), shown(to))?,
                Item::Span { from, to, step } => write!(f, "{}-{}/{step}", shown(from), shown(to))?,
                Item::Star { step: 1 } => f.write_str("*")?,
                Item::Star { step } => write!(f, "*/{step}")?,
            }
        }
        Ok(())
    }
}

fn parse_step(field: Field, text: &str) -> Result<u8, String> {
    let largest = field.count();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("a step is a number from 1 to {largest}, such as */5"));
    }
    match text.parse::<u8>() {
        Ok(step) if (1..=largest).contains(&step) => Ok(step),
        Ok(0) => Err("a step of 0 would never move on; a step is 1 or more".to_owned()),
        // An expression starts anew each hour, day or year: it cannot count beyond.
        _ => Err(format!(
            "a step of {text} is too large; allowed are 1 to {largest}, use an interval for more"
        )),
    }
}

fn parse_value(field: Field, text: &str) -> Result<u8, String> {
    if text.is_empty() {
        return Err("a range needs a value on both sides of its dash".to_owned());
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return field
            .value_of_name(text)
            .ok_or_else(|| format!("{text:?} is not known here; allowed are {}", field.allowed()));
    }
    match text.parse::<u8>() {
        Ok(value) if value < field.first() => {
            Err(format!("{value} is too small; allowed are {}", field.allowed()))
        }
        Ok(value) if value <= field.last_written() => Ok(value),
        _ => Err(format!("{text} is too large; allowed are {}", field.allowed())),
    }
}
