//! Access keys (Q21): what the holder of a secret may do, kept in the ledger.
//!
//! The ledger keeps a digest of the secret, not the secret. The server that checks secrets makes and compares
//! the digests. Each access key is an entry of its own: written once, never changed, and deleted when the key
//! is revoked.

use std::fmt;
use std::str::FromStr;

use sawmill_engine::model::{TopicName, base_name, check_name};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::EntryKey;
use sawmill_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Admin;
use crate::store::{Cell, CellValue, Edit, json_cell};

/// The longest id and the longest note of an access key.
const MAX_ID: usize = 40;
const MAX_NOTE: usize = 200;

/// The operations that an access key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Access {
    /// See messages, groups and workers; pull messages and answer them.
    Read,
    /// Push messages.
    Write,
    /// Both of the above.
    ReadWrite,
    /// Everything: also create and delete topics, pause and replay groups, retry and drop dead letters.
    Admin,
}

impl Access {
    /// Returns true if this allows everything that `other` allows.
    pub fn covers(self, other: Access) -> bool {
        match self {
            Access::Admin => true,
            Access::ReadWrite => other != Access::Admin,
            Access::Read | Access::Write => self == other,
        }
    }

    /// Returns the name, as [`FromStr`] reads it: `r`, `w`, `rw` or `admin`.
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

/// Says what the holder of a secret may do; added by [`Admin::add_access_key`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    /// The id: not secret, and never used again.
    pub id: String,
    /// The digest of the secret, in the format of the server that checks it.
    pub digest: String,
    /// The only topic that the key is for; all topics if `None`. A topic that is deleted and created anew
    /// keeps the access keys of its name.
    pub topic: Option<TopicName>,
    /// The allowed operations.
    pub access: Access,
    /// When the key was made.
    pub created: Timestamp,
    /// A note for people: what the key is for.
    #[serde(default)]
    pub note: String,
}

impl AccessKey {
    /// Returns true if the key allows this access to the topic; with `None`, to all topics.
    pub fn allows(&self, access: Access, topic: Option<&str>) -> bool {
        let is_its_topic = self.topic.as_ref().is_none_or(|own| Some(own.base()) == topic);
        is_its_topic && self.access.covers(access)
    }

    fn check(&self) -> Result<()> {
        check_name("access key", &self.id, MAX_ID)?;
        if let Some(topic) = &self.topic {
            base_name(&topic.to_string())?;
        }
        if self.digest.is_empty() {
            return Err(Error::invalid("an access key needs the digest of its secret"));
        }
        if self.note.len() > MAX_NOTE || self.note.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the note of an access key is for one line of at most {MAX_NOTE} bytes: write a shorter one"
            )));
        }
        Ok(())
    }
}

json_cell!(AccessKey);

impl Admin<'_> {
    /// Adds an access key, durably. Its id must not have been used before. Adding the same key again does
    /// nothing.
    ///
    /// Fails with [`Exists`](ErrorKind::Exists) if there is another key with this id, and with
    /// [`Invalid`](ErrorKind::Invalid) if the id, the topic, the digest or the note is not valid.
    ///
    /// ```
    /// use sawmill::Timestamp;
    /// use sawmill::admin::{Access, AccessKey};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// let key = AccessKey {
    ///     id: "k7".to_owned(),
    ///     digest: "the digest of a secret".to_owned(),
    ///     topic: Some("emails".parse()?),
    ///     access: Access::Write,
    ///     created: Timestamp::from_millis(0),
    ///     note: "the shop".to_owned(),
    /// };
    /// mill.admin().add_access_key(&key).await?;
    /// let found = mill.admin().access_key("k7").await?.unwrap();
    /// assert!(found.allows(Access::Write, Some("emails")));
    /// assert!(!found.allows(Access::Read, Some("emails")) && !found.allows(Access::Write, Some("orders")));
    /// mill.admin().revoke_access_key("k7").await?;
    /// assert!(mill.admin().access_keys().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn add_access_key(self, key: &AccessKey) -> Result<()> {
        key.check()?;
        let cell = Cell::<AccessKey>::new(self.store, EntryKey::grant(&key.id));
        cell.edit(|there, _| match there {
            None => Ok(Edit::Write(key.clone(), ())),
            Some(there) if there == *key => Ok(Edit::Keep(())),
            Some(_) => {
                let what = format!("there is an access key {} already: choose another id", key.id);
                Err(Error::new(ErrorKind::Exists, what))
            }
        })
        .await
    }

    /// Returns the access key with this id, or `None`.
    pub async fn access_key(self, id: &str) -> Result<Option<AccessKey>> {
        if check_name("access key", id, MAX_ID).is_err() {
            return Ok(None);
        }
        Cell::new(self.store, EntryKey::grant(id)).read().await
    }

    /// Lists all access keys, by id.
    pub async fn access_keys(self) -> Result<Vec<AccessKey>> {
        let entries = self.store.ledger().list(&EntryKey::grants()).await?;
        entries.iter().map(|entry| AccessKey::decode(self.store, entry)).collect()
    }

    /// Removes an access key for good. Fails with [`NotFound`](ErrorKind::NotFound) if there is none with
    /// this id.
    pub async fn revoke_access_key(self, id: &str) -> Result<()> {
        check_name("access key", id, MAX_ID)?;
        // A key that this program cannot decode can be revoked all the same.
        match Cell::<AccessKey>::new(self.store, EntryKey::grant(id)).remove().await? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, format!("there is no access key {id} (any more)"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use sawmill_engine::storage::Write;

    use super::*;
    use crate::Sawmill;

    fn grant(id: &str) -> AccessKey {
        AccessKey {
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
        let one = AccessKey { topic: Some("emails".parse().unwrap()), ..grant("b") };
        assert!(all.allows(Access::Read, None) && all.allows(Access::Write, Some("orders")));
        assert!(one.allows(Access::Read, Some("emails")));
        assert!(!one.allows(Access::Read, Some("orders")) && !one.allows(Access::Read, None));
        assert!(!one.allows(Access::Admin, Some("emails")));
    }

    #[tokio::test]
    async fn q21_grants_are_kept_listed_and_revoked() {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.admin().add_access_key(&grant("b")).await.unwrap();
        mill.admin().add_access_key(&grant("a")).await.unwrap();
        mill.admin().add_access_key(&grant("a")).await.unwrap();
        let other = AccessKey { digest: "other".to_owned(), ..grant("a") };
        assert_eq!(mill.admin().add_access_key(&other).await.unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(mill.admin().access_keys().await.unwrap(), [grant("a"), grant("b")]);
        mill.admin().revoke_access_key("a").await.unwrap();
        assert_eq!(mill.admin().revoke_access_key("a").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(mill.admin().access_key("a").await.unwrap(), None);
        assert_eq!(mill.admin().access_key("../b").await.unwrap(), None, "not a valid id");
        assert_eq!(mill.admin().access_key("b").await.unwrap(), Some(grant("b")));

        let newer =
            Write { key: EntryKey::grant("n"), expect: None, value: Some(r#"{"access":"all"}"#.into()) };
        mill.store().ledger().commit(newer).await.unwrap();
        assert_eq!(mill.admin().access_key("n").await.unwrap_err().kind(), ErrorKind::Corrupt);
        mill.admin().revoke_access_key("n").await.unwrap();
        assert_eq!(mill.admin().access_key("n").await.unwrap(), None);
    }

    #[tokio::test]
    async fn q21_what_makes_no_sense_is_refused() {
        let mill = Sawmill::open("memory:").await.unwrap();
        let lane = "emails@default.dead".parse().unwrap();
        for wrong in [
            grant(""),
            grant("a/b"),
            AccessKey { digest: String::new(), ..grant("a") },
            AccessKey { note: "two\nlines".to_owned(), ..grant("a") },
            AccessKey { topic: Some(lane), ..grant("a") },
        ] {
            assert_eq!(
                mill.admin().add_access_key(&wrong).await.unwrap_err().kind(),
                ErrorKind::Invalid,
                "{wrong:?}"
            );
        }
    }
}
