//! How entries become nodes: a key's parts are nodes below one another, and its last part is a node of another kind of name, so that
//! an entry is never in the way of entries below it. What a node holds names the write that made it.

use bytes::Bytes;
use sawmill::ledger::{EntryKey, Version};

/// Before the names of nodes that are entries; no key has it.
const ENTRY: char = '=';
/// Before a part that ZooKeeper would take for the same or the upper node; no key has it.
const ESCAPE: char = '%';
/// What each node begins with, so that a later version can write something else.
const FORMAT: u8 = 1;
const HEADER: usize = 13;

/// The part of a path for a part of a key.
fn part(part: &str) -> String {
    if matches!(part, "." | "..") { format!("{ESCAPE}{part}") } else { part.to_owned() }
}

/// The node that has the entries of the keys that begin so; `beginning` is empty or ends with a `/`.
pub(crate) fn folder(root: &str, beginning: &str) -> String {
    let parts = beginning.split_terminator('/').map(part);
    parts.fold(root.to_owned(), |path, part| path + "/" + &part)
}

/// A key's beginning, up to its last `/`, and what is left.
pub(crate) fn split(key: &EntryKey) -> (&str, &str) {
    let key = key.as_str();
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

/// The path of an entry's node.
pub(crate) fn entry(root: &str, key: &EntryKey) -> String {
    let (beginning, last) = split(key);
    format!("{}/{ENTRY}{last}", folder(root, beginning))
}

/// What a child of a folder is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Child<'a> {
    Entry(&'a str),
    Folder(&'a str),
}

pub(crate) fn child(name: &str) -> Child<'_> {
    match name.strip_prefix(ENTRY) {
        Some(last) => Child::Entry(last),
        None => Child::Folder(name.strip_prefix(ESCAPE).unwrap_or(name)),
    }
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// How often the node was made anew because its version had come to its end.
    pub(crate) generation: u32,
    /// Which write this is: no two have the same.
    pub(crate) write: u64,
    pub(crate) value: Bytes,
}

impl Content {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.value.len());
        bytes.push(FORMAT);
        bytes.extend(self.generation.to_be_bytes());
        bytes.extend(self.write.to_be_bytes());
        bytes.extend(&self.value);
        bytes
    }

    /// None if this engine did not write it.
    pub(crate) fn decode(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let (header, value) = (bytes.get(..HEADER)?, bytes.slice(HEADER.min(bytes.len())..));
        let (format, rest) = header.split_first()?;
        let (generation, write) = rest.split_at_checked(4)?;
        let (generation, write) = (generation.try_into().ok()?, write.try_into().ok()?);
        (*format == FORMAT).then(|| Self {
            generation: u32::from_be_bytes(generation),
            write: u64::from_be_bytes(write),
            value,
        })
    }
}

/// A node's version is a number of 32 bits with a sign, of which those below zero are not used: one of them would mean
/// any version. With the generation before it, an entry's version grows for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeVersion {
    pub(crate) generation: u32,
    pub(crate) number: i32,
}

impl NodeVersion {
    /// None if no node ever has it.
    pub(crate) fn of(version: Version) -> Option<Self> {
        let number = i32::try_from((version.0 & u64::from(u32::MAX)).checked_sub(1)?).ok()?;
        Some(Self { generation: (version.0 >> 32) as u32, number })
    }

    pub(crate) fn version(self) -> Version {
        Version((u64::from(self.generation) << 32) + u64::from(self.number.unsigned_abs()) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_paths_of_their_own() {
        for (key, path) in [
            ("members/g/w-1", "/s/default/members/g/=w-1"),
            ("count", "/s/default/=count"),
            ("a/./..", "/s/default/a/%./=.."),
        ] {
            assert_eq!(entry("/s/default", &EntryKey::raw(key)), path);
        }
        assert_eq!(folder("/s", ""), "/s");
        assert_eq!(folder("/s", "a/../"), "/s/a/%..");
        assert_eq!(split(&EntryKey::raw("a/b/c")), ("a/b/", "c"));
        assert_eq!(split(&EntryKey::raw("a/b/")), ("a/b/", ""));
        assert_eq!(child("=x"), Child::Entry("x"));
        assert_eq!(child("x"), Child::Folder("x"));
        assert_eq!(child("%.."), Child::Folder(".."));
    }

    #[test]
    fn what_a_node_holds_is_read_back_and_what_is_foreign_is_not() {
        for value in [&b""[..], b"x", b"\0\xff"] {
            let content = Content { generation: 7, write: u64::MAX, value: Bytes::copy_from_slice(value) };
            assert_eq!(Content::decode(content.encode()), Some(content));
        }
        for foreign in [&b""[..], b"\x01", b"hello", b"\x02234567890123", b"{\"a\":\"longer than that\"}"] {
            assert_eq!(Content::decode(foreign.to_vec()), None, "{foreign:?}");
        }
    }

    #[test]
    fn versions_grow_with_the_number_and_with_the_generation() {
        let at = |generation, number| NodeVersion { generation, number };
        let all = [at(0, 0), at(0, 1), at(0, i32::MAX), at(1, 0), at(1, 1), at(u32::MAX, i32::MAX)];
        assert!(all.map(NodeVersion::version).is_sorted_by(|a, b| a < b));
        for version in all {
            assert_eq!(NodeVersion::of(version.version()), Some(version));
        }
        for never in [0, 1 << 32, (1 << 31) + 1, u64::from(u32::MAX)] {
            assert_eq!(NodeVersion::of(Version(never)), None, "{never}");
        }
    }
}
