//! A topic through which very many messages have passed is as quick as a new one: to read from, to open, to count.

use std::time::Duration;

use crate::support::{namespace, server_for};
use sawmill::clock::Timestamp;
use sawmill::engine::Namespace;
use sawmill::env::Env;
use sawmill::log::{Log, Position, Record, Want};
use sawmill::topic::TopicSpec;
use sawmill::{Message, MessageId, Topic};
use sawmill_cassandra::Cassandra;

/// How many are pushed, and read, at a time.
const EACH: usize = 50;
/// A block as large as workers take.
const BLOCK: usize = 1000;
/// How often something is measured; the middle counts.
const TIMES: usize = 21;
/// What the machine may add to any of it by doing something else.
const ALLOWANCE: Duration = Duration::from_millis(5);

fn message() -> Message {
    let env = Env::system();
    let random = u128::from(env.dice().roll()) << 64 | u128::from(env.dice().roll());
    Message {
        id: MessageId::from_u128(random),
        key: None,
        payload: vec![7; 100].into(),
        headers: Default::default(),
        due: None,
        created: env.wall(),
    }
}

/// One who pushes to a shard and reads it.
struct Passer {
    log: Cassandra,
    topic: Topic,
    after: Position,
}

impl Passer {
    async fn append(&self, count: usize) {
        let records = (0..count).map(|_| Record::once(0, message())).collect();
        self.log.append(&self.topic, Env::system().wall(), records).await.unwrap();
    }

    /// Reads until so many came.
    async fn read(&mut self, count: usize) {
        let mut came = 0;
        while came < count {
            let want = Want { shard: 0, after: self.after.clone(), limit: BLOCK };
            let block = self.log.read(&self.topic, &[want]).await.unwrap().remove(0);
            came += block.messages.len();
            self.after = block.end;
        }
        assert_eq!(came, count, "each comes once");
    }

    async fn pass(&mut self, messages: usize) {
        for _ in 0..messages / EACH {
            self.append(EACH).await;
            self.read(EACH).await;
        }
    }
}

/// How long something takes, of several times the one in the middle.
async fn middle(mut work: impl AsyncFnMut()) -> Duration {
    let env = Env::system();
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let began = env.now();
        work().await;
        took.push(env.now().since(began));
    }
    took.sort_unstable();
    took[TIMES / 2]
}

/// What is measured, and how long it takes.
async fn measure(url: &str, namespace: &Namespace, passer: &mut Passer) -> Vec<(&'static str, Duration)> {
    let open = async || Cassandra::open(&url.parse().unwrap(), namespace).await.unwrap();
    let push_to_start = middle(async || {
        passer.append(1).await;
        passer.read(1).await;
    })
    .await;
    let (topic, began) = (passer.topic.clone(), passer.after.clone());
    passer.append(BLOCK).await;
    passer.read(BLOCK).await;
    let want = || Want { shard: 0, after: began.clone(), limit: BLOCK };
    let block = middle(async || {
        assert!(!passer.log.read(&topic, &[want()]).await.unwrap()[0].messages.is_empty());
    })
    .await;
    let opening = middle(async || {
        let fresh = open().await;
        assert!(!fresh.read(&topic, &[want()]).await.unwrap()[0].messages.is_empty());
    })
    .await;
    let counting = middle(async || {
        let fresh = open().await;
        assert_eq!(fresh.backlog(&topic, &[(0, began.clone())]).await.unwrap().ready, [BLOCK as u64]);
    })
    .await;
    let ends = middle(async || {
        passer.log.positions(&topic, Timestamp::LATEST).await.unwrap();
    })
    .await;
    vec![
        ("from a push to its message", push_to_start),
        ("a full block", block),
        ("opening and reading a block", opening),
        ("opening and counting", counting),
        ("finding the end", ends),
    ]
}

/// `SAWMILL_TEST_LONG_MESSAGES` says through how many. How long things take depends on what else the machine does, so that is only told
/// unless it is given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_topic_is_as_quick_as_a_new_one() {
    let Some(url) = server_for("a_long_topic_is_as_quick_as_a_new_one") else { return };
    let wanted: Option<usize> =
        std::env::var("SAWMILL_TEST_LONG_MESSAGES").ok().and_then(|text| text.parse().ok());
    let namespace = namespace();
    let log = Cassandra::open(&url.parse().unwrap(), &namespace).await.unwrap();
    let spec = TopicSpec { shards: 1, ..TopicSpec::new("orders".parse().unwrap()) };
    let topic = log.create_topic(&spec).await.unwrap();
    let mut passer = Passer { log, topic, after: Position::default() };
    // The node has to get warm; and where it is measured well, the settle window of 10 seconds has to be as full as later on: what opens a
    // store reads back what is in it.
    let (env, warm) =
        (Env::system(), if wanted.is_some() { Duration::from_secs(12) } else { Duration::ZERO });
    let began = env.now();
    passer.pass(5_000).await;
    while env.now().since(began) < warm {
        passer.pass(1_000).await;
    }
    let first = measure(&url, &namespace, &mut passer).await;
    let many = wanted.unwrap_or(5_000);
    passer.pass(many).await;
    let last = measure(&url, &namespace, &mut passer).await;
    for ((what, first), (_, last)) in first.iter().zip(&last) {
        eprintln!("{what}: {first:.2?}, and {last:.2?} after {many} messages");
    }
    for ((what, first), (_, last)) in first.iter().zip(&last) {
        assert!(wanted.is_none() || *last <= *first * 2 + ALLOWANCE, "{what}: {first:.2?}, then {last:.2?}");
    }
}
