//! Headers: small named values beside the payload of a message, and their encoding for engines.

use bytes::Bytes;

/// The maximum size of the names and values of all headers of one message together, in bytes.
pub const MAX_HEADER_BYTES: usize = 32 * 1024;
/// The prefix of the header names that are reserved for the library.
pub(super) const RESERVED_HEADER_PREFIX: &str = "sawmill-";

/// Small named values beside the payload. A name may occur more than once. The order is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Bytes)>);

impl Headers {
    /// Returns the first value with this name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// Returns the first value with this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Returns all headers, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns true if there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a header to this value. Removes all other values with this name, and adds the header at the end.
    pub fn set(&mut self, name: &str, value: impl Into<Bytes>) {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.to_owned(), value.into()));
    }

    /// Returns the size of all names and values together, in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Encodes the headers as bytes, for engines that store them in one field; see [`Headers::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size() + 8 * self.0.len());
        for (name, value) in &self.0 {
            for part in [name.as_bytes(), value] {
                bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// Decodes bytes from [`Headers::encode`]. Returns `None` for bytes that it does not make.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut part = || -> Option<Option<&[u8]>> {
            if bytes.is_empty() {
                return Some(None);
            }
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            bytes = rest;
            Some(Some(part))
        };
        let mut headers = Vec::new();
        while let Some(name) = part()? {
            let name = std::str::from_utf8(name).ok()?.to_owned();
            headers.push((name, Bytes::copy_from_slice(part()??)));
        }
        Some(Self(headers))
    }
}

impl<N: Into<String>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back_from_their_bytes() {
        let headers: Headers = [("a", "1"), ("", ""), ("a", "2")].into_iter().collect();
        assert_eq!(Headers::decode(&headers.encode()), Some(headers));
        assert_eq!(Headers::decode(&[]), Some(Headers::default()));
        assert_eq!(Headers::decode(&[0, 0, 0, 9, 1]), None);
        assert_eq!(Headers::decode(&[0, 0, 0, 0]), None);
    }
}
