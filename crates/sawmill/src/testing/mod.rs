//! A kit for testing handlers, and programs that push: everything in memory, in milliseconds, with a clock that the test
//! moves.
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
//! // Works everything that can be done now.
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
//! # What was pushed
//!
//! Give the code under test the kit's store, and look at what it pushed:
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
//! # What was given up
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
//! [`drain_with`](TestMill::drain_with) takes a worker's settings. A worker that is to run while time passes is started as
//! always, and [`advance`](TestMill::advance) wakes it at each of its times. So are ordered groups tested, in which a failed
//! message waits in place, in the worker's hand. Wait for such a worker by [`wait_for`](TestMill::wait_for): its own timers
//! stand still while nobody moves the clock.
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
//! # What differs from real life
//!
//! - Topics that the kit creates have one shard, so that one slot works messages in the order of pushing.
//! - Time stands still, but for what `advance` lets pass, and what `drain` and `wait_for` need for a worker's own timers:
//!   some milliseconds of test time, or, while a handler waits for something real, about as long as that really takes.
//! - Chance is the same in every run; [`with_seed`](TestMill::with_seed) gives another one.

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

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::dead::DeadLetter;
use crate::dice::Dice;
use crate::env::{Env, breathe};
use crate::error::{ErrorKind, Result};
use crate::handler::IntoHandler;
use crate::memory::Memory;
use crate::message::{Message, MessageId, Push};
use crate::mill::Sawmill;
use crate::topic::{Topic, TopicSpec};
use crate::worker::{Counts, WorkerBuilder};
pub use clock::TestClock;
use tasks::Tasks;

/// How long to really wait at a time for handlers that wait for something real.
const REAL_WAIT: Duration = Duration::from_millis(1);
/// How often tasks get a turn before the test gives them real time.
const TURNS: usize = 1000;
/// In how much test time a worker that still has something to do would have done it.
const QUIET: Duration = Duration::from_millis(200);

/// A store in memory for one test, with a clock that the test moves; see the [module](self).
///
/// Its methods panic where the library returns errors: in a test both mean that it fails.
pub struct TestMill {
    mill: Sawmill,
    memory: Memory,
    clock: TestClock,
    tasks: Tasks,
}

impl TestMill {
    /// An empty store. Call it in a test that runs on tokio, of either flavor.
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// An empty store, with other random numbers.
    pub fn with_seed(seed: u64) -> Self {
        let (memory, clock, tasks) = (Memory::new(), TestClock::new(), Tasks::default());
        let env = Env::new(clock.clone(), SeededDice(AtomicU64::new(seed)), tasks.clone());
        let mill = Sawmill::from_parts(Arc::new(memory.clone()), Arc::new(memory.clone()), env);
        Self { mill, memory, clock, tasks }
    }

    /// The store itself, for the code under test. The kit dereferences to it too.
    pub fn mill(&self) -> &Sawmill {
        &self.mill
    }

    /// The clock of this store.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// The time that the store's clock shows.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Sets what the store's clock shows, as one sets a clock: no time passes by that.
    pub fn set_time(&self, time: Timestamp) {
        self.clock.set_wall(time);
    }

    // ── topics and messages ──

    /// The topic with this name, created if it is not there.
    pub async fn topic(&self, name: &str) -> Topic {
        let spec = |name| TopicSpec { shards: 1, retention: Duration::MAX, ..TopicSpec::new(name) };
        let topic = async {
            let there = self.mill.topics().await?.into_iter().find(|topic| topic.name.base() == name);
            match there {
                Some(topic) => Ok(topic),
                None => self.mill.create_topic_with(&spec(name.parse()?)).await,
            }
        };
        sure(topic.await)
    }

    /// Pushes a message, to a topic that is created if it is not there.
    pub async fn push(&self, topic: &str, message: impl Into<Push>) -> MessageId {
        self.topic(topic).await;
        sure(self.mill.push(topic, message).await)
    }

    /// All messages that were pushed to a topic, in the order of pushing, whether they are due, done, or neither.
    pub async fn pushed(&self, topic: &str) -> Vec<Message> {
        let topic = self.topic(topic).await;
        let mut messages = sure(self.memory.all(&topic));
        messages.sort_by_key(|message| (message.created, message.id));
        messages
    }

    /// Panics, and says what was pushed, unless a message was pushed to this topic that is as wanted.
    #[track_caller]
    pub fn assert_pushed(&self, topic: &str, wanted: impl Fn(&Message) -> bool) -> impl Future<Output = ()> {
        let here = Location::caller();
        async move {
            let pushed = self.pushed(topic).await;
            if !pushed.iter().any(wanted) {
                panic!("{here}: no message on {topic} is as wanted; {}", shown(&pushed));
            }
        }
    }

    /// Panics, and says what was pushed, if a message was pushed to this topic that is as described.
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
                panic!("{here}: there must be no such message on {topic}; {}", shown(&found));
            }
        }
    }

    /// The dead letters of a topic's group `default`, oldest first.
    pub async fn dead(&self, topic: &str) -> Vec<DeadLetter> {
        self.dead_in(topic, "default").await
    }

    /// The dead letters of a group of a topic, oldest first.
    pub async fn dead_in(&self, topic: &str, group: &str) -> Vec<DeadLetter> {
        self.topic(topic).await;
        match self.mill.dead_letters(topic, group).await {
            // No worker of this group was started yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            letters => sure(sure(letters).list(usize::MAX).await),
        }
    }

    // ── working ──

    /// Works everything of a topic that can be done now, one message after another, and says what was done.
    ///
    /// What is not due, retries included, is left for another time: [`advance`](TestMill::advance), then drain again.
    pub async fn drain<Args>(&self, topic: &str, handler: impl IntoHandler<Args>) -> Counts {
        self.topic(topic).await;
        self.drain_with(self.mill.worker(topic).slots(1), handler).await
    }

    /// Works everything that a worker with these settings can do now, and says what was done. The builder must be one of
    /// this kit's store, and its topics must be there.
    ///
    /// In an ordered group a failed message waits in the hand of its worker, and begins to wait anew in the hand of the
    /// next one: to see it tried again, start a worker of your own.
    pub async fn drain_with<Args>(&self, builder: WorkerBuilder, handler: impl IntoHandler<Args>) -> Counts {
        self.promote().await;
        let worker = sure(self.pass_until(builder.start(handler), || false).await);
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

    /// Makes readable what is due, so that a worker need not wait for the one that does it for all.
    async fn promote(&self) {
        for topic in sure(self.mill.log().topics().await) {
            sure(self.mill.log().promote(&topic, self.now(), usize::MAX).await);
        }
    }

    // ── time ──

    /// Lets time pass. Everything whose time comes meanwhile has its turn at its time, in that order.
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

    /// Waits for a future, and lets time pass in small steps while tasks wait for nothing but the clock.
    ///
    /// No more test time passes than real time: a handler may wait for something real.
    pub async fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.pass_until(future, || true).await
    }

    /// Waits for a future. Time passes no faster than in real life while `may_be_real`: something real is waited for.
    async fn pass_until<T>(&self, future: impl Future<Output = T>, may_be_real: impl Fn() -> bool) -> T {
        let mut future = pin!(future);
        loop {
            self.settle().await;
            let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(value) = polled {
                return value;
            }
            // Something may have been woken by the poll itself.
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
                // One is busy on another thread.
                SystemClock.sleep(REAL_WAIT).await;
            } else {
                breathe().await;
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

/// The value, or the end of the test.
#[track_caller]
fn sure<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Messages as a person wants to see them when a test fails.
fn shown(messages: &[Message]) -> String {
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

/// Chance that is the same in every run: a counter, mixed (SplitMix64).
struct SeededDice(AtomicU64);

impl Dice for SeededDice {
    fn roll(&self) -> u64 {
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
