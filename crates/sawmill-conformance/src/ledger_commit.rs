//! Checks of a ledger: an entry changes only if it is as expected.

use std::sync::Arc;

use bytes::Bytes;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Ledger, Version, Write};

use crate::Place;

/// Commits one write and returns the answer.
pub(crate) async fn commit(
    ledger: &Arc<dyn Ledger>,
    key: &str,
    expect: Option<Version>,
    value: Option<&[u8]>,
) -> Commit {
    let write = Write { key: EntryKey::raw(key), expect, value: value.map(Bytes::copy_from_slice) };
    ledger.commit(write).await.expect("a commit is answered")
}

/// Commits one write that must succeed, and returns the version.
pub(crate) async fn done(
    ledger: &Arc<dyn Ledger>,
    key: &str,
    expect: Option<Version>,
    value: Option<&[u8]>,
) -> Version {
    match commit(ledger, key, expect, value).await {
        Commit::Done(version) => version,
        other => panic!("{key} was as expected ({expect:?}), and the commit was answered {other:?}"),
    }
}

/// Returns the current entry.
pub(crate) async fn get(ledger: &Arc<dyn Ledger>, key: &str) -> Option<Entry> {
    ledger.get(&EntryKey::raw(key)).await.expect("an entry is looked up")
}

/// Asserts the state of an entry.
pub(crate) async fn assert_is(ledger: &Arc<dyn Ledger>, key: &str, version: Version, value: &[u8]) {
    let expected = Entry { key: EntryKey::raw(key), version, value: Bytes::copy_from_slice(value) };
    assert_eq!(get(ledger, key).await, Some(expected));
}

/// An entry that was never written does not exist.
pub async fn an_absent_entry_is_not_there(place: Place) {
    let ledger = place.ledger().await;
    assert_eq!(get(&ledger, "a/1").await, None);
    done(&ledger, "a/1", None, Some(b"x")).await;
    for absent in ["a", "a/2", "a/11", "A/1", "a/1/1"] {
        assert_eq!(get(&ledger, absent).await, None, "{absent}");
    }
}

/// A light commit is as conditional as any other, is visible at once through every handle, and outlives its
/// handle.
pub async fn a_light_commit_is_conditional_and_seen(place: Place) {
    let (ledger, other) = (place.ledger().await, place.ledger().await);
    let light = async |expect, value: &'static [u8]| {
        let write = Write { key: EntryKey::raw("a/1"), expect, value: Some(Bytes::from_static(value)) };
        ledger.commit_lightly(write).await.expect("a commit is answered")
    };
    let Commit::Done(first) = light(None, b"first").await else { panic!("nothing stands against it") };
    assert_is(&other, "a/1", first, b"first").await;
    assert_eq!(light(None, b"again").await, Commit::Conflict);
    let second = done(&other, "a/1", Some(first), Some(b"second")).await;
    assert_eq!(light(Some(first), b"late").await, Commit::Conflict);
    let Commit::Done(third) = light(Some(second), b"third").await else { panic!("it is as expected") };
    assert!(first < second && second < third);
    assert_is(&other, "a/1", third, b"third").await;
    drop((ledger, other));
    assert_is(&place.ledger().await, "a/1", third, b"third").await;
}

/// An entry that must not exist is created once: the second create is refused, and the first stays.
pub async fn an_entry_is_created_once(place: Place) {
    let (ledger, other) = (place.ledger().await, place.ledger().await);
    let version = done(&ledger, "a/1", None, Some(b"first")).await;
    for handle in [&ledger, &other] {
        assert_eq!(commit(handle, "a/1", None, Some(b"second")).await, Commit::Conflict);
        assert_eq!(commit(handle, "a/1", None, Some(b"first")).await, Commit::Conflict);
        assert_is(handle, "a/1", version, b"first").await;
    }
}

/// The version grows with every change, even if the value stays the same, and is the one that is read.
pub async fn versions_grow_with_every_change(place: Place) {
    let ledger = place.ledger().await;
    let mut version = done(&ledger, "a/1", None, Some(b"same")).await;
    for n in 0..20 {
        let value = if n % 3 == 0 { "same".to_owned() } else { format!("value {n}") };
        let next = done(&ledger, "a/1", Some(version), Some(value.as_bytes())).await;
        assert!(next > version, "{next:?} comes after {version:?}");
        assert_is(&ledger, "a/1", next, value.as_bytes()).await;
        version = next;
    }
    let next = done(&ledger, "a/1", Some(version), Some(b"last")).await;
    let again = done(&ledger, "a/1", Some(next), Some(b"last")).await;
    assert!(again > next, "writing the same value is a change");
    assert_eq!(commit(&ledger, "a/1", Some(next), Some(b"last")).await, Commit::Conflict);
}

/// A write with an old version is refused and changes nothing, even if the value equals the one at that
/// version.
pub async fn c11_a_stale_version_is_refused(place: Place) {
    let (ledger, other) = (place.ledger().await, place.ledger().await);
    let first = done(&ledger, "a/1", None, Some(b"A")).await;
    let second = done(&ledger, "a/1", Some(first), Some(b"B")).await;
    let third = done(&ledger, "a/1", Some(second), Some(b"A")).await;
    for handle in [&ledger, &other] {
        for stale in [first, second] {
            assert_eq!(commit(handle, "a/1", Some(stale), Some(b"stale")).await, Commit::Conflict);
            assert_eq!(commit(handle, "a/1", Some(stale), None).await, Commit::Conflict);
            assert_is(handle, "a/1", third, b"A").await;
        }
    }
}

/// A version that the entry does not have yet is refused too.
pub async fn a_version_from_the_future_is_refused(place: Place) {
    let ledger = place.ledger().await;
    let version = done(&ledger, "a/1", None, Some(b"A")).await;
    for ahead in [1, 2, 1000] {
        let ahead = Version(version.0 + ahead);
        assert_eq!(commit(&ledger, "a/1", Some(ahead), Some(b"ahead")).await, Commit::Conflict);
        assert_eq!(commit(&ledger, "a/1", Some(ahead), None).await, Commit::Conflict);
    }
    assert_is(&ledger, "a/1", version, b"A").await;
}

/// A write that expects a version of a missing entry is refused.
pub async fn a_version_of_an_absent_entry_is_refused(place: Place) {
    let ledger = place.ledger().await;
    for version in [0, 1, 7] {
        assert_eq!(commit(&ledger, "a/1", Some(Version(version)), Some(b"x")).await, Commit::Conflict);
        assert_eq!(commit(&ledger, "a/1", Some(Version(version)), None).await, Commit::Conflict);
        assert_eq!(get(&ledger, "a/1").await, None);
    }
}

/// An entry is deleted only with its current version; the answer is its last version.
pub async fn an_entry_is_deleted_with_its_version(place: Place) {
    let (ledger, other) = (place.ledger().await, place.ledger().await);
    let first = done(&ledger, "a/1", None, Some(b"x")).await;
    let second = done(&ledger, "a/1", Some(first), Some(b"y")).await;
    assert_eq!(commit(&ledger, "a/1", Some(first), None).await, Commit::Conflict);
    assert_eq!(commit(&ledger, "a/1", None, None).await, Commit::Conflict);
    assert_is(&ledger, "a/1", second, b"y").await;
    assert_eq!(commit(&ledger, "a/1", Some(second), None).await, Commit::Done(second));
    for handle in [&ledger, &other] {
        assert_eq!(get(handle, "a/1").await, None);
        assert_eq!(handle.list(&EntryKey::raw("a/")).await.expect("entries are listed"), []);
    }
}

/// A write with a version of a deleted entry is refused: the entry neither comes back nor is deleted twice.
pub async fn a_deleted_entry_stays_deleted(place: Place) {
    let (ledger, other) = (place.ledger().await, place.ledger().await);
    let first = done(&ledger, "a/1", None, Some(b"x")).await;
    let second = done(&ledger, "a/1", Some(first), Some(b"y")).await;
    done(&ledger, "a/1", Some(second), None).await;
    for handle in [&ledger, &other] {
        for old in [first, second, Version(second.0 + 1)] {
            assert_eq!(commit(handle, "a/1", Some(old), Some(b"back")).await, Commit::Conflict);
            assert_eq!(commit(handle, "a/1", Some(old), None).await, Commit::Conflict);
        }
        assert_eq!(get(handle, "a/1").await, None);
    }
}

/// Deleting a missing entry that must not exist creates nothing and touches nothing else.
pub async fn deleting_nothing_does_nothing(place: Place) {
    let ledger = place.ledger().await;
    let version = done(&ledger, "a/1", None, Some(b"x")).await;
    let answer = commit(&ledger, "a/2", None, None).await;
    assert_ne!(answer, Commit::Unknown, "nothing stands against an answer");
    assert_eq!(get(&ledger, "a/2").await, None);
    assert_is(&ledger, "a/1", version, b"x").await;
    assert_eq!(ledger.list(&EntryKey::raw("a/")).await.expect("entries are listed").len(), 1);
}

/// A value comes back unchanged: empty, binary, up to 256 KiB; and it may grow and shrink.
pub async fn values_come_back_as_they_were(place: Place) {
    let ledger = place.ledger().await;
    let binary = |length: usize| (0..length).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>();
    let values = [
        vec![],
        binary(256),
        b"\0".to_vec(),
        b"\xff\xfe\0'\"\\%_".to_vec(),
        binary(65_536),
        binary(256 << 10),
        vec![],
    ];
    let mut version = None;
    for (number, value) in values.iter().enumerate() {
        version = Some(done(&ledger, "changed", version, Some(value)).await);
        done(&ledger, &format!("made/{number}"), None, Some(value)).await;
        for key in ["changed".to_owned(), format!("made/{number}")] {
            let entry = get(&ledger, &key).await.expect("what was committed is there");
            assert!(entry.value == value, "a value of {} bytes came back changed", value.len());
        }
    }
    let listed = ledger.list(&EntryKey::raw("made/")).await.expect("entries are listed");
    assert!(listed.iter().map(|entry| &entry.value[..]).eq(values.iter().map(|value| &value[..])));
}
