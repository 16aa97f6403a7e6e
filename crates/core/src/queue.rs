use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The settings of one queue. Every engine keeps them with the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// After how many lost deliveries (its worker died or was cut off) a job goes to the dead-letter bin;
    /// at least 1. Default 3: suspects of a crash run one at a time, so only the culprit gets this far.
    pub delivery_limit: u32,
    /// Time to live of jobs that name none; none by default.
    pub ttl: Option<Duration>,
    /// What becomes of a job whose time to live passes. Default: the bin.
    pub on_expire: OnExpire,
    /// The most jobs that may wait to run (ready, not scheduled); none by default.
    pub max_length: Option<u64>,
    /// What happens to an enqueue over `max_length`. Default: refused.
    pub overflow: Overflow,
    /// How long dead jobs are kept; for ever by default, since nothing may vanish without somebody's decision.
    pub dead_retention: Option<Duration>,
    /// How long the store remembers when and where a job was done, for [`Broker::finished`](crate::Broker::finished). Not
    /// at all by default: what is never asked for should not be written.
    pub history: Option<Duration>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            delivery_limit: 3,
            ttl: None,
            on_expire: OnExpire::default(),
            max_length: None,
            overflow: Overflow::default(),
            dead_retention: None,
            history: None,
        }
    }
}

/// What becomes of a job that was not started within its time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnExpire {
    /// To the dead-letter bin, reason `expired`.
    #[default]
    Bury,
    /// Removed, and counted.
    Drop,
}

/// What happens when a queue is at its length limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overflow {
    /// The oldest ready jobs go to the dead-letter bin, reason `max_length`, to make room.
    DropOldest,
    /// The enqueue is refused with an error that names the limit; nothing is stored.
    #[default]
    Refuse,
}

/// Whether workers take jobs from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Paused {
    /// Workers take jobs.
    No,
    /// Jobs are accepted and wait; what runs goes on.
    Yes,
}

/// A change to a queue's settings. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueChange {
    /// See [`QueueSettings::delivery_limit`].
    pub delivery_limit: Option<u32>,
    /// See [`QueueSettings::ttl`]; `Some(None)` removes it.
    pub ttl: Option<Option<Duration>>,
    /// See [`QueueSettings::on_expire`].
    pub on_expire: Option<OnExpire>,
    /// See [`QueueSettings::max_length`]; `Some(None)` removes it.
    pub max_length: Option<Option<u64>>,
    /// See [`QueueSettings::overflow`].
    pub overflow: Option<Overflow>,
    /// See [`QueueSettings::dead_retention`]; `Some(None)` removes it.
    pub dead_retention: Option<Option<Duration>>,
    /// See [`QueueSettings::history`]; `Some(None)` ends it.
    pub history: Option<Option<Duration>>,
    /// Stop or go on handing out jobs.
    pub paused: Option<Paused>,
}

impl QueueChange {
    /// The settings after this change.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a delivery limit or a length limit of 0.
    pub fn apply(&self, mut settings: QueueSettings) -> crate::Result<QueueSettings> {
        if let Some(limit) = self.delivery_limit {
            if limit == 0 {
                return Err(crate::Error::invalid("delivery limit", "0", "it must be at least 1"));
            }
            settings.delivery_limit = limit;
        }
        if let Some(limit) = self.max_length {
            if limit == Some(0) {
                return Err(crate::Error::invalid(
                    "length limit",
                    "0",
                    "it must be at least 1; to stop a queue, pause it",
                ));
            }
            settings.max_length = limit;
        }
        if let Some(ttl) = self.ttl {
            settings.ttl = ttl;
        }
        if let Some(on_expire) = self.on_expire {
            settings.on_expire = on_expire;
        }
        if let Some(overflow) = self.overflow {
            settings.overflow = overflow;
        }
        if let Some(retention) = self.dead_retention {
            settings.dead_retention = retention;
        }
        if let Some(history) = self.history {
            settings.history = history;
        }
        Ok(settings)
    }
}

/// What a declaration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declared {
    /// The queue is new.
    Created,
    /// The queue was there; its settings were changed if any were given.
    Existed,
}
