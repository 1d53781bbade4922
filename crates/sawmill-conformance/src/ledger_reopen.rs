//! Checks of a ledger: committed entries last, and notifications of them arrive.

use std::sync::Arc;

use sawmill::engine::storage::{Commit, EntryKey, Ledger, Notifications};

use crate::ledger_commit::{assert_is, commit, done, get};
use crate::{Place, Reach};

/// Entries, their versions and their absence are the same after the store was closed and reopened.
pub async fn commits_survive_a_reopen(place: Place) {
    let ledger = place.ledger().await;
    let first = done(&ledger, "a/1", None, Some(b"x")).await;
    let second = done(&ledger, "a/1", Some(first), Some(b"y")).await;
    let deleted = done(&ledger, "a/2", None, Some(b"z")).await;
    done(&ledger, "a/2", Some(deleted), None).await;
    drop(ledger);

    let ledger = place.ledger().await;
    assert_is(&ledger, "a/1", second, b"y").await;
    assert_eq!(get(&ledger, "a/2").await, None);
    assert_eq!(ledger.list(&EntryKey::raw("a/")).await.expect("entries are listed").len(), 1);
    assert_eq!(commit(&ledger, "a/1", Some(first), Some(b"stale")).await, Commit::Conflict);
    assert_eq!(commit(&ledger, "a/2", Some(deleted), Some(b"stale")).await, Commit::Conflict);
    assert_eq!(commit(&ledger, "a/1", None, Some(b"again")).await, Commit::Conflict);
    let third = done(&ledger, "a/1", Some(second), Some(b"w")).await;
    assert!(third > second, "versions go on growing");
}

async fn assert_notified(place: &Place, ledger: &Arc<dyn Ledger>, mut notifications: Notifications) {
    /// A single notification may be lost.
    const TRIES: u32 = 4;
    let mut version = None;
    for _ in 0..TRIES {
        version = Some(done(ledger, "a/1", version, Some(b"x")).await);
        if place.env().within(place.patience() / TRIES, notifications.next()).await.is_some() {
            return;
        }
    }
    panic!("test timed out: a notification arrives within {:?}", place.patience());
}

/// A notification arrives when an entry was changed.
pub async fn a_watch_hint_comes(place: Place) {
    if place.hints_reach("a_watch_hint_comes", Reach::SameHandle) {
        let ledger = place.ledger().await;
        assert_notified(&place, &ledger, ledger.entry_notifications()).await;
    }
}

/// A notification arrives when an entry was changed through another handle.
pub async fn a_watch_hint_comes_from_another_handle(place: Place) {
    if place.hints_reach("a_watch_hint_comes_from_another_handle", Reach::EveryHandle) {
        let (ledger, listener) = (place.ledger().await, place.ledger().await);
        assert_notified(&place, &ledger, listener.entry_notifications()).await;
    }
}
