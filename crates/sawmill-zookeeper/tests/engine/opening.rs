//! Failures of opening and writing a ledger, and their error messages.

use std::net::TcpListener;

use crate::support::{random, server_for};
use sawmill::{ErrorKind, Result, Sawmill};
use sawmill_engine::storage::{Commit, Engine, EntryKey, Ledger, Namespace, Write};
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::{Zookeeper, ZookeeperEngine};
use zookeeper_client::{Acls, Client, CreateMode};

/// Returns the host and port of the server.
fn host(url: &str) -> &str {
    url.strip_prefix("zookeeper://").unwrap()
}

fn namespace() -> Namespace {
    format!("t-{:016x}", random()).parse().unwrap()
}

async fn open(url: &str, namespace: &Namespace) -> Result<Zookeeper> {
    Zookeeper::open(&url.parse().unwrap(), namespace).await
}

async fn refused(url: &str, namespace: &Namespace, kind: ErrorKind, said: &str) {
    let error = open(url, namespace).await.err().unwrap_or_else(|| panic!("{url} was opened"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(said), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

async fn write(ledger: &Zookeeper, key: &str, value: Vec<u8>) -> Result<Commit> {
    ledger.commit(Write { key: EntryKey::raw(key), expect: None, value: Some(value.into()) }).await
}

#[tokio::test]
async fn a_user_has_nodes_that_nobody_else_sees() {
    let Some(url) = server_for("a_user_has_nodes_that_nobody_else_sees") else { return };
    let place = namespace();
    let mine = format!("zookeeper://me:secret%21@{}", host(&url));
    let ledger = open(&mine, &place).await.unwrap();
    assert!(matches!(write(&ledger, "a/1", b"x".to_vec()).await.unwrap(), Commit::Done(_)));
    let again = open(&mine, &place).await.unwrap();
    assert_eq!(again.get(&EntryKey::raw("a/1")).await.unwrap().unwrap().value, "x");

    let said = "check the user and the password";
    let others = [
        format!("zookeeper://me:secret@{}", host(&url)),
        format!("zookeeper://you:secret%21@{}", host(&url)),
    ];
    for other in others.iter().chain([&url]) {
        refused(other, &place, ErrorKind::Invalid, said).await;
    }
}

#[tokio::test]
async fn a_path_must_be_there_and_keeps_apart() {
    let Some(url) = server_for("a_path_must_be_there_and_keeps_apart") else { return };
    let (name, place) = (format!("p-{:016x}", random()), namespace());
    let below = format!("{url}/{name}");
    refused(&below, &place, ErrorKind::Invalid, &format!("no node /{name}; create it")).await;
    let client = Client::connect(host(&url)).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create(&format!("/{name}"), b"", &options).await.unwrap();
    let there = open(&below, &place).await.unwrap();
    assert!(matches!(write(&there, "a/1", b"x".to_vec()).await.unwrap(), Commit::Done(_)));
    let here = open(&url, &place).await.unwrap();
    assert_eq!(here.get(&EntryKey::raw("a/1")).await.unwrap(), None);
    let node = client.check_stat(&format!("/{name}/{}/a/=1", place.as_str())).await.unwrap();
    assert!(node.is_some(), "the entry is below the path");
}

#[tokio::test]
async fn a_server_that_is_down_is_said_to_be() {
    refused(
        "zookeeper://me:secret@127.0.0.1:1",
        &namespace(),
        ErrorKind::Unavailable,
        "cannot be reached; check the hosts",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_is_something_else_is_said_not_to_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("zookeeper://127.0.0.1:{}", silent.local_addr().unwrap().port());
    refused(&url, &namespace(), ErrorKind::Unavailable, "cannot be reached").await;
}

#[tokio::test]
async fn it_keeps_no_messages_and_says_so() {
    let Some(url) = server_for("it_keeps_no_messages_and_says_so") else { return };
    let error = Sawmill::options().engine(ZookeeperEngine).open(&url).await.err().unwrap();
    assert!(error.to_string().contains("use it as a ledger"), "{error}");
    assert!(ZookeeperEngine.open(&url.parse().unwrap(), &namespace()).await.unwrap().log.is_none());
}

#[tokio::test]
async fn any_log_goes_with_it() {
    let Some(url) = server_for("any_log_goes_with_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine);
    let options = options.ledger(&url).namespace(namespace().as_str());
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let mill = options.open(&store).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    mill.push_many("orders", (0..50).map(|n| n.to_string())).await.unwrap();
    let worker = mill.worker("orders").start(async || ()).await.unwrap();
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 50);
    assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 50);
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_sent() {
    let Some(url) = server_for("what_is_too_large_is_refused_before_it_is_sent") else { return };
    let ledger = open(&url, &namespace()).await.unwrap();
    let error = write(&ledger, "a/1", vec![0; 1 << 20]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("a/1") && error.to_string().contains("1048576 bytes"), "{error}");
    // The largest accepted value does fit.
    let most = (1 << 20) - (16 << 10);
    assert!(matches!(write(&ledger, "a/2", vec![7; most]).await.unwrap(), Commit::Done(_)));
    assert_eq!(ledger.get(&EntryKey::raw("a/2")).await.unwrap().unwrap().value.len(), most);
}

#[tokio::test]
async fn names_that_zookeeper_has_a_meaning_for_are_names_like_others() {
    let Some(url) = server_for("names_that_zookeeper_has_a_meaning_for_are_names_like_others") else {
        return;
    };
    let ledger = open(&url, &namespace()).await.unwrap();
    let keys = ["a/.", "a/..", "a/../..", "a/./b", "zookeeper/quota"];
    for key in keys {
        assert!(matches!(write(&ledger, key, key.into()).await.unwrap(), Commit::Done(_)), "{key}");
    }
    for key in keys {
        assert_eq!(ledger.get(&EntryKey::raw(key)).await.unwrap().unwrap().value, key);
    }
    let listed = ledger.list(&EntryKey::raw("a/")).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(listed, ["a/.", "a/..", "a/../..", "a/./b"]);
    for key in ["a//b", "/a", "a/\0"] {
        let error = write(&ledger, key, b"x".to_vec()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{key}: {error}");
    }
}

#[tokio::test]
async fn a_node_of_somebody_elses_is_told_and_not_touched() {
    let Some(url) = server_for("a_node_of_somebody_elses_is_told_and_not_touched") else { return };
    let place = namespace();
    let ledger = open(&url, &place).await.unwrap();
    write(&ledger, "a/1", b"x".to_vec()).await.unwrap();
    let client = Client::connect(host(&url)).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create(&format!("/sawmill/{}/a/=2", place.as_str()), b"hello", &options).await.unwrap();
    for error in [
        ledger.get(&EntryKey::raw("a/2")).await.unwrap_err(),
        ledger.list(&EntryKey::raw("a/")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("/a/=2"), "{error}");
    }
    assert_eq!(write(&ledger, "a/2", b"y".to_vec()).await.unwrap(), Commit::Conflict);
}

#[tokio::test]
async fn a_namespace_that_was_removed_is_made_anew() {
    let Some(url) = server_for("a_namespace_that_was_removed_is_made_anew") else { return };
    let place = namespace();
    let ledger = open(&url, &place).await.unwrap();
    let client = Client::connect(host(&url)).await.unwrap();
    client.delete(&format!("/sawmill/{}", place.as_str()), None).await.unwrap();
    // Missing nodes are recreated, including that of the namespace.
    assert!(matches!(write(&ledger, "a/1", b"x".to_vec()).await.unwrap(), Commit::Done(_)));
    assert_eq!(ledger.get(&EntryKey::raw("a/1")).await.unwrap().unwrap().value, "x");
}
