//! A node whose version has reached the maximum is recreated. These tests lower the maximum, because the real
//! one takes too long to reach.

use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Namespace, Version, Write};

use crate::Zookeeper;

const LAST: i32 = 3;

async fn ledger(test: &str) -> Option<Zookeeper> {
    let Ok(url) = std::env::var("SAWMILL_TEST_ZOOKEEPER") else {
        sawmill_conformance::skipped(test, "SAWMILL_TEST_ZOOKEEPER names no server");
        return None;
    };
    let namespace: Namespace = format!("t-{:016x}", Env::system().rng().next_u64()).parse().unwrap();
    Some(Zookeeper::open_with(&url.parse().unwrap(), &namespace, LAST).await.unwrap())
}

async fn commit(ledger: &Zookeeper, expect: Option<Version>, value: Option<String>) -> Commit {
    let write = Write { key: EntryKey::raw("a/1"), expect, value: value.map(Into::into) };
    ledger.commit(write).await.unwrap()
}

#[tokio::test]
async fn versions_grow_on_where_those_of_a_node_end() {
    let Some(ledger) = ledger("versions_grow_on_where_those_of_a_node_end").await else { return };
    let mut versions: Vec<Version> = Vec::new();
    for n in 0..13 {
        let Commit::Done(version) = commit(&ledger, versions.last().copied(), Some(n.to_string())).await
        else {
            panic!("nobody else writes");
        };
        let entry = ledger.get(&EntryKey::raw("a/1")).await.unwrap().unwrap();
        assert_eq!((entry.version, entry.value), (version, n.to_string().into()));
        versions.push(version);
    }
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    let last = *versions.last().unwrap();
    assert_eq!((last.0 >> 32, last.0 & 0xffff_ffff), (3, 1), "the node was recreated three times");
    let listed = ledger.list(&EntryKey::raw("a/")).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.version).collect::<Vec<_>>(), [last]);

    // At the last version, only a writer that names it succeeds.
    for n in 0..3 {
        let next = commit(&ledger, versions.last().copied(), Some(n.to_string())).await;
        let Commit::Done(next) = next else { panic!("{next:?}") };
        versions.push(next);
    }
    let end = *versions.last().unwrap();
    assert_eq!(end.0 & 0xffff_ffff, u64::from(LAST.unsigned_abs()) + 1);
    for other in [last, Version(end.0 - 1), Version(end.0 + 1)] {
        assert_eq!(commit(&ledger, Some(other), Some("late".to_owned())).await, Commit::Conflict);
    }
    assert_eq!(commit(&ledger, Some(end), None).await, Commit::Done(end));
    assert_eq!(commit(&ledger, Some(end), Some("back".to_owned())).await, Commit::Conflict);
}
