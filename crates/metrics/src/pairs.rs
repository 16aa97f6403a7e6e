use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use celeriac_core::{QueueName, TaskName};

/// The label of everything that is beyond a bound.
pub const OTHER: &str = "other";

/// What is kept for each task and queue: handles, so that a job costs no look-up in the recorder.
///
/// Names come from whoever may enqueue. After [`MAX_PAIRS`] pairs all further ones share one entry, labelled
/// [`OTHER`]: neither our memory nor that of a time series database grows with them.
#[derive(Debug)]
pub(crate) struct Pairs<T> {
    make: fn(&str, &str) -> T,
    known: RwLock<Known<T>>,
}

#[derive(Debug)]
struct Known<T> {
    pairs: HashMap<TaskName, HashMap<QueueName, Arc<T>>>,
    count: usize,
    other: Option<Arc<T>>,
}

impl<T> Pairs<T> {
    /// `make` gets the labels: queue, then task.
    pub(crate) fn new(make: fn(&str, &str) -> T) -> Self {
        Self { make, known: RwLock::new(Known { pairs: HashMap::new(), count: 0, other: None }) }
    }

    pub(crate) fn of(&self, queue: &QueueName, task: &TaskName) -> Arc<T> {
        // Nothing panics halfway through a change of this table.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.find(queue, task) {
            return found;
        }
        if known.count >= MAX_PAIRS
            && let Some(other) = &known.other
        {
            return Arc::clone(other);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.find(queue, task) {
            return found;
        }
        if known.count >= MAX_PAIRS {
            return Arc::clone(known.other.get_or_insert_with(|| Arc::new((self.make)(OTHER, OTHER))));
        }
        let made = Arc::new((self.make)(queue.as_str(), task.as_str()));
        known.pairs.entry(task.clone()).or_default().insert(queue.clone(), Arc::clone(&made));
        known.count += 1;
        made
    }
}

impl<T> Known<T> {
    fn find(&self, queue: &QueueName, task: &TaskName) -> Option<Arc<T>> {
        self.pairs.get(task)?.get(queue).cloned()
    }
}

/// A pair has some 80 time series, so this is 16,000 for one process: as much as a scrape should carry.
pub(crate) const MAX_PAIRS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_names_shares_one_entry_and_the_first_keep_theirs() {
        let pairs = Pairs::new(|queue, task| format!("{queue}/{task}"));
        let queue = QueueName::default_queue();
        let task = |number: usize| TaskName::new(format!("t{number}")).unwrap();
        for number in 0..MAX_PAIRS + 5_000 {
            pairs.of(&queue, &task(number));
        }
        assert_eq!(*pairs.of(&queue, &task(0)), "default/t0");
        assert_eq!(*pairs.of(&queue, &task(MAX_PAIRS - 1)), format!("default/t{}", MAX_PAIRS - 1));
        assert_eq!(*pairs.of(&queue, &task(MAX_PAIRS)), "other/other");
        assert_eq!(*pairs.of(&QueueName::new("else").unwrap(), &task(0)), "other/other");
        assert_eq!(pairs.known.read().unwrap().count, MAX_PAIRS);
    }
}
