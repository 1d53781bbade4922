//! Lost answers: the engine finds out what was decided, and reports what it cannot know as unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{namespace, server_for};
use sawmill::TopicSpec;
use sawmill_cassandra::Cassandra;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Log, Version, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Drops the next answer to a lightweight transaction, or the next transaction before it reaches the node.
#[derive(Default)]
struct Interceptor {
    answer: AtomicBool,
    request: AtomicBool,
}

/// Marks the answer to a lightweight transaction.
const APPLIED: &[u8] = b"[applied]";

/// Reads a frame of the protocol: a header of nine bytes, the last four of which hold the length of the body.
async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 9];
    from.read_exact(&mut bytes).await.ok()?;
    let length = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) as usize;
    bytes.resize(9 + length, 0);
    from.read_exact(&mut bytes[9..]).await.ok()?;
    Some(bytes)
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_dropped: impl Fn(&[u8]) -> bool + Send + 'static,
) {
    while let Some(bytes) = frame(&mut from).await {
        if !is_dropped(&bytes) && to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Starts a proxy in front of a node.
async fn proxy(interceptor: Arc<Interceptor>, to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    Env::system().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&to).await else { continue };
            let ((from, back), (answers, there)) = (client.into_split(), server.into_split());
            let (asks, answered) = (interceptor.clone(), interceptor.clone());
            let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            Env::system().spawn(pass(from, there, move |bytes| {
                holds(bytes, b"of the lost") && asks.request.swap(false, Ordering::SeqCst)
            }));
            Env::system().spawn(pass(answers, back, move |bytes| {
                holds(bytes, APPLIED) && answered.answer.swap(false, Ordering::SeqCst)
            }));
        }
    });
    port
}

/// Opens a store through the interceptor, and one without.
async fn stores(url: &str) -> (Arc<Interceptor>, Cassandra, Cassandra) {
    let interceptor = Arc::new(Interceptor::default());
    let node = url.split_once("//").unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy_url =
        url.replace(&node, &format!("127.0.0.1:{}", proxy(interceptor.clone(), node.clone()).await));
    let namespace = namespace();
    // Each lost answer is waited for this long. On a busy machine, no other answer takes as long.
    let intercepted =
        Cassandra::open(&format!("{proxy_url}&timeout=10s").parse().unwrap(), &namespace).await.unwrap();
    let other = Cassandra::open(&url.parse().unwrap(), &namespace).await.unwrap();
    (interceptor, intercepted, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let Some(url) = server_for("a_commit_whose_answer_is_lost_is_found_out") else { return };
    let (interceptor, intercepted, other) = stores(&url).await;
    let key = EntryKey::raw("tests/lost");
    let write = |expect: Option<u64>, value: Option<&'static str>| Write {
        key: key.clone(),
        expect: expect.map(Version),
        value: value.map(Into::into),
    };
    let value = async || other.get(&key).await.unwrap().map(|entry| entry.value);
    for (expect, new, done) in [
        (None, Some("made"), Some(1)),
        (Some(1), Some("changed"), Some(2)),
        // A conflict whose answer is lost: it cannot be distinguished from a write that has yet to arrive.
        (Some(1), Some("late"), None),
        (Some(2), None, Some(2)),
    ] {
        let before = value().await;
        interceptor.answer.store(true, Ordering::SeqCst);
        let commit = intercepted.commit(write(expect, new)).await.unwrap();
        assert!(!interceptor.answer.load(Ordering::SeqCst), "an answer was lost");
        assert_eq!(commit, done.map_or(Commit::Unknown, |version| Commit::Done(Version(version))), "{new:?}");
        assert_eq!(value().await, if done.is_some() { new.map(Into::into) } else { before });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrives_is_unknown_and_can_be_sent_again() {
    let Some(url) = server_for("a_commit_that_never_arrives_is_unknown_and_can_be_sent_again") else {
        return;
    };
    let (interceptor, intercepted, other) = stores(&url).await;
    let key = EntryKey::raw("tests/lost");
    let write = Write { key: key.clone(), expect: None, value: Some("of the lost".into()) };
    interceptor.request.store(true, Ordering::SeqCst);
    assert_eq!(intercepted.commit(write.clone()).await.unwrap(), Commit::Unknown);
    assert_eq!(other.get(&key).await.unwrap(), None);
    assert_eq!(intercepted.commit(write).await.unwrap(), Commit::Done(Version(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_making_was_not_answered_is_found() {
    let Some(url) = server_for("a_topic_whose_making_was_not_answered_is_found") else { return };
    let (interceptor, intercepted, other) = stores(&url).await;
    interceptor.answer.store(true, Ordering::SeqCst);
    let topic = intercepted.create_topic(&TopicSpec::new("orders".parse().unwrap())).await.unwrap();
    assert!(!interceptor.answer.load(Ordering::SeqCst), "an answer was lost");
    assert_eq!(other.topic(&topic.name).await.unwrap(), Some(topic));
}
