//! Positions and spans: places in a shard that are opaque to the core, with helpers for engines that number
//! messages.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Bytes);

        impl $name {
            /// Creates it from the bytes that the engine chose.
            pub fn new(bytes: impl Into<Bytes>) -> Self {
                Self(bytes.into())
            }

            /// Returns the bytes that the engine chose.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(opaque: $name) -> String {
                opaque.0.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                let byte = |i| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
                let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
                bytes.map(Self::new).ok_or_else(|| format!("{text:?} is not written in hexadecimal"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), String::from(self.clone()))
            }
        }
    };
}

opaque! {
    /// A place in a shard, in the engine's own terms. Only the log that made it can read it. The default is
    /// the beginning of the shard. It is kept in ledger entries, so it should be small: about 1 KiB at most.
    Position
}

opaque! {
    /// The information with which a log reads one block again, in the engine's own terms. It should be as
    /// small as a [`Position`].
    Span
}

/// Helpers for engines whose positions are plain numbers that grow along the shard.
impl Position {
    /// Returns the position of the message with this number; 0 is the beginning.
    pub fn from_number(number: u64) -> Self {
        if number == 0 { Self::default() } else { Self::new(number.to_be_bytes().to_vec()) }
    }

    /// Returns the least number of several positions; 0 if there are none.
    pub fn least_number(positions: &[Position]) -> Result<u64> {
        let numbers: Result<Vec<u64>> = positions.iter().map(Position::number).collect();
        Ok(numbers?.into_iter().min().unwrap_or(0))
    }

    /// Returns the number that [`Position::from_number`] was given.
    pub fn number(&self) -> Result<u64> {
        match <[u8; 8]>::try_from(self.as_bytes()) {
            Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
            Err(_) if self.as_bytes().is_empty() => Ok(0),
            Err(_) => Err(Error::new(ErrorKind::Corrupt, format!("{self:?} was made by another engine"))),
        }
    }
}

/// Helpers for engines whose positions are plain numbers. A block consists of the messages between two of
/// them.
impl Span {
    /// Returns the span of `count` messages with numbers greater than `after` and not greater than `upto`.
    pub fn from_range(after: u64, upto: u64, count: usize) -> Self {
        let numbers = [after, upto, count as u64];
        Self::new(numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())
    }

    /// Returns the range and the count that [`Span::from_range`] was given.
    pub fn range(&self) -> Result<(u64, u64, usize)> {
        let number = |i: usize| {
            let bytes = self.as_bytes().get(8 * i..8 * i + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        match (number(0), number(1), number(2)) {
            (Some(after), Some(upto), Some(count)) => Ok((after, upto, count as usize)),
            _ => Err(Error::new(ErrorKind::Corrupt, format!("{self:?} was made by another engine"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_from_positions_and_spans() {
        for number in [0, 1, 258, u64::MAX] {
            assert_eq!(Position::from_number(number).number().unwrap(), number);
        }
        assert_eq!(Position::from_number(0), Position::default());
        assert_eq!(Span::from_range(3, 9, 4).range().unwrap(), (3, 9, 4));
        assert!(Position::new(vec![1]).number().is_err());
        assert!(Span::new(vec![1; 17]).range().is_err());
    }

    #[test]
    fn positions_are_read_back_from_their_text() {
        for bytes in [&[][..], &[0], &[1, 2, 255]] {
            let position = Position::new(bytes.to_vec());
            let text = serde_json::to_string(&position).unwrap();
            assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), position);
        }
        for text in ["\"0\"", "\"zz\"", "\"é\"", "3"] {
            assert!(serde_json::from_str::<Position>(text).is_err(), "{text}");
        }
    }
}
