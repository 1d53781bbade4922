//! Checks of a ledger: entries are named by plain text and listed by prefix.

use std::sync::Arc;

use sawmill::engine::storage::{EntryKey, Ledger};

use crate::Place;
use crate::ledger_commit::{assert_is, done, get};

async fn list(ledger: &Arc<dyn Ledger>, prefix: &str) -> Vec<String> {
    let entries = ledger.list(&EntryKey::raw(prefix)).await.expect("entries are listed");
    for entry in &entries {
        assert_eq!(entry.value, entry.key.as_str().as_bytes(), "an entry is listed with its own value");
    }
    entries.iter().map(|entry| entry.key.as_str().to_owned()).collect()
}

/// Creates entries whose values are their keys.
async fn fill(ledger: &Arc<dyn Ledger>, keys: &[&str]) {
    for key in keys {
        done(ledger, key, None, Some(key.as_bytes())).await;
    }
}

/// A list has all entries with the prefix and no others; it is empty if there are none.
pub async fn only_the_prefix_is_listed(place: Place) {
    let ledger = place.ledger().await;
    assert_eq!(list(&ledger, "a/").await, [""; 0]);
    assert_eq!(list(&ledger, "").await, [""; 0]);
    fill(&ledger, &["a/1", "a/10", "a/2", "ab", "ab/1", "b/1", "A/1", "a_b/1", "axb/1", "a.b/1"]).await;
    assert_eq!(list(&ledger, "a/").await, ["a/1", "a/10", "a/2"]);
    assert_eq!(list(&ledger, "a/1").await, ["a/1", "a/10"]);
    assert_eq!(list(&ledger, "a/10").await, ["a/10"]);
    assert_eq!(list(&ledger, "ab").await, ["ab", "ab/1"]);
    assert_eq!(list(&ledger, "ab/").await, ["ab/1"]);
    assert_eq!(list(&ledger, "A/").await, ["A/1"]);
    assert_eq!(list(&ledger, "a_b/").await, ["a_b/1"]);
    assert_eq!(list(&ledger, "a.b/").await, ["a.b/1"]);
    assert_eq!(list(&ledger, "c").await, [""; 0]);
    assert_eq!(list(&ledger, "a/3").await, [""; 0]);
    assert_eq!(list(&ledger, "").await.len(), 10);
}

/// Entries are listed in ascending byte order of their keys.
pub async fn entries_are_listed_in_order(place: Place) {
    let ledger = place.ledger().await;
    let mut keys = [
        "p/b", "p/a", "p/B", "p/10", "p/9", "p/a/1", "p/a-1", "p/a.1", "p/a_1", "p/a1", "p/aB", "p/ab",
        "p/0009",
    ];
    fill(&ledger, &keys).await;
    keys.sort_unstable();
    assert_eq!(list(&ledger, "p/").await, keys);
}

/// An entry whose key is a prefix of another's is independent of it.
pub async fn a_key_that_begins_another_is_apart(place: Place) {
    let ledger = place.ledger().await;
    fill(&ledger, &["p/x/y", "p/x", "p/x/y/z"]).await;
    let version = get(&ledger, "p/x").await.expect("what was committed is there").version;
    done(&ledger, "p/x", Some(version), None).await;
    assert_eq!(list(&ledger, "p/").await, ["p/x/y", "p/x/y/z"]);
    let version = get(&ledger, "p/x/y/z").await.expect("what was committed is there").version;
    done(&ledger, "p/x/y/z", Some(version), None).await;
    assert_eq!(list(&ledger, "p/").await, ["p/x/y"]);
}

/// Keys may be as long as the library makes them, and their last letter counts.
pub async fn long_keys_are_kept_apart(place: Place) {
    let ledger = place.ledger().await;
    let long = format!("shards/{}/{}/", "u".repeat(60), "g".repeat(120));
    let keys = [format!("{long}0001"), format!("{long}0002")];
    fill(&ledger, &[&keys[0], &keys[1]]).await;
    assert_eq!(list(&ledger, &long).await, keys);
}

/// An answered commit is visible to the next get and list, through any handle.
pub async fn a_commit_is_seen_at_once_from_everywhere(place: Place) {
    let handles = [place.ledger().await, place.ledger().await, place.ledger().await];
    let mut version = None;
    for n in 0..60 {
        let (writer, reader) = (&handles[n % 3], &handles[(n + 1) % 3]);
        let value = format!("{n}");
        let written = done(writer, "a/1", version, Some(value.as_bytes())).await;
        if n % 2 == 0 {
            assert_is(reader, "a/1", written, value.as_bytes()).await;
        } else {
            let listed = reader.list(&EntryKey::raw("a/")).await.expect("entries are listed");
            let listed: Vec<_> = listed.iter().map(|entry| (entry.version, &entry.value[..])).collect();
            assert_eq!(listed, [(written, value.as_bytes())], "the list is as new as the last answer");
        }
        version = Some(written);
    }
    for n in 0..20 {
        let (writer, reader) = (&handles[n % 3], &handles[(n + 1) % 3]);
        let key = format!("b/{n}");
        let made = done(writer, &key, None, Some(b"x")).await;
        assert_eq!(reader.list(&EntryKey::raw("b/")).await.expect("entries are listed").len(), 1);
        done(reader, &key, Some(made), None).await;
        assert_eq!(writer.list(&EntryKey::raw("b/")).await.expect("entries are listed"), []);
        assert_eq!(get(writer, &key).await, None);
    }
}

/// Entries of other namespaces are invisible and do not interfere.
pub async fn ledgers_of_other_namespaces_share_nothing(place: Place) {
    let (here, there) = (place.ledger().await, place.elsewhere().ledger().await);
    let ours = done(&here, "a/1", None, Some(b"a/1")).await;
    assert_eq!(get(&there, "a/1").await, None);
    assert_eq!(list(&there, "").await, [""; 0]);
    let theirs = done(&there, "a/1", None, Some(b"theirs")).await;
    assert_is(&here, "a/1", ours, b"a/1").await;
    done(&there, "a/1", Some(theirs), None).await;
    assert_is(&here, "a/1", ours, b"a/1").await;
    assert_eq!(list(&here, "").await, ["a/1"]);
}
