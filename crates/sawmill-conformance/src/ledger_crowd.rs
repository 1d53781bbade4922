//! Checks of a ledger: concurrent commits.
//!
//! Under contention an engine may answer [`Commit::Unknown`], so these checks do as the core does: read, then
//! decide.

use std::sync::Arc;

use bytes::Bytes;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Ledger, Version, Write};

use crate::Place;
use crate::ledger_commit::{done, get};
use crate::place::together;

const WRITERS: usize = 8;
const EACH: u32 = 50;

async fn handles(place: &Place) -> Vec<Arc<dyn Ledger>> {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(place.ledger().await);
    }
    handles
}

/// Parses the count of each writer from the entry.
fn counts(entry: &Entry) -> Vec<u32> {
    serde_json::from_slice(&entry.value).expect("the entry holds what one of the writers wrote")
}

/// Adds one to the count of a writer, and returns the new version if it was answered.
///
/// Each writer has its own count in the shared entry, so after an unknown outcome it can see whether its
/// write took effect.
async fn add_one(ledger: &Arc<dyn Ledger>, writer: usize, goal: u32) -> Option<Version> {
    loop {
        let entry = get(ledger, "count").await.expect("the entry is there all the time");
        let mut counts = counts(&entry);
        if counts[writer] == goal {
            return None;
        }
        assert_eq!(counts[writer], goal - 1, "nobody else changes the count of writer {writer}");
        counts[writer] = goal;
        let value = serde_json::to_vec(&counts).expect("numbers can be written as JSON");
        let write =
            Write { key: EntryKey::raw("count"), expect: Some(entry.version), value: Some(value.into()) };
        match ledger.commit(write).await.expect("a commit is answered") {
            Commit::Done(version) => {
                assert!(version > entry.version, "versions grow");
                return Some(version);
            }
            Commit::Conflict | Commit::Unknown => continue,
        }
    }
}

/// When several count up by compare-and-set, no increment is lost: of two writes that expect the same
/// version, at most one takes effect.
pub async fn counting_together_loses_nothing(place: Place) {
    let handles = handles(&place).await;
    let nothing = serde_json::to_vec(&[0u32; WRITERS]).expect("numbers can be written as JSON");
    done(&handles[0], "count", None, Some(&nothing)).await;
    let told = together((0..WRITERS).map(|writer| {
        let ledger = handles[writer % handles.len()].clone();
        async move {
            let mut told = Vec::new();
            for goal in 1..=EACH {
                told.extend(add_one(&ledger, writer, goal).await);
            }
            told
        }
    }))
    .await;
    let entry = get(&handles[0], "count").await.expect("the entry is there");
    assert_eq!(counts(&entry), [EACH; WRITERS], "all together counted to {}", EACH as usize * WRITERS);
    let mut versions: Vec<Version> = told.into_iter().flatten().collect();
    let told = versions.len();
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), told, "no two writes were told the same version");
}

/// When many create the same entry at once, exactly one is told that it did, and the entry is its own.
pub async fn one_of_many_creators_wins(place: Place) {
    let handles = handles(&place).await;
    for round in 0..10 {
        let key = format!("lock/{round}");
        let answers = together((0..16u8).map(|writer| {
            let ledger = handles[usize::from(writer) % handles.len()].clone();
            let write = Write {
                key: EntryKey::raw(key.clone()),
                expect: None,
                value: Some(Bytes::copy_from_slice(&[writer])),
            };
            async move { ledger.commit(write).await.expect("a commit is answered") }
        }))
        .await;
        let entry = get(&handles[0], &key).await.expect("one of them has created it");
        let winner = usize::from(entry.value[0]);
        for (writer, answer) in answers.iter().enumerate() {
            match answer {
                Commit::Done(version) => {
                    assert_eq!((writer, *version), (winner, entry.version), "{answers:?}")
                }
                Commit::Conflict => assert_ne!(writer, winner, "the winner was told a conflict: {answers:?}"),
                Commit::Unknown => {}
            }
        }
    }
}

/// When many change or delete the same version at once, at most one is told that it did.
pub async fn one_of_many_changers_wins(place: Place) {
    let handles = handles(&place).await;
    for round in 0..10 {
        let key = format!("entry/{round}");
        let version = done(&handles[0], &key, None, Some(b"first")).await;
        let answers = together((0..12usize).map(|writer| {
            let ledger = handles[writer % handles.len()].clone();
            let value = (writer % 3 > 0).then(|| Bytes::from(writer.to_string()));
            let write = Write { key: EntryKey::raw(key.clone()), expect: Some(version), value };
            async move { ledger.commit(write).await.expect("a commit is answered") }
        }))
        .await;
        let winners: Vec<usize> =
            (0..12).filter(|writer| matches!(answers[*writer], Commit::Done(_))).collect();
        assert!(winners.len() <= 1, "{winners:?} were all told that they changed {version:?}");
        let unknown = answers.contains(&Commit::Unknown);
        assert!(unknown || winners.len() == 1, "nobody changed it: {answers:?}");
        let now = get(&handles[1], &key).await;
        match winners.first() {
            Some(writer) if writer % 3 == 0 => assert_eq!(now, None, "writer {writer} has deleted it"),
            Some(writer) => {
                let value = now.map(|entry| entry.value);
                assert_eq!(value, Some(Bytes::from(writer.to_string())), "writer {writer} has changed it");
            }
            None => {}
        }
    }
}

/// Commits on different entries do not hinder one another, and all entries are listed afterwards.
pub async fn different_entries_do_not_conflict(place: Place) {
    const TASKS: usize = 16;
    const ENTRIES: usize = 40;
    let handles = handles(&place).await;
    together((0..TASKS).map(|task| {
        let ledger = handles[task % handles.len()].clone();
        async move {
            for n in 0..ENTRIES {
                let key = format!("many/{task:02}-{n:02}");
                let write = Write {
                    key: EntryKey::raw(key.clone()),
                    expect: None,
                    value: Some(Bytes::from(key.clone())),
                };
                match ledger.commit(write).await.expect("a commit is answered") {
                    Commit::Done(_) => {}
                    Commit::Conflict => panic!("nobody else wrote {key}"),
                    Commit::Unknown => {
                        // After a repeated send, exactly one of the two takes effect.
                        let again = Write {
                            key: EntryKey::raw(key.clone()),
                            expect: None,
                            value: Some(Bytes::from(key)),
                        };
                        ledger.commit(again).await.expect("a commit is answered");
                    }
                }
            }
        }
    }))
    .await;
    let listed = handles[1].list(&EntryKey::raw("many/")).await.expect("entries are listed");
    let keys: Vec<String> = listed.iter().map(|entry| entry.key.as_str().to_owned()).collect();
    let expected: Vec<String> =
        (0..TASKS * ENTRIES).map(|i| format!("many/{:02}-{:02}", i / ENTRIES, i % ENTRIES)).collect();
    assert_eq!(keys, expected);
    assert!(listed.iter().all(|entry| entry.value == entry.key.as_str().as_bytes()));
}
