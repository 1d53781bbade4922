//! Access by token (Q21): what the holder of a secret may do, kept in the ledger.
//!
//! The secret itself is not kept, only a digest of it, made and compared by whoever serves the store to others. A grant is
//! an entry of its own: made once, never changed, and removed when it is revoked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::mill::Sawmill;
use crate::topic::{TopicName, check_name};
use crate::worker::base_name;

/// The longest id and the longest note of a grant.
const MAX_ID: usize = 40;
const MAX_NOTE: usize = 200;

/// What a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Access {
    /// To see messages, groups and workers, and to work: to pull messages and to answer them.
    Read,
    /// To push.
    Write,
    /// Both.
    ReadWrite,
    /// Everything: also to create and delete topics, to pause and replay groups, to resend and drop dead letters.
    Admin,
}

impl Access {
    /// True if it allows all that the other one does.
    pub fn covers(self, other: Access) -> bool {
        match self {
            Access::Admin => true,
            Access::ReadWrite => other != Access::Admin,
            Access::Read | Access::Write => self == other,
        }
    }

    /// As it is typed: `r`, `w`, `rw`, `admin`.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "r",
            Access::Write => "w",
            Access::ReadWrite => "rw",
            Access::Admin => "admin",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Access {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let all = [Access::Read, Access::Write, Access::ReadWrite, Access::Admin];
        all.into_iter()
            .find(|access| access.name() == text)
            .ok_or_else(|| Error::invalid(format!("{text:?} is no kind of access: choose r, w, rw or admin")))
    }
}

impl TryFrom<String> for Access {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Access> for &'static str {
    fn from(access: Access) -> &'static str {
        access.name()
    }
}

/// What the holder of a secret may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id: no secret, and never used again.
    pub id: String,
    /// The digest of the secret, as whoever made it writes it.
    pub digest: String,
    /// The topic it is for; all if `None`. A topic that is deleted and created anew has the same name, and the same grants.
    pub topic: Option<TopicName>,
    /// What it allows.
    pub access: Access,
    /// When it was made.
    pub created: Timestamp,
    /// What it is for, in words.
    #[serde(default)]
    pub note: String,
}

impl Grant {
    /// True if it allows this on this topic; without a topic, on all of them.
    pub fn allows(&self, access: Access, topic: Option<&str>) -> bool {
        let is_its_topic = self.topic.as_ref().is_none_or(|own| Some(own.base()) == topic);
        is_its_topic && self.access.covers(access)
    }

    fn check(&self) -> Result<()> {
        check_name("grant", &self.id, MAX_ID)?;
        if let Some(topic) = &self.topic {
            base_name(&topic.to_string())?;
        }
        if self.digest.is_empty() {
            return Err(Error::invalid("a grant needs the digest of its secret"));
        }
        if self.note.len() > MAX_NOTE || self.note.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the note of a grant is for one line of at most {MAX_NOTE} bytes: write a shorter one"
            )));
        }
        Ok(())
    }

    fn decode(entry: &Entry) -> Result<Self> {
        serde_json::from_slice(&entry.value).map_err(|error| {
            let what = format!(
                "ledger entry {} cannot be understood; was it written by a newer version?",
                entry.key
            );
            Error::new(ErrorKind::Corrupt, what).caused_by(error)
        })
    }
}

impl Sawmill {
    /// Keeps a grant, durably. Its id must not have been used before.
    ///
    /// ```
    /// use sawmill::{Access, Grant, Timestamp};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// let grant = Grant {
    ///     id: "k7".to_owned(),
    ///     digest: "the digest of a secret".to_owned(),
    ///     topic: Some("emails".parse()?),
    ///     access: Access::Write,
    ///     created: Timestamp::from_millis(0),
    ///     note: "the shop".to_owned(),
    /// };
    /// mill.add_grant(&grant).await?;
    /// let found = mill.grant("k7").await?.unwrap();
    /// assert!(found.allows(Access::Write, Some("emails")));
    /// assert!(!found.allows(Access::Read, Some("emails")) && !found.allows(Access::Write, Some("orders")));
    /// mill.revoke_grant("k7").await?;
    /// assert!(mill.grants().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn add_grant(&self, grant: &Grant) -> Result<()> {
        grant.check()?;
        let key = EntryKey::grant(&grant.id);
        let value = serde_json::to_vec(grant).unwrap_or_default();
        loop {
            let write = Write { key: key.clone(), expect: None, value: Some(value.clone().into()) };
            if let Commit::Done(_) = self.ledger().commit(write).await? {
                return Ok(());
            }
            match self.grant(&grant.id).await? {
                Some(there) if there == *grant => return Ok(()),
                Some(_) => {
                    let what = format!("there is a grant {} already: choose another id", grant.id);
                    return Err(Error::new(ErrorKind::Exists, what));
                }
                // Nobody knows whether it was written, and it is not: once more.
                None => self.pause_briefly().await,
            }
        }
    }

    /// The grant with this id.
    pub async fn grant(&self, id: &str) -> Result<Option<Grant>> {
        if check_name("grant", id, MAX_ID).is_err() {
            return Ok(None);
        }
        self.ledger().get(&EntryKey::grant(id)).await?.as_ref().map(Grant::decode).transpose()
    }

    /// All grants, by id.
    pub async fn grants(&self) -> Result<Vec<Grant>> {
        self.ledger().list(&EntryKey::grants()).await?.iter().map(Grant::decode).collect()
    }

    /// Removes a grant for good.
    pub async fn revoke_grant(&self, id: &str) -> Result<()> {
        check_name("grant", id, MAX_ID)?;
        let key = EntryKey::grant(id);
        let mut sent = false;
        loop {
            let Some(entry) = self.ledger().get(&key).await? else {
                if sent {
                    return Ok(());
                }
                return Err(Error::new(ErrorKind::NotFound, format!("there is no grant {id} (any more)")));
            };
            let write = Write { key: key.clone(), expect: Some(entry.version), value: None };
            if let Commit::Done(_) = self.ledger().commit(write).await? {
                return Ok(());
            }
            sent = true;
            self.pause_briefly().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(id: &str) -> Grant {
        Grant {
            id: id.to_owned(),
            digest: "d".to_owned(),
            topic: None,
            access: Access::ReadWrite,
            created: Timestamp::from_millis(1),
            note: String::new(),
        }
    }

    #[test]
    fn q21_access_is_read_write_both_or_everything() {
        use Access::*;
        let covered = |access: Access| [Read, Write, ReadWrite, Admin].map(|other| access.covers(other));
        assert_eq!(covered(Read), [true, false, false, false]);
        assert_eq!(covered(Write), [false, true, false, false]);
        assert_eq!(covered(ReadWrite), [true, true, true, false]);
        assert_eq!(covered(Admin), [true; 4]);
        for access in [Read, Write, ReadWrite, Admin] {
            assert_eq!(access.name().parse::<Access>().unwrap(), access);
        }
        assert!("x".parse::<Access>().unwrap_err().to_string().contains("choose r, w, rw or admin"));
    }

    #[test]
    fn q21_a_grant_for_one_topic_is_for_no_other_and_not_for_all() {
        let all = grant("a");
        let one = Grant { topic: Some("emails".parse().unwrap()), ..grant("b") };
        assert!(all.allows(Access::Read, None) && all.allows(Access::Write, Some("orders")));
        assert!(one.allows(Access::Read, Some("emails")));
        assert!(!one.allows(Access::Read, Some("orders")) && !one.allows(Access::Read, None));
        assert!(!one.allows(Access::Admin, Some("emails")));
    }

    #[tokio::test]
    async fn q21_grants_are_kept_listed_and_revoked() {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.add_grant(&grant("b")).await.unwrap();
        mill.add_grant(&grant("a")).await.unwrap();
        mill.add_grant(&grant("a")).await.unwrap();
        let other = Grant { digest: "other".to_owned(), ..grant("a") };
        assert_eq!(mill.add_grant(&other).await.unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(mill.grants().await.unwrap(), [grant("a"), grant("b")]);
        mill.revoke_grant("a").await.unwrap();
        assert_eq!(mill.revoke_grant("a").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(mill.grant("a").await.unwrap(), None);
        assert_eq!(mill.grant("../b").await.unwrap(), None, "what is no id is nobody's");
        assert_eq!(mill.grant("b").await.unwrap(), Some(grant("b")));
    }

    #[tokio::test]
    async fn q21_what_makes_no_sense_is_refused() {
        let mill = Sawmill::open("memory:").await.unwrap();
        let lane = "emails@default.dead".parse().unwrap();
        for wrong in [
            grant(""),
            grant("a/b"),
            Grant { digest: String::new(), ..grant("a") },
            Grant { note: "two\nlines".to_owned(), ..grant("a") },
            Grant { topic: Some(lane), ..grant("a") },
        ] {
            assert_eq!(mill.add_grant(&wrong).await.unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
        }
    }
}
