//! A topic through which very many messages have passed costs as much as a new one: to read from, to open, to count. What the node sends
//! is the same on every machine, so that is compared; how long it takes only where `SAWMILL_TEST_LONG_MESSAGES` says that many pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{namespace, server_for};
use sawmill::clock::Timestamp;
use sawmill::engine::Namespace;
use sawmill::env::Env;
use sawmill::log::{Log, Position, Record, Want};
use sawmill::topic::TopicSpec;
use sawmill::{Message, MessageId, Topic};
use sawmill_cassandra::Cassandra;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// How many are pushed, and read, at a time.
const EACH: usize = 50;
/// A block as large as workers take.
const BLOCK: usize = 1000;
/// How often something is measured; the middle counts.
const TIMES: usize = 21;
/// What the machine may add to any of it by doing something else.
const ALLOWANCE: Duration = Duration::from_millis(5);
/// What the driver may ask for by itself meanwhile.
const ALLOWED_BYTES: u64 = 4 << 10;
/// Longer than the settle window, within which everything is looked at again.
const SETTLED: Duration = Duration::from_secs(12);

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

/// A way to a node that counts what the node sends back.
struct Way {
    url: String,
    received: Arc<AtomicU64>,
}

impl Way {
    async fn to(url: &str) -> Self {
        let node = url.split_once("//").unwrap().1.split_once('/').unwrap().0.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url.replace(&node, &listener.local_addr().unwrap().to_string());
        let received: Arc<AtomicU64> = Arc::default();
        let counted = received.clone();
        Env::system().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&node).await else { continue };
                let ((mut from, back), (answers, mut there)) = (client.into_split(), server.into_split());
                Env::system().spawn(async move {
                    let _ = tokio::io::copy(&mut from, &mut there).await;
                });
                Env::system().spawn(pass_on(answers, back, counted.clone()));
            }
        });
        Self { url, received }
    }

    async fn open(&self, namespace: &Namespace) -> Cassandra {
        Cassandra::open(&self.url.parse().unwrap(), namespace).await.unwrap()
    }

    fn bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// What it costs to do something with this store.
    async fn cost(&self, work: impl Future<Output = ()>) -> Cost {
        let (env, bytes) = (Env::system(), self.bytes());
        let began = env.now();
        work.await;
        Cost { time: env.now().since(began), bytes: self.bytes() - bytes }
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counted: Arc<AtomicU64>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        counted.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

/// What something costs: time, and what the node sends for it.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Duration,
    bytes: u64,
}

/// Of several times the one in the middle.
async fn middle(mut work: impl AsyncFnMut() -> Cost) -> Cost {
    let (mut times, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let cost = work().await;
        times.push(cost.time);
        bytes.push(cost.bytes);
    }
    times.sort_unstable();
    bytes.sort_unstable();
    Cost { time: times[TIMES / 2], bytes: bytes[TIMES / 2] }
}

/// What is measured, and what it costs.
async fn measure(way: &Way, namespace: &Namespace, passer: &mut Passer) -> Vec<(&'static str, Cost)> {
    let push_to_start = middle(async || {
        let cost = way.cost(async {
            passer.append(1).await;
            passer.read(1).await;
        });
        // It asks until the message is there, so that bytes say how slow the machine is.
        Cost { bytes: 0, ..cost.await }
    })
    .await;
    let (topic, began) = (passer.topic.clone(), passer.after.clone());
    passer.append(BLOCK).await;
    passer.read(BLOCK).await;
    let read = async |log: &Cassandra| {
        let want = Want { shard: 0, after: began.clone(), limit: BLOCK };
        assert!(!log.read(&topic, &[want]).await.unwrap()[0].messages.is_empty());
    };
    let block = middle(async || way.cost(read(&passer.log)).await).await;
    let opening = middle(async || {
        let fresh = way.open(namespace).await;
        way.cost(read(&fresh)).await
    })
    .await;
    let counting = middle(async || {
        let fresh = way.open(namespace).await;
        let count = async {
            let backlog = fresh.backlog(&topic, &[(0, began.clone())]).await.unwrap();
            assert_eq!(backlog.ready, [BLOCK as u64]);
        };
        way.cost(count).await
    })
    .await;
    let ends = middle(async || {
        let find = async {
            passer.log.positions(&topic, Timestamp::LATEST).await.unwrap();
        };
        way.cost(find).await
    })
    .await;
    vec![
        ("from a push to its message", push_to_start),
        ("a full block", block),
        ("the first block of a store that was opened", opening),
        ("counting in a store that was opened", counting),
        ("finding the end", ends),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_topic_costs_as_much_as_a_new_one() {
    let Some(url) = server_for("a_long_topic_costs_as_much_as_a_new_one") else { return };
    let wanted: Option<usize> =
        std::env::var("SAWMILL_TEST_LONG_MESSAGES").ok().and_then(|text| text.parse().ok());
    let (namespace, way, env) = (namespace(), Way::to(&url).await, Env::system());
    let log = way.open(&namespace).await;
    let spec = TopicSpec { shards: 1, ..TopicSpec::new("orders".parse().unwrap()) };
    let topic = log.create_topic(&spec).await.unwrap();
    let mut passer = Passer { log, topic, after: Position::default() };
    // What opens a store reads back what is in the settle window. So where times are compared the window is as full before as after, and
    // else it is empty.
    let (few, many) = wanted.map_or((1_000, 10_000), |many| (5_000, many));
    let began = env.now();
    passer.pass(few).await;
    while wanted.is_some() && env.now().since(began) < SETTLED {
        passer.pass(1_000).await;
    }
    let settle = async || match wanted {
        Some(_) => (),
        None => env.sleep(SETTLED).await,
    };
    settle().await;
    let first = measure(&way, &namespace, &mut passer).await;
    passer.pass(many).await;
    settle().await;
    let last = measure(&way, &namespace, &mut passer).await;
    for ((what, first), (_, last)) in first.iter().zip(&last) {
        eprintln!("{what}: {first:.2?}, and {last:.2?} after {many} messages");
    }
    for ((what, first), (_, last)) in first.iter().zip(&last) {
        let as_cheap = match wanted {
            Some(_) => last.time <= first.time * 2 + ALLOWANCE,
            None => last.bytes <= first.bytes * 2 + ALLOWED_BYTES,
        };
        assert!(as_cheap, "{what}: {first:.2?}, then {last:.2?}");
    }
}
