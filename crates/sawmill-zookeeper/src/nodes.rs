//! Maps entries to nodes. The parts of a key become nested nodes. The node of the last part has a prefix in
//! its name, so an entry never collides with the folder of entries below it. A node's content names the write
//! that made it.

use bytes::Bytes;
use sawmill_engine::storage::{EntryKey, Version};

/// The name prefix of nodes that are entries; no key contains it.
const ENTRY: char = '=';
/// The prefix of parts that ZooKeeper would resolve as the same or the parent node; no key contains it.
const ESCAPE: char = '%';
/// The first byte of each node, so that a later version can write another format.
const FORMAT: u8 = 1;
const HEADER: usize = 13;

/// Converts a part of a key to a part of a path.
fn part(part: &str) -> String {
    if matches!(part, "." | "..") { format!("{ESCAPE}{part}") } else { part.to_owned() }
}

/// Returns the node that holds the entries whose keys have this beginning, which is empty or ends with `/`.
pub(crate) fn folder(root: &str, beginning: &str) -> String {
    let parts = beginning.split_terminator('/').map(part);
    parts.fold(root.to_owned(), |path, part| path + "/" + &part)
}

/// Splits a key after its last `/`.
pub(crate) fn split(key: &EntryKey) -> (&str, &str) {
    let key = key.as_str();
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

/// Returns the path of an entry's node.
pub(crate) fn entry(root: &str, key: &EntryKey) -> String {
    let (beginning, last) = split(key);
    format!("{}/{ENTRY}{last}", folder(root, beginning))
}

/// A child of a folder.
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

/// The content of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// How often the node was recreated because its version had reached the maximum.
    pub(crate) generation: u32,
    /// The number of the write, which no other write has.
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

    /// Returns `None` if this engine did not write the content.
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

/// A node's version together with the generation. Node versions are signed 32-bit numbers; negative ones are
/// not used, because -1 means any version. The generation lets an entry's version grow without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeVersion {
    pub(crate) generation: u32,
    pub(crate) number: i32,
}

impl NodeVersion {
    /// Returns `None` if no node ever has this version.
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
