use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names one job for its whole life, through every room and every attempt.
///
/// New ids are UUIDv7, made by the client before it stores anything, so that an enqueue can be repeated
/// after an unclear failure, and so that ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// Wraps a UUID that the caller made, usually a UUIDv7.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The id that belongs to `key` of `task`: the same pair always gives the same id (UUIDv5).
    ///
    /// Enqueue with such an id and a repeated enqueue of the same key stores nothing new.
    pub fn from_key(task: &str, key: &str) -> Self {
        let name = format!("celeriac:{task}\u{0}{key}");
        Self(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    /// The 16 bytes, as engines store them.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The UUID itself.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({})", self.0)
    }
}

impl FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Identifies one run of one worker process.
///
/// It is random and made anew at each start: a host or process name would let a new worker hide a dead one
/// that had the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// Wraps a UUID that the caller made at random.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The 16 bytes, as engines store them.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerId({})", self.0)
    }
}

/// Names one claim in a store. Verdicts carry it; a claim that is gone accepts none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(i64);

impl ClaimId {
    /// Wraps the number that a store gave to a claim.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The store's number of the claim.
    pub const fn get(self) -> i64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_give_stable_and_distinct_ids() {
        assert_eq!(JobId::from_key("mail", "order-1"), JobId::from_key("mail", "order-1"));
        assert_ne!(JobId::from_key("mail", "order-1"), JobId::from_key("mail", "order-2"));
        assert_ne!(JobId::from_key("mail", "order-1"), JobId::from_key("bill", "order-1"));
    }

    #[test]
    fn ids_print_and_parse() {
        let id = JobId::from_key("a", "b");
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert!("not-an-id".parse::<JobId>().is_err());
    }
}
