//! Value types that flags and the configuration file share, parsed from text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use crate::terminal::text;

/// A duration: `30s`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

/// A number of bytes: `512M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Size(pub(crate) u64);

/// The wait before retries: `1s..1h`, from the first wait to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text::duration(text).map(Self)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text::bytes(text).map(Self)
    }
}

impl FromStr for Backoff {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || format!("{text:?} is no backoff: write the first and the longest wait, like 1s..1h");
        let (first, most) = text.split_once("..").ok_or_else(advice)?;
        let (first, most) = (text::duration(first)?, text::duration(most)?);
        if first > most {
            return Err(format!("{text:?} is no backoff: its first wait is longer than its longest"));
        }
        Ok(Self { first, most })
    }
}

macro_rules! from_string {
    ($($name:ident)*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}

from_string!(Span Size Backoff);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::size(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_read() {
        let backoff: Backoff = "1s..1h".parse().unwrap();
        assert_eq!(backoff, Backoff { first: Duration::from_secs(1), most: Duration::from_secs(3600) });
        for text in ["1s", "1h..1s", "1s..", "..", "1s...2s", "soon..later"] {
            assert!(text.parse::<Backoff>().is_err(), "{text}");
        }
    }
}
