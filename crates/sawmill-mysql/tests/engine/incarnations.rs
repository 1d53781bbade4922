//! Tests that a version that was seen and lost in a crash is not assigned again.

use crate::support::{Database, database_for};
use bytes::Bytes;
use mysql_async::prelude::Queryable;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Version, Write};

async fn commit(ledger: &dyn Ledger, expect: Option<Version>, value: &str) -> Commit {
    let write = Write { key: EntryKey::raw("a/1"), expect, value: Some(Bytes::from(value.to_owned())) };
    ledger.commit(write).await.unwrap()
}

async fn done(ledger: &dyn Ledger, expect: Option<Version>, value: &str) -> Version {
    match commit(ledger, expect, value).await {
        Commit::Done(version) => version,
        other => panic!("{value}: {other:?}"),
    }
}

/// Puts the entries into the state after a crash and begins a new incarnation of the server.
async fn crash(database: &Database, entries: &str) {
    let mut server = database.plain_connection().await;
    server.query_drop(entries).await.unwrap();
    server.query_drop("DELETE FROM sawmill_default_memory").await.unwrap();
}

#[tokio::test]
async fn a_version_that_was_seen_and_lost_is_not_made_again() {
    let Some(database) = database_for("a_version_that_was_seen_and_lost_is_not_made_again").await else {
        return;
    };
    let ledger = database.open("default").await.unwrap().ledger.unwrap();
    let kept = done(&*ledger, None, "kept").await;
    let mut lost = vec![done(&*ledger, Some(kept), "lost").await];
    for _ in 0..5 {
        lost.push(done(&*ledger, lost.last().copied(), "lost").await);
    }
    let undone = format!("UPDATE sawmill_default_entry SET version = {}, value = 'kept'", kept.0);
    crash(&database, &undone).await;
    // The first connection to the new incarnation.
    let ledger = database.open("default").await.unwrap().ledger.unwrap();
    let mut now = ledger.get(&EntryKey::raw("a/1")).await.unwrap().unwrap();
    assert_eq!(now.value, "kept");
    for _ in 0..7 {
        for old in lost.iter().chain([&kept]) {
            assert_ne!(now.version, *old);
            assert_eq!(commit(&*ledger, Some(*old), "stale").await, Commit::Conflict);
        }
        now.version = done(&*ledger, Some(now.version), "new").await;
    }
}

#[tokio::test]
async fn an_entry_that_was_lost_and_is_made_again_is_another() {
    let Some(database) = database_for("an_entry_that_was_lost_and_is_made_again").await else { return };
    let ledger = database.open("default").await.unwrap().ledger.unwrap();
    let lost = done(&*ledger, None, "lost").await;
    crash(&database, "DELETE FROM sawmill_default_entry").await;
    let ledger = database.open("default").await.unwrap().ledger.unwrap();
    done(&*ledger, None, "new").await;
    assert_eq!(commit(&*ledger, Some(lost), "stale").await, Commit::Conflict);
}
