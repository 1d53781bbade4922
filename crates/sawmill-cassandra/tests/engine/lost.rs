//! Answers that are lost: what was decided is found out, and what is not known is said to be so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{namespace, server_for};
use sawmill::env::Env;
use sawmill::ledger::{Commit, EntryKey, Ledger, Version, Write};
use sawmill::log::Log;
use sawmill::topic::TopicSpec;
use sawmill_cassandra::Cassandra;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What is to be lost next: the answer to a lightweight transaction, or the transaction before it reaches the node.
#[derive(Default)]
struct Thief {
    answer: AtomicBool,
    question: AtomicBool,
}

/// How an answer to a lightweight transaction is told from others, and how an execution of a prepared statement is.
const APPLIED: &[u8] = b"[applied]";

/// A frame of the protocol: nine bytes, of which the last four say how long the rest is.
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
    is_to_be_lost: impl Fn(&[u8]) -> bool + Send + 'static,
) {
    while let Some(bytes) = frame(&mut from).await {
        if !is_to_be_lost(&bytes) && to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Listens before a node.
async fn way_with(thief: Arc<Thief>, to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    Env::system().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&to).await else { continue };
            let ((from, back), (answers, there)) = (client.into_split(), server.into_split());
            let (asks, answered) = (thief.clone(), thief.clone());
            let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            Env::system().spawn(pass(from, there, move |bytes| {
                holds(bytes, b"of the lost") && asks.question.swap(false, Ordering::SeqCst)
            }));
            Env::system().spawn(pass(answers, back, move |bytes| {
                holds(bytes, APPLIED) && answered.answer.swap(false, Ordering::SeqCst)
            }));
        }
    });
    port
}

/// A store that is reached through a thief, and one that is not.
async fn stores(url: &str) -> (Arc<Thief>, Cassandra, Cassandra) {
    let thief = Arc::new(Thief::default());
    let node = url.split_once("//").unwrap().1.split_once('/').unwrap().0.to_owned();
    let way = url.replace(&node, &format!("127.0.0.1:{}", way_with(thief.clone(), node.clone()).await));
    let namespace = namespace();
    let robbed = Cassandra::open(&format!("{way}&timeout=3s").parse().unwrap(), &namespace).await.unwrap();
    let other = Cassandra::open(&url.parse().unwrap(), &namespace).await.unwrap();
    (thief, robbed, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let Some(url) = server_for("a_commit_whose_answer_is_lost_is_found_out") else { return };
    let (thief, robbed, other) = stores(&url).await;
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
        // One that lost, and does not know it: nobody can tell it from one that still comes.
        (Some(1), Some("late"), None),
        (Some(2), None, Some(2)),
    ] {
        let before = value().await;
        thief.answer.store(true, Ordering::SeqCst);
        let commit = robbed.commit(write(expect, new)).await.unwrap();
        assert!(!thief.answer.load(Ordering::SeqCst), "an answer was lost");
        assert_eq!(commit, done.map_or(Commit::Unknown, |version| Commit::Done(Version(version))), "{new:?}");
        assert_eq!(value().await, if done.is_some() { new.map(Into::into) } else { before });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrives_is_unknown_and_can_be_sent_again() {
    let Some(url) = server_for("a_commit_that_never_arrives_is_unknown_and_can_be_sent_again") else {
        return;
    };
    let (thief, robbed, other) = stores(&url).await;
    let key = EntryKey::raw("tests/lost");
    let write = Write { key: key.clone(), expect: None, value: Some("of the lost".into()) };
    thief.question.store(true, Ordering::SeqCst);
    assert_eq!(robbed.commit(write.clone()).await.unwrap(), Commit::Unknown);
    assert_eq!(other.get(&key).await.unwrap(), None);
    assert_eq!(robbed.commit(write).await.unwrap(), Commit::Done(Version(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_making_was_not_answered_is_found() {
    let Some(url) = server_for("a_topic_whose_making_was_not_answered_is_found") else { return };
    let (thief, robbed, other) = stores(&url).await;
    thief.answer.store(true, Ordering::SeqCst);
    let topic = robbed.create_topic(&TopicSpec::new("orders".parse().unwrap())).await.unwrap();
    assert!(!thief.answer.load(Ordering::SeqCst), "an answer was lost");
    assert_eq!(other.topic(&topic.name).await.unwrap(), Some(topic));
}
