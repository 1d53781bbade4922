//! The ledger with one fault.

use async_trait::async_trait;
use sawmill::Result;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Ledger, Notifications, Version, Write};

use super::{Broken, Fault};

impl Broken {
    /// Returns the current version of the entry.
    async fn current(&self, key: &EntryKey) -> Result<Option<Version>> {
        Ok(self.inner.get(key).await?.map(|entry| entry.version))
    }
}

#[async_trait]
impl Ledger for Broken {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let entry = self.inner.get(key).await?;
        match (self.fault, entry) {
            (Fault::ReadsItsCache, Some(entry)) => Ok(Some(
                self.cache
                    .lock()
                    .expect("nobody panics while holding it")
                    .entry(key.clone())
                    .or_insert(entry)
                    .clone(),
            )),
            (_, entry) => Ok(entry),
        }
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let mut entries = self.inner.list(prefix).await?;
        match self.fault {
            Fault::ListsBackwards => entries.reverse(),
            Fault::ListsByWholeParts => {
                let parent = prefix.as_str().trim_end_matches('/');
                entries.retain(|entry| {
                    let rest = entry.key.as_str().strip_prefix(parent).unwrap_or_default();
                    rest.is_empty() || rest.starts_with('/') || parent.is_empty()
                });
            }
            Fault::ListsByPattern => {
                let fits = |key: &str| {
                    let mut key = key.chars();
                    prefix
                        .as_str()
                        .chars()
                        .all(|wanted| key.next().is_some_and(|c| wanted == '_' || c == wanted))
                };
                entries = self.inner.list(&EntryKey::raw("")).await?;
                entries.retain(|entry| fits(entry.key.as_str()));
            }
            _ => {}
        }
        Ok(entries)
    }

    async fn commit(&self, mut write: Write) -> Result<Commit> {
        let current = self.current(&write.key).await?;
        match self.fault {
            Fault::IgnoresVersions => write.expect = current,
            Fault::LetsEveryoneCreate if write.expect.is_none() => write.expect = current,
            Fault::DeletesAnyVersion if write.value.is_none() => write.expect = current,
            Fault::BringsBackTheDeleted if current.is_none() => write.expect = None,
            Fault::ComparesBeforeItWrites => {
                if current != write.expect {
                    return Ok(Commit::Conflict);
                }
                // Gives others time between the comparison and the write.
                Env::system().sleep(std::time::Duration::from_millis(1)).await;
                write.expect = self.current(&write.key).await?;
            }
            Fault::TakesTheSameValueForNoChange => {
                if let Some(entry) = self.inner.get(&write.key).await?
                    && Some(entry.version) == write.expect
                    && Some(&entry.value) == write.value.as_ref()
                {
                    return Ok(Commit::Done(entry.version));
                }
            }
            Fault::CutsValues => {
                if let Some(value) = &mut write.value {
                    value.truncate(65_535);
                }
            }
            _ => {}
        }
        self.inner.commit(write).await
    }

    fn entry_notifications(&self) -> Notifications {
        if self.fault == Fault::GivesNoWatchHints {
            Notifications::never()
        } else {
            self.inner.entry_notifications()
        }
    }
}
