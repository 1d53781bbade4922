//! Members: the entries by which workers show that they are alive, without a comparison of clocks.
//!
//! Each worker keeps one member entry. Its heartbeat writes the entry anew. Another worker may declare it
//! dead only after it has itself seen that entry unchanged for a full TTL, on its own steady clock. It does
//! so by deleting the entry with the version that it saw, which fails if there was a heartbeat in between.
//! The worker itself counts its lease from before a heartbeat was sent. It stops starting messages well
//! before the TTL is over.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::claim::is_false;
use super::{EntryKey, corrupt};
use crate::Result;
use crate::fault;
use crate::model::{Format, MessageId};
use crate::runtime::Timestamp;

/// The content of a member entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// The number of the heartbeat. It grows with every heartbeat.
    pub beat: u64,
    /// The topics whose messages the worker runs.
    pub topics: Vec<String>,
    /// The number of messages that the worker can run at once.
    pub slots: u32,
    /// The time for which the worker may be silent, in milliseconds.
    pub ttl_ms: u64,
    /// True if the worker runs the messages of a key in their order.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// The time of the heartbeat, by the worker's own clock. It is only for people: it never decides who is
    /// alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat_at: Option<Timestamp>,
    /// How much the worker holds of its group's limits, by the uid of the topic; empty if the group has no
    /// limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_use: BTreeMap<String, InUse>,
    /// The running messages whose handlers have noted something. These are not all running messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningMessage>,
    /// The newest format that the worker's program understands.
    #[serde(default, skip_serializing_if = "Format::is_first")]
    pub format: Format,
}

/// The part of a group's limit on a topic that a worker holds. The worker never uses more than its entry
/// says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InUse {
    /// The number of messages that it may run at once, or still runs.
    pub running: u64,
    /// The number of messages that it may start in a second, in billionths.
    pub rate: u64,
}

impl std::ops::AddAssign for InUse {
    fn add_assign(&mut self, other: Self) {
        self.running = self.running.saturating_add(other.running);
        self.rate = self.rate.saturating_add(other.rate);
    }
}

/// A running message, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningMessage {
    /// The id that the push returned.
    pub id: MessageId,
    /// The name of the topic to which the message was pushed.
    pub topic: String,
    /// The time at which it began to run, by its worker's clock.
    pub since: Timestamp,
    /// The latest note of its handler (`Context::note` of the crate `sawmill`).
    pub note: String,
}

impl Member {
    /// Decodes the content of an entry. It never panics, whatever is stored there.
    pub fn decode(key: &EntryKey, value: &[u8]) -> Result<Self> {
        serde_json::from_slice(value).map_err(|error| corrupt(key, error))
    }

    /// Encodes the value to store.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Returns how long a worker may start messages after it sent a heartbeat that was accepted. This is less
/// than the TTL, because two clocks may run at slightly different speeds.
pub fn lease(ttl: Duration) -> Duration {
    if fault!(NoLeaseMargin) { ttl } else { ttl * 4 / 5 }
}

/// Returns the interval between the heartbeats of a worker.
pub fn heartbeat_interval(ttl: Duration) -> Duration {
    ttl / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_read_back_and_need_not_be_there() {
        let old: Member = serde_json::from_str(r#"{"beat":1,"topics":[],"slots":1,"ttl_ms":5}"#).unwrap();
        assert!(!String::from_utf8_lossy(&old.encode()).contains("running"));
        let (id, topic, note) = (MessageId::from_u128(7), "t".to_owned(), "half".to_owned());
        let running = vec![RunningMessage { id, topic, since: Timestamp::from_millis(5), note }];
        let new = Member { running, ..old };
        assert_eq!(Member::decode(&EntryKey::raw("a"), &new.encode()).unwrap(), new);
    }

    #[test]
    fn the_lease_ends_before_anyone_may_declare_death() {
        const TTL: Duration = Duration::from_secs(10);
        assert!(lease(TTL) < TTL);
        assert!(heartbeat_interval(TTL) * 2 < lease(TTL), "a lost heartbeat does not end the lease");
    }
}
