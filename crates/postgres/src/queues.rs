use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use celeriac_core::{Error, QueueName, Result, nearest};

use crate::statement::Statement;
use crate::store::Store;

/// The numbers of the queues. A queue never goes and never changes its number, so what is known stays true.
#[derive(Debug, Default)]
pub(crate) struct Queues(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<QueueName, i32>,
    names: HashMap<i32, QueueName>,
}

impl Queues {
    pub(crate) fn learn(&self, name: QueueName, number: i32) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.names.insert(number, name.clone());
        known.numbers.insert(name, number);
    }

    fn number(&self, name: &QueueName) -> Option<i32> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).numbers.get(name).copied()
    }

    fn name(&self, number: i32) -> Option<QueueName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).names.get(&number).cloned()
    }

    /// Every known queue, by number.
    pub(crate) fn all(&self) -> Vec<i32> {
        let mut all: Vec<i32> =
            self.0.read().unwrap_or_else(PoisonError::into_inner).names.keys().copied().collect();
        all.sort_unstable();
        all
    }

    fn names(&self) -> Vec<String> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.numbers.keys().map(ToString::to_string).collect()
    }

    pub(crate) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}

impl Store {
    /// The number of a queue, if it was declared.
    pub(crate) async fn queue_number(&self, name: &QueueName) -> Result<Option<i32>> {
        if let Some(number) = self.queues.number(name) {
            return Ok(Some(number));
        }
        self.load_queues().await?;
        Ok(self.queues.number(name))
    }

    /// The number of a queue that must exist.
    pub(crate) async fn require_queue(&self, name: &QueueName) -> Result<i32> {
        self.queue_number(name).await?.ok_or_else(|| self.no_such_queue(name))
    }

    /// The name of a queue that a row belongs to.
    pub(crate) async fn queue_name(&self, number: i32) -> Result<QueueName> {
        if let Some(name) = self.queues.name(number) {
            return Ok(name);
        }
        self.load_queues().await?;
        self.queues
            .name(number)
            .ok_or_else(|| Error::corrupt(format!("queue {number}"), "jobs name it and it does not exist"))
    }

    pub(crate) fn no_such_queue(&self, name: &QueueName) -> Error {
        let names = self.queues.names();
        let nearest = nearest(name.as_str(), names.iter().map(String::as_str)).map(str::to_owned);
        Error::NoSuchQueue { queue: name.clone(), nearest }
    }

    /// Makes a queue if it is not there. Tells whether it is new.
    pub(crate) async fn create_queue(&self, name: &QueueName) -> Result<(i32, bool)> {
        let rows = self.query("declare a queue", Statement::DeclareQueue, &[&name.as_str()]).await?;
        let row = rows.first().ok_or_else(|| Error::corrupt("declare_queue", "it gave no row"))?;
        let number = row.get(0);
        self.queues.learn(name.clone(), number);
        Ok((number, row.get(1)))
    }

    pub(crate) async fn load_queues(&self) -> Result<()> {
        for row in self.query("read the queues", Statement::QueueNumbers, &[]).await? {
            self.queues.learn(QueueName::new(row.get::<_, &str>(1))?, row.get(0));
        }
        Ok(())
    }
}
