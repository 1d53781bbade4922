//! Helpers shared by the tests of this engine: server, messages, reads.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use sawmill::{Message, MessageId, Timestamp, TopicSpec};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::{Clock, Env, SystemClock};
use sawmill_engine::storage::{Block, Log, Namespace, Position, ReadRequest, Record};
use sawmill_postgres::Postgres;
use tokio_postgres::{Client, NoTls};

/// The current time in tests.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Returns the URL of the test server, or the reason why there is none.
pub(crate) fn server() -> Result<String, String> {
    server_in("SAWMILL_TEST_POSTGRES")
}

/// Returns the URL of the server that this variable names. `cargo xtask engines up` starts the servers.
pub(crate) fn server_in(variable: &str) -> Result<String, String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{variable} names no server; `cargo xtask engines up` starts one"))
}

/// Returns the URL of the server for this test. Without a server, reports the test as skipped.
pub(crate) fn server_for(test: &str) -> Option<String> {
    server().map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

/// Returns an unused namespace.
pub(crate) fn namespace() -> Namespace {
    format!("t-{:016x}", Env::system().rng().next_u64()).parse().unwrap()
}

pub(crate) async fn open(url: &str, namespace: &Namespace) -> Postgres {
    Postgres::open(&url.parse().unwrap(), namespace, 4).await.unwrap()
}

/// Returns a plain client of the database, which is not part of Sawmill.
pub(crate) async fn plain_client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    Env::system().spawn(async move {
        // It ends with the client.
        let _ = connection.await;
    });
    client
}

/// Creates a topic with this many shards.
pub(crate) async fn topic(log: &Postgres, name: &str, shards: u16) -> Topic {
    let spec = TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    log.create_topic(&spec).await.unwrap()
}

/// A message with this id, due at once.
pub(crate) fn message(id: u128) -> Message {
    Message {
        id: MessageId::from_u128(id),
        key: None,
        payload: format!("payload {id}").into(),
        headers: Default::default(),
        due: None,
        created: NOW,
    }
}

/// Messages with these ids for one shard.
pub(crate) fn records(shard: u16, ids: impl IntoIterator<Item = u128>) -> Vec<Record> {
    ids.into_iter().map(|id| Record::once(shard, message(id))).collect()
}

/// Reads one block of a shard.
pub(crate) async fn read(log: &Postgres, topic: &Topic, shard: u16, after: &Position, limit: usize) -> Block {
    let want = ReadRequest { shard, after: after.clone(), limit };
    log.read(topic, &[want]).await.unwrap().remove(0)
}

pub(crate) fn ids(block: &Block) -> Vec<u128> {
    block.messages.iter().map(|message| message.id.as_u128()).collect()
}

/// Waits at most a minute.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        () = SystemClock.sleep(Duration::from_secs(60)) => panic!("test timed out: {what}"),
    }
}
