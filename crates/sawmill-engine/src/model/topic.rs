//! Topics and groups: the rules for their names, the settings of topics, and the names of the lanes of a
//! group.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// The maximum length of a topic's name, in characters.
pub const MAX_TOPIC_NAME: usize = 100;
/// The maximum length of a group's name, in characters.
pub const MAX_GROUP_NAME: usize = 60;
/// The maximum number of shards of a topic.
pub const MAX_SHARDS: u16 = 1024;
/// The default number of shards of a topic.
pub const DEFAULT_SHARDS: u16 = 16;
/// The default age at which messages may be dropped, once every group is past them.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The name of a topic or lane: letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
///
/// A group keeps its retries and its dead letters on lanes of its own. Lanes are topics like any other, named
/// `topic@group.retry` and `topic@group.dead`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicName {
    base: String,
    lane: Option<(GroupName, Lane)>,
}

/// The kind of a lane: what a group keeps on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Messages that failed and wait for their next attempt.
    Retry,
    /// Messages that were given up, until a person retries or drops them.
    Dead,
}

impl Lane {
    fn suffix(self) -> &'static str {
        match self {
            Lane::Retry => "retry",
            Lane::Dead => "dead",
        }
    }
}

impl TopicName {
    /// Returns the lane of this topic for a group. A lane has no lanes of its own: it returns those of the
    /// topic to which it belongs.
    pub fn lane(&self, group: &GroupName, lane: Lane) -> TopicName {
        TopicName { base: self.base.clone(), lane: Some((group.clone(), lane)) }
    }

    /// Returns the group and kind, if this is the name of a lane.
    pub fn as_lane(&self) -> Option<(&GroupName, Lane)> {
        self.lane.as_ref().map(|(group, lane)| (group, *lane))
    }

    /// Returns the name of the topic itself, for a lane too.
    pub fn base(&self) -> &str {
        &self.base
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        match &self.lane {
            Some((group, lane)) => write!(f, "@{group}.{}", lane.suffix()),
            None => Ok(()),
        }
    }
}

impl FromStr for TopicName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (base, lane) = match text.split_once('@') {
            None => (text, None),
            Some((base, rest)) => {
                let (group, suffix) = rest.rsplit_once('.').unwrap_or((rest, ""));
                let lane = match suffix {
                    "retry" => Lane::Retry,
                    "dead" => Lane::Dead,
                    _ => {
                        return Err(Error::invalid(format!(
                            "topic name {text:?}: a lane is named TOPIC@GROUP.retry or TOPIC@GROUP.dead"
                        )));
                    }
                };
                (base, Some((group.parse()?, lane)))
            }
        };
        check_name("topic", base, MAX_TOPIC_NAME)?;
        Ok(Self { base: base.to_owned(), lane })
    }
}

impl TryFrom<String> for TopicName {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> String {
        name.to_string()
    }
}

/// The name of a group: letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(String);

impl FromStr for GroupName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        check_name("group", text, MAX_GROUP_NAME)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for GroupName {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> String {
        name.0
    }
}

/// Refuses a name that some engine could not store, or that a person could not type.
pub fn check_name(what: &str, name: &str, most: usize) -> Result<()> {
    let advice = "use letters, digits, '.', '_' and '-', beginning with a letter or digit";
    if name.is_empty() {
        return Err(Error::invalid(format!("the {what} name is empty: {advice}")));
    }
    if name.len() > most {
        return Err(Error::invalid(format!(
            "the {what} name has {} characters, and {most} is the limit: choose a shorter one",
            name.chars().count()
        )));
    }
    let odd = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')));
    if let Some(odd) = odd {
        return Err(Error::invalid(format!("{what} name {name:?}: {odd:?} cannot be used: {advice}")));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(Error::invalid(format!("{what} name {name:?} begins with a sign: {advice}")));
    }
    Ok(())
}

/// Parses the name of a topic that is not a lane.
pub fn base_name(name: &str) -> Result<TopicName> {
    let name: TopicName = name.parse()?;
    match name.as_lane() {
        None => Ok(name),
        Some(_) => Err(Error::invalid(format!(
            "{name} is a lane of {}: its group works it along with the topic itself",
            name.base()
        ))),
    }
}

/// The settings of a topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// The name.
    pub name: TopicName,
    /// The number of shards, which never changes.
    pub shards: u16,
    /// The age at which messages may be dropped, once every group is past them.
    pub retention: Duration,
    /// True if older messages are dropped even if some group has not read them.
    pub drops_unread: bool,
}

impl TopicSpec {
    /// Describes a topic with this name and the default settings.
    pub fn new(name: TopicName) -> Self {
        Self { name, shards: DEFAULT_SHARDS, retention: DEFAULT_RETENTION, drops_unread: false }
    }

    /// Makes the error for a topic that exists already with another number of shards.
    pub fn exists_with(&self, shards: u16) -> Error {
        Error::new(
            ErrorKind::Exists,
            format!(
                "topic {} exists with {shards} shards and cannot be made to have {}: use it as it is, or choose another name",
                self.name, self.shards
            ),
        )
    }

    /// Refuses settings that no engine should be asked to create.
    pub fn check(&self) -> Result<()> {
        match self.shards {
            1..=MAX_SHARDS => Ok(()),
            shards => Err(Error::invalid(format!(
                "topic {} cannot have {shards} shards: choose from 1 to {MAX_SHARDS}",
                self.name
            ))),
        }
    }
}

/// A topic that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The name.
    pub name: TopicName,
    /// The identity, which differs from that of a deleted topic with the same name: letters and digits, never
    /// used again.
    pub uid: String,
    /// The number of shards.
    pub shards: u16,
    /// The age at which messages may be dropped, once every group is past them.
    pub retention: Duration,
    /// True if older messages are dropped even if some group has not read them.
    pub drops_unread: bool,
}

/// The errors that every engine returns when a part of a topic does not exist.
impl Topic {
    /// Makes the error for a topic that was deleted, or never created.
    pub fn missing(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("topic {} does not exist: create it first", self.name))
    }

    /// Makes the error for a shard that the topic does not have.
    pub fn no_shard(&self, shard: u16) -> Error {
        Error::invalid(format!("topic {} has {} shards, and no shard {shard}", self.name, self.shards))
    }

    /// Makes the error for a block that cannot be read again in full.
    pub fn gone(&self, count: usize, left: usize) -> Error {
        Error::new(
            ErrorKind::Gone,
            format!("of a block of {count} messages of topic {} only {left} are left in the log", self.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_read_back() {
        for text in ["emails", "a", "A.b_c-9", "emails@default.retry", "e.mails@g.x.dead"] {
            assert_eq!(text.parse::<TopicName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn broken_names_are_refused_with_advice() {
        let long = "x".repeat(MAX_TOPIC_NAME + 1);
        for (text, said) in [
            ("", "empty"),
            ("-x", "begins with a sign"),
            ("a b", "' '"),
            ("ü", "'ü'"),
            ("a/b", "'/'"),
            ("a\0", "'\\0'"),
            ("a@b", "a lane is named"),
            ("a@.retry", "group name is empty"),
            ("@g.dead", "topic name is empty"),
            (long.as_str(), "100 is the limit"),
        ] {
            let error = text.parse::<TopicName>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_lane_knows_its_topic() {
        let topic: TopicName = "emails".parse().unwrap();
        let lane = topic.lane(&"default".parse().unwrap(), Lane::Dead);
        assert_eq!(lane.base(), "emails");
        assert_eq!(
            lane.as_lane().map(|(group, lane)| (group.to_string(), lane)),
            Some(("default".into(), Lane::Dead))
        );
    }

    #[test]
    fn shards_have_bounds() {
        let mut spec = TopicSpec::new("t".parse().unwrap());
        assert!(spec.check().is_ok());
        spec.shards = 0;
        assert!(spec.check().is_err());
        spec.shards = MAX_SHARDS + 1;
        assert!(spec.check().is_err());
    }
}
