use std::fmt;
use std::str::FromStr;

use celeriac_core::{Error, QueueName};

/// The queues that a worker serves, and how it shares its handlers among them.
///
/// * Written `high,default,low`: strictly in this order. A job of a later queue runs only while the earlier
///   ones are empty.
/// * Written `high=6,default=3,low=1`: by weight. While all have jobs, six of ten come from `high`; what one
///   does not use goes to the others, so no handler stands idle for a weight's sake.
///
/// At least one queue, none twice, and either all with a weight or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    queues: Vec<(QueueName, u32)>,
    order: Order,
}

/// How a worker chooses among its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// The first queue that has a job.
    Strict,
    /// In proportion to the weights.
    Weighted,
}

impl Subscription {
    /// The highest weight. A proportion of more than a thousand to one is a strict order in all but name.
    pub const MAX_WEIGHT: u32 = 1_000;
    /// The most queues: each is looked at by every claim.
    pub const MAX_QUEUES: usize = 100;

    /// Serves `queues` strictly in this order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, one is named twice, or there are more than
    /// [`Subscription::MAX_QUEUES`].
    pub fn strict(queues: impl IntoIterator<Item = QueueName>) -> Result<Self, Error> {
        Self { queues: queues.into_iter().map(|name| (name, 1)).collect(), order: Order::Strict }.checked()
    }

    /// Serves `queues` by weight.
    ///
    /// # Errors
    /// As [`Subscription::strict`], and for a weight that is not from 1 to [`Subscription::MAX_WEIGHT`].
    pub fn weighted(queues: impl IntoIterator<Item = (QueueName, u32)>) -> Result<Self, Error> {
        Self { queues: queues.into_iter().collect(), order: Order::Weighted }.checked()
    }

    /// Strict or weighted.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The names, in the order given.
    pub fn names(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.iter().map(|(name, _)| name)
    }

    /// The names with their weights; 1 each in a strict order.
    pub(crate) fn entries(&self) -> &[(QueueName, u32)] {
        &self.queues
    }

    fn checked(self) -> Result<Self, Error> {
        let refuse = |problem: String| Err(Error::invalid("queues", self.to_string(), problem));
        if self.queues.is_empty() {
            return refuse("at least one queue is needed".to_owned());
        }
        if self.queues.len() > Self::MAX_QUEUES {
            return refuse(format!("at most {} queues are allowed", Self::MAX_QUEUES));
        }
        for (place, (name, weight)) in self.queues.iter().enumerate() {
            if self.queues[..place].iter().any(|(other, _)| other == name) {
                return refuse(format!("{name} is named twice"));
            }
            if !(1..=Self::MAX_WEIGHT).contains(weight) {
                return refuse(format!(
                    "the weight of {name} is {weight}; allowed are 1 to {}",
                    Self::MAX_WEIGHT
                ));
            }
        }
        Ok(self)
    }
}

impl Default for Subscription {
    /// The queue `default`, which always exists.
    fn default() -> Self {
        Self { queues: vec![(QueueName::default_queue(), 1)], order: Order::Strict }
    }
}

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, weight)) in self.queues.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match self.order {
                Order::Strict => write!(f, "{comma}{name}")?,
                Order::Weighted => write!(f, "{comma}{name}={weight}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Subscription {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |problem: String| Error::invalid("queues", text, problem);
        let mut queues = Vec::new();
        let mut weights = 0;
        for part in text.split(',').map(str::trim) {
            if part.is_empty() {
                return Err(refuse(
                    "a name is missing; write high,default for an order, or high=6,default=3 for weights"
                        .to_owned(),
                ));
            }
            let (name, weight) = match part.split_once('=') {
                None => (part, 1),
                Some((name, weight)) => {
                    weights += 1;
                    let weight = weight.trim().parse::<u32>().map_err(|_| {
                        refuse(format!(
                            "{part:?} has no whole number from 1 to {} as its weight",
                            Self::MAX_WEIGHT
                        ))
                    })?;
                    (name.trim_end(), weight)
                }
            };
            queues.push((QueueName::new(name)?, weight));
        }
        if weights == 0 {
            return Self::strict(queues.into_iter().map(|(name, _)| name));
        }
        if weights < queues.len() {
            return Err(refuse("either all queues have a weight or none".to_owned()));
        }
        Self::weighted(queues)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_printed() {
        for (text, order) in [
            ("high,default", Order::Strict),
            ("high=6,default=3,low=1", Order::Weighted),
            ("a", Order::Strict),
        ] {
            let subscription: Subscription = text.parse().unwrap();
            assert_eq!(subscription.order(), order);
            assert_eq!(subscription.to_string(), text);
        }
        let spaced: Subscription = " high = 6 , low = 1 ".parse().unwrap();
        assert_eq!(spaced.to_string(), "high=6,low=1");
        assert_eq!(Subscription::default().to_string(), "default");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "a name is missing"),
            ("a,,b", "a name is missing"),
            ("a,b,a", "a is named twice"),
            ("a=2,b", "all queues have a weight or none"),
            ("a=0", "weight of a is 0; allowed are 1 to 1000"),
            ("a=1001", "weight of a is 1001"),
            ("a=x", "no whole number"),
            ("a=-1", "no whole number"),
            ("two words", "' ' at character 4"),
        ] {
            let error = text.parse::<Subscription>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?} gave {error}");
        }
        assert!(Subscription::strict([]).is_err());
        let many = (0..101).map(|n| QueueName::new(format!("q{n}")).unwrap());
        assert!(Subscription::strict(many).unwrap_err().to_string().contains("at most 100"));
    }
}
