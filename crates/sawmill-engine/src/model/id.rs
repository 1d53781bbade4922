//! Message ids: their text form, their derivation from other ids, and the making of ids that sort by time.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::runtime::{Env, Timestamp};
use crate::{Error, Result};

/// The id of a message: 128 bits that begin with the creation time, written as 26 letters and digits. An id
/// that derives from something without a time, such as the key of a request, has no creation time.
///
/// Ids that one process makes one after another sort in that order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

/// Crockford's base 32: digits and capitals without I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl MessageId {
    /// Returns the id with these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the 128 bits of the id.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// Returns the time at which the message was made, by the clock of its maker; 1970 if the id has no time.
    pub const fn created(self) -> Timestamp {
        Timestamp::from_millis((self.0 >> 80) as u64)
    }

    /// Derives the id of the copy of this message that is made for `purpose`. It is the same for the same
    /// purpose, so that one copy made twice is distinct from two copies. It begins with the same time.
    pub fn derive(self, purpose: &str) -> MessageId {
        let high = crate::model::hash(&[&self.0.to_be_bytes(), b"high", purpose.as_bytes()]);
        let low = crate::model::hash(&[&self.0.to_be_bytes(), b"low", purpose.as_bytes()]);
        let random = (u128::from(high) << 64 | u128::from(low)) & RANDOM_BITS;
        MessageId(self.0 & !RANDOM_BITS | random)
    }
}

const RANDOM_BITS: u128 = (1 << 80) - 1;

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 26];
        for (i, place) in text.iter_mut().rev().enumerate() {
            *place = ALPHABET[(self.0 >> (5 * i) & 31) as usize];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid(format!("{text:?} is not a message id: an id has 26 letters and digits"));
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return Err(wrong());
        }
        text.bytes()
            .try_fold(0u128, |bits, byte| {
                let digit = ALPHABET.iter().position(|letter| *letter == byte.to_ascii_uppercase());
                Ok(bits << 5 | digit.ok_or_else(wrong)? as u128)
            })
            .map(MessageId)
    }
}

impl Serialize for MessageId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A maker of ids that sort in the order in which they were made.
#[derive(Debug, Default)]
pub struct IdMaker {
    last: Mutex<u128>,
}

impl IdMaker {
    /// Makes `count` ids, and calls `take` with each.
    pub fn make(&self, env: &Env, count: usize, mut take: impl FnMut(MessageId)) {
        let time = u128::from(env.wall().as_millis()) << 80;
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if time > *last {
            // The top random bit stays clear, so that there is room to count up within the millisecond.
            let random = u128::from(env.rng().next_u64()) << 64 | u128::from(env.rng().next_u64());
            *last = time | random & (RANDOM_BITS >> 1);
        }
        for _ in 0..count {
            *last += 1;
            take(MessageId(*last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = MessageId(bits);
            assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            assert_eq!(id.to_string().to_lowercase().parse::<MessageId>().unwrap(), id);
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0123456789012345678901234U", "ééééééééééééé"]
        {
            assert!(text.parse::<MessageId>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_sort_as_they_are_made() {
        let (maker, env, mut ids) = (IdMaker::default(), Env::system(), Vec::new());
        for _ in 0..100 {
            maker.make(&env, 10, |id| ids.push(id));
        }
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn derived_ids_differ_by_purpose_and_are_stable() {
        let id = MessageId(77 << 80 | 5);
        assert_eq!(id.derive("retry 1"), id.derive("retry 1"));
        assert_ne!(id.derive("retry 1"), id.derive("retry 2"));
        assert_eq!(id.derive("retry 1").as_u128() >> 80, 77);
    }
}
