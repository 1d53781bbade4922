//! A test kit for handlers and for programs that push: everything runs in memory, in milliseconds, with a
//! clock that the test moves.
//!
//! ```
//! use std::time::Duration;
//! use sawmill::testing::TestMill;
//! use sawmill::{Context, Outcome};
//!
//! async fn send(mail: Context) -> Outcome {
//!     match mail.attempt() {
//!         1 => Outcome::retry_after("the server is busy", Duration::from_secs(60)),
//!         _ => Outcome::Done,
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let kit = TestMill::new();
//! kit.push("emails", "Hello Alice").await;
//!
//! // Handles everything that is due now.
//! let counts = kit.drain("emails", send).await;
//! assert_eq!((counts.done, counts.failed), (0, 1));
//!
//! // The retry is not due yet.
//! assert_eq!(kit.drain("emails", send).await.started, 0);
//!
//! // A minute later it is.
//! kit.advance(Duration::from_secs(60)).await;
//! assert_eq!(kit.drain("emails", send).await.done, 1);
//! # }
//! ```
//!
//! # Pushed messages
//!
//! Give the kit's store to the code under test, and check what it pushed:
//!
//! ```
//! use sawmill::testing::TestMill;
//! use sawmill::{Push, Sawmill};
//!
//! #[derive(serde::Deserialize)]
//! struct Mail { to: String }
//!
//! async fn welcome(mill: &Sawmill, name: &str) -> sawmill::Result<()> {
//!     mill.push("emails", Push::new(format!(r#"{{ "to": "{name}" }}"#)).key(name.to_owned())).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! let kit = TestMill::new();
//! kit.topic("emails").await;
//! welcome(&kit, "alice").await?;
//!
//! kit.assert_pushed("emails", |push| push.json::<Mail>().is_ok_and(|mail| mail.to == "alice")).await;
//! kit.assert_not_pushed("emails", |push| push.due.is_some()).await;
//! assert_eq!(kit.pushed("emails").await.len(), 1);
//! # Ok(()) }
//! ```
//!
//! # Dead letters
//!
//! ```
//! use sawmill::testing::TestMill;
//! use sawmill::{Context, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let kit = TestMill::new();
//! kit.push("emails", "").await;
//! kit.drain("emails", |_mail: Context| async { Outcome::dead("there is nothing to send") }).await;
//! assert_eq!(kit.dead("emails").await[0].reason(), "there is nothing to send");
//! # }
//! ```
//!
//! # Workers of your own
//!
//! [`drain_with`](TestMill::drain_with) takes a worker's settings. To run a worker while time passes, start
//! it as usual: [`advance`](TestMill::advance) wakes it at each of its times. Test ordered groups in this
//! way, because a failed message waits in place in its worker's claim. Wait for such a worker with
//! [`wait_for`](TestMill::wait_for): its timers stand still unless the clock moves.
//!
//! ```
//! use std::time::Duration;
//! use sawmill::testing::TestMill;
//! use sawmill::{Context, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! let kit = TestMill::new();
//! kit.push("orders", "1").await;
//! let worker = kit.worker("orders").ordered().start(|order: Context| async move {
//!     match order.attempt() {
//!         1 => Outcome::retry_after("not yet", Duration::from_secs(60)),
//!         _ => Outcome::Done,
//!     }
//! }).await?;
//! kit.advance(Duration::from_secs(59)).await;
//! assert_eq!(worker.counts().done, 0);
//! kit.advance(Duration::from_secs(2)).await;
//! kit.wait_for(worker.drained()).await;
//! assert_eq!(kit.wait_for(worker.stop()).await.done, 1);
//! # Ok(()) }
//! ```
//!
//! # Differences from production
//!
//! - Topics that the kit creates have one shard, so a worker with a concurrency of 1 handles messages in the
//!   order of pushing.
//! - Only `advance` lets time pass, and `drain` and `wait_for` as far as a worker's own timers need it: some
//!   milliseconds of test time, or, while a handler waits for something real, about as long as that takes.
//! - Random numbers are the same in every run; [`with_seed`](TestMill::with_seed) changes them.

mod clock;
mod tasks;

use std::fmt::Write as _;
use std::ops::Deref;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use sawmill_engine::model::{Message, MessageId, Push, Topic, TopicSpec};
use sawmill_engine::runtime::{Clock, Env, Rng, SystemClock, Timestamp, yield_now};
use sawmill_engine::storage::Memory;
use sawmill_engine::{ErrorKind, Result};

use crate::Sawmill;
use crate::admin::DeadLetter;
use crate::handler::IntoHandler;
use crate::worker::{Counts, WorkerBuilder};
pub use clock::TestClock;
use tasks::Tasks;

/// The length of one wait in real time, for handlers that wait for something real.
const REAL_WAIT: Duration = Duration::from_millis(1);
/// How often to yield to tasks before waiting in real time.
const TURNS: usize = 1000;
/// A drain ends if the worker has only waited for this much test time.
const QUIET: Duration = Duration::from_millis(200);

/// A store in memory for one test, with a clock that the test moves; see the [module](self).
///
/// Its methods panic where the library returns errors, so that the test fails.
pub struct TestMill {
    mill: Sawmill,
    memory: Memory,
    clock: TestClock,
    tasks: Tasks,
}

impl TestMill {
    /// Makes an empty store. Call it in a test that runs on tokio, of either flavor.
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// Makes an empty store with other random numbers.
    pub fn with_seed(seed: u64) -> Self {
        let (memory, clock, tasks) = (Memory::new(), TestClock::new(), Tasks::default());
        let env = Env::new(clock.clone(), SeededRng(AtomicU64::new(seed)), tasks.clone());
        let mill = Sawmill::from_parts(Arc::new(memory.clone()), Arc::new(memory.clone()), env);
        Self { mill, memory, clock, tasks }
    }

    /// Returns the store, for the code under test. The kit also dereferences to it.
    pub fn mill(&self) -> &Sawmill {
        &self.mill
    }

    /// Returns the store's clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Returns the wall-clock time of the store.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Sets the wall-clock time of the store. No time passes for timers; for that, see
    /// [`advance`](TestMill::advance).
    pub fn set_time(&self, time: Timestamp) {
        self.clock.set_wall(time);
    }

    // ── topics and messages ──

    /// Returns the topic with this name, and creates it if it does not exist.
    pub async fn topic(&self, name: &str) -> Topic {
        let spec = |name| TopicSpec { shards: 1, retention: Duration::MAX, ..TopicSpec::new(name) };
        let topic = async {
            let there = self.mill.admin().topics().await?.into_iter().find(|topic| topic.name.base() == name);
            match there {
                Some(topic) => Ok(topic),
                None => self.mill.create_topic_with(&spec(name.parse()?)).await,
            }
        };
        unwrap_or_panic(topic.await)
    }

    /// Pushes a message, and creates the topic if it does not exist.
    pub async fn push(&self, topic: &str, message: impl Into<Push>) -> MessageId {
        self.topic(topic).await;
        unwrap_or_panic(self.mill.push(topic, message).await)
    }

    /// Returns all messages that were pushed to a topic, in the order of pushing, due or not, done or not.
    pub async fn pushed(&self, topic: &str) -> Vec<Message> {
        let topic = self.topic(topic).await;
        let mut messages = unwrap_or_panic(self.memory.all(&topic));
        messages.sort_by_key(|message| (message.created, message.id));
        messages
    }

    /// Panics, and lists what was pushed, unless a message on the topic fulfils `wanted`.
    #[track_caller]
    pub fn assert_pushed(&self, topic: &str, wanted: impl Fn(&Message) -> bool) -> impl Future<Output = ()> {
        let here = Location::caller();
        async move {
            let pushed = self.pushed(topic).await;
            if !pushed.iter().any(wanted) {
                panic!("{here}: no message on {topic} is as wanted; {}", describe(&pushed));
            }
        }
    }

    /// Panics, and lists the messages, if any message on the topic fulfils `unwanted`.
    #[track_caller]
    pub fn assert_not_pushed(
        &self,
        topic: &str,
        unwanted: impl Fn(&Message) -> bool,
    ) -> impl Future<Output = ()> {
        let here = Location::caller();
        async move {
            let pushed = self.pushed(topic).await;
            let found: Vec<Message> = pushed.iter().filter(|message| unwanted(message)).cloned().collect();
            if !found.is_empty() {
                panic!("{here}: there must be no such message on {topic}; {}", describe(&found));
            }
        }
    }

    /// Lists the dead letters of a topic's group `default`, oldest first.
    pub async fn dead(&self, topic: &str) -> Vec<DeadLetter> {
        self.dead_in(topic, "default").await
    }

    /// Lists the dead letters of a group, oldest first. A group that has had no worker yet has none.
    pub async fn dead_in(&self, topic: &str, group: &str) -> Vec<DeadLetter> {
        self.topic(topic).await;
        match self.mill.admin().dead_letters(topic, group).await {
            // The group has had no worker yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            letters => unwrap_or_panic(unwrap_or_panic(letters).list(usize::MAX).await),
        }
    }

    // ── working ──

    /// Handles all messages of a topic that are due now, one after another, and returns the counts.
    ///
    /// Messages that are not due, retries included, stay: [`advance`](TestMill::advance), then drain again.
    pub async fn drain<Args>(&self, topic: &str, handler: impl IntoHandler<Args>) -> Counts {
        self.topic(topic).await;
        self.drain_with(self.mill.worker(topic).concurrency(1), handler).await
    }

    /// Handles everything that a worker with these settings can do now, and returns the counts. The builder
    /// must be of this kit's store, and its topics must exist.
    ///
    /// In an ordered group a failed message waits in its worker's claim, and the wait starts anew with the
    /// next worker. To see it retried, start a worker of your own.
    pub async fn drain_with<Args>(&self, builder: WorkerBuilder, handler: impl IntoHandler<Args>) -> Counts {
        self.promote().await;
        let worker = unwrap_or_panic(self.pass_until(builder.start(handler), || false).await);
        let runs = || worker.state().busy > 0;
        let mut seen = (0, self.clock.now());
        let drained = async {
            let mut drained = pin!(worker.drained());
            std::future::poll_fn(|context| {
                let started = worker.counts().started;
                if started != seen.0 || !worker.only_waits() {
                    seen = (started, self.clock.now());
                }
                let quiet = self.clock.now().since(seen.1) >= QUIET;
                if quiet { Poll::Ready(()) } else { drained.as_mut().poll(context) }
            })
            .await;
        };
        self.pass_until(drained, runs).await;
        self.pass_until(worker.stop(), runs).await
    }

    /// Promotes the messages that are due, so that the worker need not wait for maintenance.
    async fn promote(&self) {
        for topic in unwrap_or_panic(self.mill.store().log().topics().await) {
            unwrap_or_panic(self.mill.store().log().promote(&topic, self.now(), usize::MAX).await);
        }
    }

    // ── time ──

    /// Lets time pass. All tasks that wait for a time in between run at that time, in order.
    pub async fn advance(&self, duration: Duration) {
        let end = self.clock.now() + duration;
        loop {
            self.settle().await;
            let left = end.since(self.clock.now());
            let step = self.clock.next_wake().map_or(left, |next| next.min(left));
            self.clock.pass(step);
            if step == left {
                return self.settle().await;
            }
        }
    }

    /// Waits for a future, and lets test time pass in small steps while all tasks wait.
    ///
    /// Test time passes no faster than real time, because a handler may wait for something real.
    pub async fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.pass_until(future, || true).await
    }

    /// Waits for a future. While `may_be_real` returns true, test time passes no faster than real time.
    async fn pass_until<T>(&self, future: impl Future<Output = T>, may_be_real: impl Fn() -> bool) -> T {
        let mut future = pin!(future);
        loop {
            self.settle().await;
            let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(value) = polled {
                return value;
            }
            // The poll itself may have woken tasks.
            if !self.tasks.all_wait() {
                continue;
            }
            match self.clock.next_wake() {
                Some(next) if next <= REAL_WAIT || !may_be_real() => self.clock.pass(next),
                _ => {
                    SystemClock.sleep(REAL_WAIT).await;
                    self.clock.pass(REAL_WAIT);
                }
            }
        }
    }

    /// Lets all tasks run until each waits for something.
    async fn settle(&self) {
        let mut turns = 0;
        while !self.tasks.all_wait() {
            turns += 1;
            if turns % TURNS == 0 {
                // A task is busy on another thread.
                SystemClock.sleep(REAL_WAIT).await;
            } else {
                yield_now().await;
            }
        }
    }
}

impl Default for TestMill {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for TestMill {
    type Target = Sawmill;
    fn deref(&self) -> &Sawmill {
        &self.mill
    }
}

/// Returns the value, or fails the test.
#[track_caller]
fn unwrap_or_panic<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Describes messages for the text of a failed assertion.
fn describe(messages: &[Message]) -> String {
    let mut text = match messages.len() {
        0 => return "nothing was pushed".to_owned(),
        count => format!("of these there are {count}:"),
    };
    for message in messages {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {:?}", String::from_utf8_lossy(&message.payload));
        if let Some(key) = &message.key {
            let _ = write!(text, " key {:?}", String::from_utf8_lossy(key));
        }
        for (name, value) in message.headers.iter() {
            let _ = write!(text, " {name}: {:?}", String::from_utf8_lossy(value));
        }
        if let Some(due) = message.due {
            let _ = write!(text, " due {due}");
        }
    }
    text
}

/// Random numbers that are the same in every run: a mixed counter (SplitMix64).
struct SeededRng(AtomicU64);

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
