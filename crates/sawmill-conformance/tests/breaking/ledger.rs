//! The ledger with one fault.

use async_trait::async_trait;
use sawmill::Result;
use sawmill::env::Env;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::Hints;

use super::{Broken, Fault};

impl Broken {
    /// The version that the entry has now.
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
                // Between the comparison and the write there is time for others.
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

    fn watch(&self) -> Hints {
        if self.fault == Fault::GivesNoWatchHints { Hints::never() } else { self.inner.watch() }
    }
}
