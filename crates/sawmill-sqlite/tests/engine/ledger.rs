//! The ledger on SQLite: compare-and-set, deletion, listing, namespaces.
#![allow(clippy::disallowed_methods, reason = "many tasks are what is tested")]

use crate::support::Place;
use bytes::Bytes;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Ledger, Namespace, Version, Write};
use sawmill_sqlite::Sqlite;

fn key(text: &str) -> EntryKey {
    EntryKey::raw(text)
}

async fn set(ledger: &Sqlite, name: &str, expect: Option<u64>, value: Option<&'static str>) -> Commit {
    let write = Write { key: key(name), expect: expect.map(Version), value: value.map(Bytes::from) };
    ledger.commit(write).await.unwrap()
}

#[tokio::test]
async fn an_entry_changes_only_if_it_is_as_expected() {
    let place = Place::new();
    let ledger = place.open();
    assert_eq!(ledger.get(&key("a")).await.unwrap(), None);
    assert_eq!(set(&ledger, "a", Some(1), Some("x")).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", Some(1), None).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", None, Some("one")).await, Commit::Done(Version(1)));
    assert_eq!(set(&ledger, "a", None, Some("x")).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", None, None).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", Some(0), Some("x")).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", Some(u64::MAX), Some("x")).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", Some(1), Some("")).await, Commit::Done(Version(2)));
    assert_eq!(set(&ledger, "a", Some(1), Some("x")).await, Commit::Conflict);
    let entry = Entry { key: key("a"), version: Version(2), value: Bytes::new() };
    assert_eq!(ledger.get(&key("a")).await.unwrap(), Some(entry.clone()));
    drop(ledger);
    let ledger = place.open();
    assert_eq!(ledger.get(&key("a")).await.unwrap(), Some(entry));
    assert_eq!(set(&ledger, "a", Some(1), None).await, Commit::Conflict);
    assert_eq!(set(&ledger, "a", Some(2), None).await, Commit::Done(Version(2)));
    assert_eq!(ledger.get(&key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn entries_are_listed_by_the_beginning_of_their_keys() {
    let place = Place::new();
    let ledger = place.open();
    for name in ["b/2", "b/10", "b/1", "b", "b-", "a/9", "c", "b/é"] {
        set(&ledger, name, None, Some("v")).await;
    }
    let listed = async |prefix: &str| -> Vec<String> {
        ledger.list(&key(prefix)).await.unwrap().iter().map(|entry| entry.key.to_string()).collect()
    };
    assert_eq!(listed("b/").await, ["b/1", "b/10", "b/2", "b/é"]);
    assert_eq!(listed("b/1").await, ["b/1", "b/10"]);
    assert_eq!(listed("d").await, [""; 0]);
    assert_eq!(listed("").await.len(), 8);
}

#[tokio::test]
async fn of_many_who_expect_the_same_version_one_wins() {
    let place = Place::new();
    let ledgers = [place.open(), place.open()];
    set(&ledgers[0], "a", None, Some("0")).await;
    for round in 1..20 {
        let tries: Vec<_> = (0..16)
            .map(|i| {
                let ledger = ledgers[i % 2].clone();
                tokio::task::spawn(async move { set(&ledger, "a", Some(round), Some("x")).await })
            })
            .collect();
        let mut done = 0;
        for result in tries {
            match result.await.unwrap() {
                Commit::Done(version) => {
                    assert_eq!(version, Version(round + 1));
                    done += 1;
                }
                ended => assert_eq!(ended, Commit::Conflict),
            }
        }
        assert_eq!(done, 1);
    }
}

#[tokio::test]
async fn namespaces_have_entries_of_their_own() {
    let place = Place::new();
    let one = place.open();
    let other: Namespace = "other".parse().unwrap();
    let two = Sqlite::open(place.path(), &other).unwrap();
    assert_eq!(set(&one, "a", None, Some("one")).await, Commit::Done(Version(1)));
    assert_eq!(two.get(&key("a")).await.unwrap(), None);
    assert_eq!(two.list(&key("")).await.unwrap(), []);
    assert_eq!(set(&two, "a", None, Some("two")).await, Commit::Done(Version(1)));
    assert_eq!(&one.get(&key("a")).await.unwrap().unwrap().value[..], b"one");
}
