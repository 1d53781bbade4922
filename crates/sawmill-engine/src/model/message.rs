//! Messages: the unit of data that is pushed, stored in the log and given to handlers.

use bytes::Bytes;

use super::{Headers, MessageId};
use crate::runtime::Timestamp;
use crate::{Error, Result};

/// The maximum size of a key in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A message, as it is stored in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The id, made by the pusher, so that a repeated push after an unknown outcome changes nothing where the
    /// engine can tell.
    pub id: MessageId,
    /// The key. Messages with the same key go to the same shard, and never run at the same time within a
    /// worker.
    pub key: Option<Bytes>,
    /// The payload.
    pub payload: Bytes,
    /// Small named values beside the payload.
    pub headers: Headers,
    /// The time before which the message must not be started.
    pub due: Option<Timestamp>,
    /// The time of the push, by the pusher's clock.
    pub created: Timestamp,
}

impl Message {
    /// Decodes the payload as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload).map_err(|error| {
            let name = std::any::type_name::<T>();
            Error::invalid(format!("the payload of {} cannot be read as JSON ({name})", self.id))
                .caused_by(error)
        })
    }
}
