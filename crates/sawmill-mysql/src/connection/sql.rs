//! Statements as text. Several are sent in one packet, so a call costs one or two round trips. A batch of
//! messages of any size is one statement; prepared statements would have to be kept for every size.
//!
//! Only numbers and bytes are written into statements. Bytes are escaped for a session with our own
//! `sql_mode` ([`SESSION`](crate::connection::connections::SESSION)) and the character set utf8mb4, in which no character
//! contains a quote.

use std::fmt;

/// Statements to be sent together.
#[derive(Clone)]
pub(crate) struct Sql {
    text: Vec<u8>,
    statements: usize,
}

impl Sql {
    /// Begins with a statement or its first part.
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        let mut sql = Self { text: Vec::new(), statements: 1 };
        sql.add(text);
        sql
    }

    /// Continues the statement.
    pub(crate) fn add(&mut self, text: impl fmt::Display) -> &mut Self {
        use std::io::Write;
        // Writing into memory cannot fail.
        let _ = write!(self.text, "{text}");
        self
    }

    /// Begins another statement.
    pub(crate) fn then(&mut self, text: impl fmt::Display) -> &mut Self {
        self.text.push(b';');
        self.statements += 1;
        self.add(text)
    }

    /// Appends other statements.
    pub(crate) fn append(&mut self, other: &Sql) {
        self.text.push(b';');
        self.text.extend_from_slice(&other.text);
        self.statements += other.statements;
    }

    /// Writes bytes as a literal.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.text.extend_from_slice(b"_binary'");
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| escaped(*byte).is_some()) {
            let (plain, odd) = rest.split_at(at);
            self.text.extend_from_slice(plain);
            self.text.extend(escaped(odd[0]).map(|letter| [b'\\', letter]).into_iter().flatten());
            rest = &odd[1..];
        }
        self.text.extend_from_slice(rest);
        self.text.push(b'\'');
        self
    }

    /// Writes bytes as a literal, or `NULL`.
    pub(crate) fn maybe_bytes(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.add("NULL"),
        }
    }

    /// Writes values separated by commas.
    pub(crate) fn list<T>(
        &mut self,
        values: impl IntoIterator<Item = T>,
        mut one: impl for<'s> FnMut(&'s mut Self, T) -> &'s mut Self,
    ) -> &mut Self {
        for (place, value) in values.into_iter().enumerate() {
            if place > 0 {
                self.text.push(b',');
            }
            one(self, value);
        }
        self
    }

    /// Returns the number of statements.
    pub(crate) fn statements(&self) -> usize {
        self.statements
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

/// Returns the letter that follows the backslash if this byte must be escaped.
fn escaped(byte: u8) -> Option<u8> {
    match byte {
        0 => Some(b'0'),
        b'\'' | b'\\' => Some(byte),
        _ => None,
    }
}

/// Returns the maximum size of the literal that [`Sql::bytes`] writes for this many bytes.
pub(crate) const fn longest(bytes: usize) -> usize {
    2 * bytes + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_end_a_value_is_escaped() {
        let mut sql = Sql::new("SELECT ");
        sql.bytes(b"a'; DROP \\ \0\xff\"").add(", ").maybe_bytes(None).then("COMMIT");
        assert_eq!(sql.text(), b"SELECT _binary'a\\'; DROP \\\\ \\0\xff\"', NULL;COMMIT");
        assert_eq!(sql.statements(), 2);
    }

    #[test]
    fn no_value_is_longer_than_promised() {
        for bytes in [&b""[..], b"abc", &[0; 100], b"''\\\\"] {
            let mut sql = Sql::new("");
            sql.bytes(bytes);
            assert!(sql.len() <= longest(bytes.len()));
        }
    }
}
