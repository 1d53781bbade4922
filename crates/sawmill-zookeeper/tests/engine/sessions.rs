//! Sessions: members are nodes that end with their session, and a member that has lost its session must join
//! again.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{random, server_for};
use sawmill_conformance::waits::in_time;
use sawmill_engine::model::Member;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Namespace, Version, Write};
use sawmill_servers::{Kind, Server};
use sawmill_zookeeper::Zookeeper;
use zookeeper_client::Client;

const MEMBER: &str = "members/default/one";
/// The session timeout where the test waits for the end of a session. A busy machine does not stall a client
/// for as long, so a session in use does not end.
const SESSION: Duration = Duration::from_secs(10);
/// The longest session that the test server allows: longer than a restart and a reconnect take on a busy
/// machine.
const LONG_SESSION: Duration = Duration::from_secs(60);

fn member(ttl: Duration) -> Member {
    Member { beat: 1, slots: 1, ttl_ms: ttl.as_millis() as u64, ..Member::default() }
}

fn write(key: &str, expect: Option<Version>, ttl: Duration) -> Write {
    Write { key: EntryKey::raw(key), expect, value: Some(member(ttl).encode()) }
}

async fn done(ledger: &Zookeeper, write: Write) -> Version {
    match ledger.commit(write).await.unwrap() {
        Commit::Done(version) => version,
        other => panic!("{other:?}"),
    }
}

fn namespace() -> Namespace {
    format!("t-{:016x}", random()).parse().unwrap()
}

async fn open(url: &str, session: Duration, namespace: &Namespace) -> Zookeeper {
    let url = format!("{url}?session-timeout={}", session.as_secs());
    Zookeeper::open(&url.parse().unwrap(), namespace).await.unwrap()
}

async fn keys(ledger: &Zookeeper) -> Vec<String> {
    let entries = ledger.list(&EntryKey::all_members()).await.unwrap();
    entries.iter().map(|entry| entry.key.to_string()).collect()
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !holds().await {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(Env::system().within(Duration::from_secs(40), asked).await.is_some(), "test timed out: {what}");
}

#[tokio::test]
async fn a_member_goes_with_its_session_if_that_is_no_shorter_than_its_ttl() {
    let test = "a_member_goes_with_its_session_if_that_is_no_shorter_than_its_ttl";
    let Some(url) = server_for(test) else { return };
    let place = namespace();
    let (mine, other) = (open(&url, SESSION, &place).await, open(&url, SESSION, &place).await);
    done(&mine, write(MEMBER, None, SESSION)).await;
    done(&mine, write("members/default/slow", None, SESSION + Duration::from_secs(1))).await;
    done(&mine, write("shards/default/one", None, SESSION)).await;
    let client = Client::connect(url.strip_prefix("zookeeper://").unwrap()).await.unwrap();
    for (node, ephemeral) in
        [("members/default/=one", true), ("members/default/=slow", false), ("shards/default/=one", false)]
    {
        let stat = client.check_stat(&format!("/sawmill/{}/{node}", place.as_str())).await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner != 0, ephemeral, "{node}");
    }
    assert_eq!(keys(&other).await, [MEMBER, "members/default/slow"]);
    drop(mine);
    eventually("only what outlives a session is left", async || {
        keys(&other).await == ["members/default/slow"]
    })
    .await;
    assert!(other.get(&EntryKey::raw("shards/default/one")).await.unwrap().is_some());
}

/// Returns the owning session of a node, as the server prints it.
async fn session_of(server: &Server, node: &str) -> String {
    let client = Client::connect(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    let stat = client.check_stat(node).await.unwrap().unwrap();
    assert_ne!(stat.ephemeral_owner, 0, "{node} goes with a session");
    format!("0x{:x}", stat.ephemeral_owner)
}

/// Returns the server's list of known sessions.
fn sessions(server: &Server) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(b"dump").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("SessionTracker"), "{said}");
    said
}

/// Starts a server for this test alone, which can be stopped.
fn own_server(test: &str) -> Option<Server> {
    Server::start(Kind::Zookeeper).map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_a_session_is_out_though_the_node_is_still_there() {
    let Some(mut server) = own_server("who_has_lost_a_session_is_out_though_the_node_is_still_there") else {
        return;
    };
    let (place, env, ttl) = (namespace(), Env::system(), SESSION);
    let ledger = open(server.url(), SESSION, &place).await;
    let version = done(&ledger, write(MEMBER, None, ttl)).await;
    let version = done(&ledger, write(MEMBER, Some(version), ttl)).await;
    let old = session_of(&server, &format!("/sawmill/{}/members/default/=one", place.as_str())).await;
    assert!(sessions(&server).contains(&old), "the server knows {old}: {}", sessions(&server));
    in_time(server.stop());
    let error = ledger.commit(write(MEMBER, Some(version), ttl)).await;
    assert!(
        matches!(&error, Err(error) if error.is_retryable()) || matches!(error, Ok(Commit::Unknown)),
        "{error:?}"
    );
    // Longer than a session lasts, for the driver too.
    env.sleep(ttl * 2).await;
    in_time(server.restart());

    // The server gives the old session its full time again, so the node still exists, but it no longer
    // counts.
    let mut answers = Vec::new();
    eventually("there is an answer", async || {
        answers.push(ledger.commit(write(MEMBER, Some(version), ttl)).await);
        matches!(answers.last(), Some(Ok(Commit::Done(_) | Commit::Conflict)))
    })
    .await;
    assert!(matches!(answers.last(), Some(Ok(Commit::Conflict))), "{answers:?}");
    assert_eq!(ledger.get(&EntryKey::raw(MEMBER)).await.unwrap(), None);
    let anew = "members/default/one-again";
    let version = done(&ledger, write(anew, None, ttl)).await;
    // The server also removes the nodes of the old session when it ends it.
    eventually("the old session is over", async || !sessions(&server).contains(&old)).await;
    done(&ledger, write(anew, Some(version), ttl)).await;
    assert_eq!(keys(&ledger).await, [anew], "what belongs to the new session stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_absence_costs_nobody_a_session() {
    let Some(mut server) = own_server("a_short_absence_costs_nobody_a_session") else { return };
    let (place, ttl) = (namespace(), LONG_SESSION);
    let ledger = open(server.url(), LONG_SESSION, &place).await;
    let mut notifications = ledger.entry_notifications();
    let version = done(&ledger, write(MEMBER, None, ttl)).await;
    in_time(server.kill());
    in_time(server.restart());
    let mut last = Ok(Commit::Unknown);
    eventually("there is an answer", async || {
        last = ledger.commit(write(MEMBER, Some(version), ttl)).await;
        matches!(last, Ok(Commit::Done(_) | Commit::Conflict))
    })
    .await;
    assert!(matches!(last, Ok(Commit::Done(next)) if next > version), "{last:?}");
    let notified = Env::system().within(Duration::from_secs(40), notifications.next()).await;
    assert!(notified.is_some(), "test timed out: a notification comes");
}

#[tokio::test]
async fn hints_come_with_a_new_session_too() {
    let Some(mut server) = own_server("hints_come_with_a_new_session_too") else { return };
    let (place, session) = (namespace(), Duration::from_secs(3));
    let ledger = open(server.url(), session, &place).await;
    let other = open(server.url(), session, &place).await;
    let mut notifications = ledger.entry_notifications();
    in_time(server.stop());
    Env::system().sleep(2 * session).await;
    in_time(server.restart());
    eventually("the ledger answers", async || {
        ledger.get(&EntryKey::raw("a/1")).await.is_ok() && other.get(&EntryKey::raw("a/1")).await.is_ok()
    })
    .await;
    // A few notifications come late, for earlier changes. More than those come only for what is written now.
    let mut number = 0;
    for _ in 0..10 {
        eventually("a notification comes", async || {
            number += 1;
            let written =
                other.commit(write(&format!("shards/{number}"), None, Duration::from_secs(1))).await;
            matches!(written, Ok(Commit::Done(_)))
                && Env::system().within(Duration::from_secs(1), notifications.next()).await.is_some()
        })
        .await;
    }
}
