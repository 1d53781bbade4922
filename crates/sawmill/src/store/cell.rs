//! Cells: entries of the ledger as typed values.
//!
//! Every change of an entry reads it, changes the value, and writes it on condition that its version is still
//! the same. [`Cell`] has this loop once: decoding, encoding, conflicts, unknown outcomes, and the pauses
//! between tries.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::model::{ShardState, corrupt, unreadable};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Version, Write};
use sawmill_engine::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Store;

/// How often a change is tried while others change the same entry.
const MAX_TRIES: u32 = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A value stored in an entry of the ledger.
pub(crate) trait CellValue: Sized {
    /// Decodes an entry. Must not panic, whatever is stored.
    fn decode(store: &Store, entry: &Entry) -> Result<Self>;

    /// Encodes the value to store.
    fn encode(&mut self, store: &Store) -> Result<Bytes>;
}

/// Decodes an entry that is plain JSON.
pub(crate) fn decode_json<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    serde_json::from_slice(&entry.value).map_err(|error| corrupt(&entry.key, error))
}

/// Decodes an entry that programs of several versions rewrite for one another.
pub(crate) fn decode_shared_json<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    serde_json::from_slice(&entry.value).map_err(|error| unreadable(&entry.key, error))
}

/// Encodes a value as JSON. This cannot fail: the ledger's values have string keys and plain values.
pub(crate) fn encode_json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Implements [`CellValue`] for a type that is stored as plain JSON; `shared` if programs of several versions rewrite it for
/// one another.
macro_rules! json_cell {
    ($Type:ty) => {
        $crate::store::json_cell!($Type, $crate::store::decode_json);
    };
    (shared $Type:ty) => {
        $crate::store::json_cell!($Type, $crate::store::decode_shared_json);
    };
    ($Type:ty, $decode:expr) => {
        impl $crate::store::CellValue for $Type {
            fn decode(
                _: &$crate::store::Store,
                entry: &sawmill_engine::storage::Entry,
            ) -> sawmill_engine::Result<Self> {
                $decode(entry)
            }

            fn encode(&mut self, _: &$crate::store::Store) -> sawmill_engine::Result<bytes::Bytes> {
                Ok($crate::store::encode_json(self))
            }
        }
    };
}
pub(crate) use json_cell;

impl CellValue for ShardState {
    fn decode(store: &Store, entry: &Entry) -> Result<Self> {
        store.decode_shard(entry)
    }

    fn encode(&mut self, store: &Store) -> Result<Bytes> {
        Ok(store.encode_shard(self))
    }
}

/// The treatment of an entry, and the answer to return.
pub(crate) enum Edit<T, R> {
    /// Leave the entry as it is.
    Keep(R),
    /// Write this value.
    Write(T, R),
}

/// One entry of the ledger, with a value of one type.
pub(crate) struct Cell<'a, T> {
    store: &'a Store,
    key: EntryKey,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: CellValue> Cell<'a, T> {
    pub(crate) fn new(store: &'a Store, key: EntryKey) -> Self {
        Self { store, key, value: PhantomData }
    }

    /// Reads the value; `None` if there is no entry.
    pub(crate) async fn read(&self) -> Result<Option<T>> {
        Ok(self.read_versioned().await?.map(|(_, value)| value))
    }

    /// Reads the value with its version.
    pub(crate) async fn read_versioned(&self) -> Result<Option<(Version, T)>> {
        let entry = self.store.ledger().get(&self.key).await?;
        entry.map(|entry| Ok((entry.version, T::decode(self.store, &entry)?))).transpose()
    }

    /// Writes a value once, if the entry still has the expected version.
    pub(crate) async fn replace(&self, expect: Option<Version>, value: &mut T) -> Result<Commit> {
        let value = Some(value.encode(self.store)?);
        self.store.ledger().commit(Write { key: self.key.clone(), expect, value }).await
    }

    /// Deletes the entry, if it still has the expected version.
    pub(crate) async fn delete(&self, expect: Version) -> Result<Commit> {
        self.store.ledger().commit(Write { key: self.key.clone(), expect: Some(expect), value: None }).await
    }

    /// Changes the entry, and tries again until the change is written or there is nothing to write.
    ///
    /// `edit` gets the present value. Its second argument is true if an earlier try had an unknown outcome
    /// and the entry has changed since: that try may have taken effect.
    pub(crate) async fn edit<R>(
        &self,
        mut edit: impl FnMut(Option<T>, bool) -> Result<Edit<T, R>>,
    ) -> Result<R> {
        let mut backoff = Backoff::new(self.store.env(), &self.key);
        // The version that the last try with an unknown outcome expected.
        let mut unknown: Option<Option<Version>> = None;
        loop {
            let found = self.read_versioned().await?;
            let (expect, value) = match found {
                Some((version, value)) => (Some(version), Some(value)),
                None => (None, None),
            };
            // Asked once: from now on it is certain that the earlier try takes no effect any more.
            let in_doubt = unknown.take_if(|unknown| *unknown != expect).is_some();
            let (commit, answer) = match edit(value, in_doubt)? {
                Edit::Keep(answer) => return Ok(answer),
                Edit::Write(mut value, answer) => (self.replace(expect, &mut value).await?, answer),
            };
            match commit {
                Commit::Done(_) => return Ok(answer),
                Commit::Conflict => {}
                Commit::Unknown => {
                    unknown = Some(expect);
                    backoff.doubt();
                }
            }
            backoff.pause().await?;
        }
    }

    /// Writes the value if there is no entry. An entry that is there stays, whatever it says: it is not decoded.
    pub(crate) async fn ensure(&self, mut value: T) -> Result<()> {
        let mut backoff = Backoff::new(self.store.env(), &self.key);
        while self.store.ledger().get(&self.key).await?.is_none() {
            match self.replace(None, &mut value).await? {
                Commit::Done(_) => break,
                Commit::Conflict => {}
                Commit::Unknown => backoff.doubt(),
            }
            backoff.pause().await?;
        }
        Ok(())
    }

    /// Deletes the entry, whatever it says: it is not decoded. True if it was there.
    pub(crate) async fn remove(&self) -> Result<bool> {
        let mut backoff = Backoff::new(self.store.env(), &self.key);
        let mut was_there = false;
        while let Some(entry) = self.store.ledger().get(&self.key).await? {
            was_there = true;
            match self.delete(entry.version).await? {
                Commit::Done(_) => break,
                Commit::Conflict => {}
                Commit::Unknown => backoff.doubt(),
            }
            backoff.pause().await?;
        }
        Ok(was_there)
    }
}

/// The pauses between tries to change an entry: short at first, then longer, and limited in number.
pub(crate) struct Backoff<'a> {
    env: &'a Env,
    key: &'a EntryKey,
    tries: u32,
    next: Duration,
    /// A try had an unknown outcome.
    in_doubt: bool,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(env: &'a Env, key: &'a EntryKey) -> Self {
        Self { env, key, tries: 0, next: FIRST_PAUSE, in_doubt: false }
    }

    /// Notes that a try had an unknown outcome.
    pub(crate) fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Waits before the next try. Fails after too many tries.
    pub(crate) async fn pause(&mut self) -> Result<()> {
        self.tries += 1;
        if self.tries >= MAX_TRIES {
            let key = self.key;
            return Err(match self.in_doubt {
                true => Error::new(
                    ErrorKind::Unknown,
                    format!(
                        "the store does not say whether ledger entry {key} was changed: look before you try again"
                    ),
                ),
                false => Error::new(
                    ErrorKind::Unavailable,
                    format!("ledger entry {key} is changed by too many at the same time: try again later"),
                ),
            });
        }
        self.env.sleep(self.env.rng().jitter(self.next)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sawmill_engine::storage::Memory;

    use super::*;
    use crate::store::faulty_ledger::{Fault, FaultyLedger};

    fn store(faults: Vec<Fault>) -> Store {
        let (log, ledger) = (Arc::new(Memory::new()), FaultyLedger::default());
        ledger.meet(faults);
        let kit = crate::testing::TestMill::new();
        let env = kit.store().env().clone();
        // Nobody moves the kit's clock: pauses take no time.
        let env = env.with_clock(NoPauses(sawmill_engine::runtime::SystemClock));
        Store::new(log, Arc::new(ledger), env, Vec::new())
    }

    /// A clock whose sleeps are over at once.
    struct NoPauses(sawmill_engine::runtime::SystemClock);

    impl sawmill_engine::runtime::Clock for NoPauses {
        fn now(&self) -> sawmill_engine::runtime::Moment {
            self.0.now()
        }
        fn wall(&self) -> sawmill_engine::runtime::Timestamp {
            self.0.wall()
        }
        fn sleep(&self, _: Duration) -> futures_util::future::BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Number(u32);

    json_cell!(Number);

    fn key() -> EntryKey {
        EntryKey::raw("numbers/one")
    }

    async fn increment(store: &Store) -> Result<u32> {
        let cell = Cell::<Number>::new(store, key());
        cell.edit(|number, _| {
            let next = number.map_or(1, |Number(number)| number + 1);
            Ok(Edit::Write(Number(next), next))
        })
        .await
    }

    #[tokio::test]
    async fn a_change_is_tried_again_after_unknown_outcomes() {
        let store = store(vec![Fault::Lost; 3]);
        assert_eq!(increment(&store).await.unwrap(), 1);
        assert_eq!(increment(&store).await.unwrap(), 2);
        assert_eq!(Cell::<Number>::new(&store, key()).read().await.unwrap(), Some(Number(2)));
    }

    #[tokio::test]
    async fn a_change_that_is_given_up_after_unknown_outcomes_may_have_taken_effect() {
        let store = store(vec![Fault::Lost; MAX_TRIES as usize]);
        assert_eq!(increment(&store).await.unwrap_err().kind(), ErrorKind::Unknown);
        let kept = Cell::<Number>::new(&store, key()).edit(|_, in_doubt| Ok(Edit::Keep(in_doubt))).await;
        assert!(!kept.unwrap(), "this change was not sent");
    }

    /// Two others change the entry. Only the first of them may have been this change, whose outcome was
    /// unknown then; the second try has certainly failed.
    #[tokio::test]
    async fn a_try_is_in_doubt_only_while_its_outcome_is_unknown() {
        let others = |outcome| Fault::Overtaken(encode_json(&Number(100)), outcome);
        let store = store(vec![others(Commit::Unknown), others(Commit::Conflict)]);
        let mut seen = Vec::new();
        let cell = Cell::<Number>::new(&store, key());
        let edited = cell.edit(|number, in_doubt| {
            seen.push((number.map(|Number(number)| number), in_doubt));
            Ok(Edit::Write(Number(1), ()))
        });
        edited.await.unwrap();
        assert_eq!(seen, [(None, false), (Some(100), true), (Some(100), false)]);
    }

    #[tokio::test]
    async fn an_entry_that_cannot_be_decoded_counts_as_present_and_can_be_removed() {
        let store = store(vec![Fault::Lost; 2]);
        let write = Write { key: key(), expect: None, value: Some("{".into()) };
        while store.ledger().commit(write.clone()).await.unwrap() == Commit::Unknown {}
        let cell = Cell::<Number>::new(&store, key());
        assert_eq!(cell.read().await.unwrap_err().kind(), ErrorKind::Corrupt);
        cell.ensure(Number(1)).await.unwrap();
        assert_eq!(cell.read().await.unwrap_err().kind(), ErrorKind::Corrupt, "it stays");
        assert!(cell.remove().await.unwrap());
        assert!(!cell.remove().await.unwrap());
        cell.ensure(Number(1)).await.unwrap();
        assert_eq!(cell.read().await.unwrap(), Some(Number(1)));
    }
}
