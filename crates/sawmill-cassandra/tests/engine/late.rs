//! Wrong clocks and late writes: no message is missed, and none waits for the window to close.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{namespace, server_for};
use futures_util::future::{BoxFuture, join_all};
use sawmill::{Context, Message, MessageId, Sawmill, Timestamp, TopicSpec};
use sawmill_cassandra::{Cassandra, CassandraEngine};
use sawmill_conformance::waits::timeout_message;
use sawmill_engine::runtime::{Clock, Env, Moment, Rng, Spawn, SystemClock, SystemRng};
use sawmill_engine::storage::{Log, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How far each clock may be off, in either direction, with a window of 10 seconds.
const BOUND_MS: i64 = 2000;
const PRODUCERS: usize = 10;
const EACH: usize = 25;
const SHARDS: u16 = 6;

/// The machine's clock, shifted by some milliseconds.
struct SkewedClock(i64);

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(SystemClock.wall().as_millis().saturating_add_signed(self.0))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

struct SystemSpawn;

impl Spawn for SystemSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        Env::system().spawn(task);
    }
}

/// Starts a proxy in front of a node that delays some requests.
async fn slow_proxy(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    Env::system().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&to).await else { continue };
            let ((mut from, mut back), (mut answers, mut there)) = (client.into_split(), server.into_split());
            let env = Env::system();
            env.spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(read @ 1..) = from.read(&mut bytes).await {
                    let env = Env::system();
                    // Delay one read in forty, by up to 1.5 seconds.
                    if env.rng().next_u64().is_multiple_of(40) {
                        env.sleep(Duration::from_millis(env.rng().next_u64() % 1500)).await;
                    }
                    if there.write_all(&bytes[..read]).await.is_err() {
                        break;
                    }
                }
            });
            env.spawn(async move {
                let _ = tokio::io::copy(&mut answers, &mut back).await;
            });
        }
    });
    port
}

fn message(off: i64, due: Option<Timestamp>, created: Timestamp) -> Message {
    let roll = || u128::from(SystemRng.next_u64());
    let (id, headers) = (MessageId::from_u128(roll() << 64 | roll()), Default::default());
    Message { id, key: None, payload: off.to_string().into(), headers, due, created }
}

/// The messages that were started, when, and when they were due.
type Started = Mutex<Vec<(MessageId, Timestamp, Option<Timestamp>)>>;
/// The acknowledged messages: when each may start, by the right clock, and whether it was delayed.
type Pushed = Mutex<HashMap<MessageId, (Timestamp, bool)>>;

async fn produce(log: Cassandra, clock: SkewedClock, count: usize, pushed: Arc<Pushed>) {
    let topic = log.topic(&"orders".parse().unwrap()).await.unwrap().unwrap();
    let env = Env::system();
    for call in 0..count / EACH {
        // Half of the calls push messages that are due at once, half push delayed ones.
        let delay = (call % 2 == 1).then(|| Duration::from_millis(200 + env.rng().next_u64() % 2000));
        let due = delay.map(|delay| env.wall() + delay);
        let messages: Vec<Message> = (0..EACH).map(|_| message(clock.0, due, clock.wall())).collect();
        let ids: Vec<MessageId> = messages.iter().map(|message| message.id).collect();
        let shard = || (env.rng().next_u64() % u64::from(SHARDS)) as u16;
        let records = messages.into_iter().map(|message| Record::once(shard(), message)).collect();
        if let Err(error) = log.append(&topic, clock.wall(), records).await {
            assert!(error.is_retryable(), "{error:?}");
            eprintln!("not acknowledged: {error}");
            continue;
        }
        let acknowledged = env.wall();
        let from = due.unwrap_or(acknowledged).max(acknowledged);
        pushed.lock().unwrap().extend(ids.into_iter().map(|id| (id, (from, due.is_some()))));
        env.sleep(Duration::from_millis(env.rng().next_u64() % 20)).await;
    }
}

fn median(mut delays: Vec<u64>) -> u64 {
    delays.sort_unstable();
    delays[delays.len() / 2]
}

/// The limit of the median delay. A message that waited for the settle window of 10 seconds would start
/// later. The limit allows for a busy machine; `SAWMILL_TEST_LATE_MS` sets a lower one.
const MAX_MEDIAN_MS: u64 = 5000;

/// `SAWMILL_TEST_LATE_MESSAGES` sets the number of messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_nothing_is_missed_whatever_clocks_say_and_however_late_writes_are() {
    let Some(url) = server_for("c5") else { return };
    let wanted = std::env::var("SAWMILL_TEST_LATE_MESSAGES").ok().and_then(|text| text.parse().ok());
    let count: usize = wanted.unwrap_or(20_000) / PRODUCERS;
    let namespace = namespace();
    let options = Sawmill::options().engine(CassandraEngine).namespace(namespace.as_str());
    let mill = options.open(&url).await.unwrap();
    let spec = TopicSpec { shards: SHARDS, ..TopicSpec::new("orders".parse().unwrap()) };
    mill.create_topic_with(&spec).await.unwrap();
    let started: Arc<Started> = Arc::default();
    let noted = started.clone();
    let handler = move |context: Context| {
        let message = context.message();
        // The clock of the pushing process decides whether a message is due when it is pushed.
        let off: i64 = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
        let due = message.due.map(|due| due - Duration::from_millis(off.max(0) as u64));
        noted.lock().unwrap().push((message.id, SystemClock.wall(), due));
        async {}
    };
    let ttl = Duration::from_secs(60);
    let worker = mill.worker("orders").concurrency(64).ttl(ttl).start(handler).await.unwrap();

    let node = url.split_once("//").unwrap().1.split_once('/').unwrap().0.to_owned();
    let pushed: Arc<Pushed> = Arc::default();
    let mut producers = Vec::new();
    for number in 0..PRODUCERS {
        let off = BOUND_MS * (2 * number as i64 - (PRODUCERS as i64 - 1)) / (PRODUCERS as i64 - 1);
        let proxy_url = url.replace(&node, &format!("127.0.0.1:{}", slow_proxy(node.clone()).await));
        let env = Env::new(SkewedClock(off), SystemRng, SystemSpawn);
        let log = Cassandra::open_in(&proxy_url.parse().unwrap(), &namespace, env).await.unwrap();
        producers.push(produce(log, SkewedClock(off), count, pushed.clone()));
    }
    join_all(producers).await;
    let total = pushed.lock().unwrap().len();
    let env = Env::system();
    // A message that was not acknowledged may exist, and may be started too.
    let missing = || {
        let started: HashSet<MessageId> = started.lock().unwrap().iter().map(|(id, ..)| *id).collect();
        pushed.lock().unwrap().keys().filter(|id| !started.contains(id)).count()
    };
    let mut progress = (env.now(), missing());
    while progress.1 > 0 {
        env.sleep(Duration::from_millis(50)).await;
        let now = missing();
        if now < progress.1 {
            progress = (env.now(), now);
        }
        if env.now().since(progress.0) >= Duration::from_secs(60) {
            let what = format!("all of {total} that were acknowledged are started");
            panic!("{}", timeout_message(&what, &mill, "orders", "default", async || missing()).await);
        }
    }
    worker.stop().await;
    let (pushed, started) = (pushed.lock().unwrap(), started.lock().unwrap());
    let (mut at_once, mut later, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
    for (id, at, due) in started.iter() {
        *seen.entry(*id).or_insert(0) += 1;
        assert!(due.is_none_or(|due| *at >= due), "started at {at}, due at {due:?}");
        if let Some((from, waits)) = pushed.get(id) {
            let delays = if *waits { &mut later } else { &mut at_once };
            delays.push(at.since(*from).as_millis() as u64);
        }
    }
    assert!(pushed.keys().all(|id| seen.get(id) == Some(&1)), "each is started once");
    let (at_once, later) = (median(at_once), median(later));
    eprintln!(
        "{total} messages, clocks off by up to {BOUND_MS} ms: none missed, none early; \
         half start within {at_once} ms of their acknowledgement, or within {later} ms of when they are due"
    );
    // The number of calls that time out depends on the machine.
    assert!(total >= count * PRODUCERS * 95 / 100, "test timed out: most are acknowledged, not only {total}");
    let most = std::env::var("SAWMILL_TEST_LATE_MS").ok().and_then(|text| text.parse().ok());
    let most = most.unwrap_or(MAX_MEDIAN_MS);
    assert!(
        at_once <= most && later <= most,
        "test timed out: half start within {most} ms; it took {at_once} ms, and {later} ms from when they were due"
    );
}
