//! A topic that has passed very many messages costs as much as a new one: to read, to open, to count. The
//! test compares the bytes that the node sends, which are the same on every machine. It compares times only
//! if `SAWMILL_TEST_LONG_MESSAGES` sets a large number of messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{namespace, server_for};
use sawmill::{Message, MessageId, Timestamp, TopicSpec};
use sawmill_cassandra::Cassandra;
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Log, Namespace, Position, ReadRequest, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// How many messages are pushed, and read, at a time.
const EACH: usize = 50;
/// The size of a block, as workers request it.
const BLOCK: usize = 1000;
/// How often something is measured; the median counts.
const TIMES: usize = 21;
/// The time that other work on the machine may add.
const ALLOWANCE: Duration = Duration::from_millis(5);
/// The bytes that the driver may request by itself meanwhile.
const ALLOWED_BYTES: u64 = 4 << 10;
/// Longer than the settle window, all of which every full scan reads.
const SETTLED: Duration = Duration::from_secs(12);

fn message() -> Message {
    let env = Env::system();
    let random = u128::from(env.rng().next_u64()) << 64 | u128::from(env.rng().next_u64());
    Message {
        id: MessageId::from_u128(random),
        key: None,
        payload: vec![7; 100].into(),
        headers: Default::default(),
        due: None,
        created: env.wall(),
    }
}

/// Pushes to a shard and reads it.
struct Client {
    log: Cassandra,
    topic: Topic,
    after: Position,
}

impl Client {
    async fn append(&self, count: usize) {
        let records = (0..count).map(|_| Record::once(0, message())).collect();
        self.log.append(&self.topic, Env::system().wall(), records).await.unwrap();
    }

    /// Reads until this many messages came.
    async fn read(&mut self, count: usize) {
        let mut came = 0;
        while came < count {
            let want = ReadRequest { shard: 0, after: self.after.clone(), limit: BLOCK };
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

/// A proxy in front of a node that counts the bytes that the node sends.
struct CountingProxy {
    url: String,
    received: Arc<AtomicU64>,
}

impl CountingProxy {
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

    /// Measures the cost of an operation.
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

/// The cost of an operation: its time, and the bytes that the node sends.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Duration,
    bytes: u64,
}

/// The medians of several measurements.
async fn median(mut work: impl AsyncFnMut() -> Cost) -> Cost {
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

/// Measures all operations; returns their names and costs.
async fn measure(
    proxy: &CountingProxy,
    namespace: &Namespace,
    user: &mut Client,
) -> Vec<(&'static str, Cost)> {
    let push_to_start = median(async || {
        let cost = proxy.cost(async {
            user.append(1).await;
            user.read(1).await;
        });
        // It polls until the message arrives, so the bytes depend on the speed of the machine.
        Cost { bytes: 0, ..cost.await }
    })
    .await;
    let (topic, began) = (user.topic.clone(), user.after.clone());
    user.append(BLOCK).await;
    user.read(BLOCK).await;
    let read = async |log: &Cassandra| {
        let want = ReadRequest { shard: 0, after: began.clone(), limit: BLOCK };
        assert!(!log.read(&topic, &[want]).await.unwrap()[0].messages.is_empty());
    };
    let block = median(async || proxy.cost(read(&user.log)).await).await;
    let opening = median(async || {
        let fresh = proxy.open(namespace).await;
        proxy.cost(read(&fresh)).await
    })
    .await;
    let counting = median(async || {
        let fresh = proxy.open(namespace).await;
        let count = async {
            let backlog = fresh.backlog(&topic, &[(0, began.clone())]).await.unwrap();
            assert_eq!(backlog.ready, [BLOCK as u64]);
        };
        proxy.cost(count).await
    })
    .await;
    let ends = median(async || {
        let find = async {
            user.log.positions(&topic, Timestamp::LATEST).await.unwrap();
        };
        proxy.cost(find).await
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
    let (namespace, proxy, env) = (namespace(), CountingProxy::to(&url).await, Env::system());
    let log = proxy.open(&namespace).await;
    let spec = TopicSpec { shards: 1, ..TopicSpec::new("orders".parse().unwrap()) };
    let topic = log.create_topic(&spec).await.unwrap();
    let mut user = Client { log, topic, after: Position::default() };
    // Opening a store reads back the settle window. When times are compared, the window must be as full
    // before as after; otherwise it must be empty.
    let (few, many) = wanted.map_or((1_000, 10_000), |many| (5_000, many));
    let began = env.now();
    user.pass(few).await;
    while wanted.is_some() && env.now().since(began) < SETTLED {
        user.pass(1_000).await;
    }
    let settle = async || match wanted {
        Some(_) => (),
        None => env.sleep(SETTLED).await,
    };
    settle().await;
    let first = measure(&proxy, &namespace, &mut user).await;
    user.pass(many).await;
    settle().await;
    let last = measure(&proxy, &namespace, &mut user).await;
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
