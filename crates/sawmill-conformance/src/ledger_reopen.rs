//! Checks of a ledger: what was committed lasts, and hints of it come.

use std::sync::Arc;

use sawmill::ledger::{Commit, EntryKey, Ledger};
use sawmill::log::Hints;

use crate::ledger_commit::{assert_is, commit, done, get};
use crate::{Place, Reach};

/// Entries, their versions and their absence are the same after the store was closed and opened anew.
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

async fn assert_hint(place: &Place, ledger: &Arc<dyn Ledger>, mut hints: Hints) {
    /// A single hint may be lost.
    const TRIES: u32 = 4;
    let mut version = None;
    for _ in 0..TRIES {
        version = Some(done(ledger, "a/1", version, Some(b"x")).await);
        if place.env().within(place.patience() / TRIES, hints.next()).await.is_some() {
            return;
        }
    }
    panic!("test timed out: a hint comes within {:?}", place.patience());
}

/// A hint comes when an entry was changed.
pub async fn a_watch_hint_comes(place: Place) {
    if place.hints_reach("a_watch_hint_comes", Reach::SameHandle) {
        let ledger = place.ledger().await;
        assert_hint(&place, &ledger, ledger.watch()).await;
    }
}

/// A hint comes when an entry was changed through another handle.
pub async fn a_watch_hint_comes_from_another_handle(place: Place) {
    if place.hints_reach("a_watch_hint_comes_from_another_handle", Reach::EveryHandle) {
        let (ledger, listener) = (place.ledger().await, place.ledger().await);
        assert_hint(&place, &ledger, listener.watch()).await;
    }
}
