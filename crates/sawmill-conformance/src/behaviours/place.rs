//! Where behaviours are shown: a store of the engine under test. An engine brings a [`TestStore`], and nothing else of the tests knows
//! which engine it is.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Namespace, Store};
use sawmill::env::Env;
use sawmill::ledger::Ledger;
use sawmill::log::{Log, Position};
use sawmill::memory::Memory;
use sawmill::{Error, OpenOptions, Result, Sawmill, Timestamp, TopicSpec};
use tokio::runtime::{Builder, Runtime};

use crate::sample::{now, record};
use crate::waits::{LAST_LOOK, left};

/// A store that one test has to itself, on an engine or on a pair of two.
#[async_trait]
pub trait TestStore: Send + Sync + 'static {
    /// What the engine is called when a test fails.
    fn engine() -> &'static str
    where
        Self: Sized;

    /// Why there can be no store here: there is no server, say. The tests are skipped then, visibly.
    fn lacking() -> Option<String>
    where
        Self: Sized,
    {
        None
    }

    /// A store that nobody used before. What it needs on the machine goes away with it.
    fn new() -> Self
    where
        Self: Sized;

    /// How to open such a store by its URL.
    fn options() -> OpenOptions
    where
        Self: Sized;

    /// The shard of a topic with so many to which a key belongs.
    fn shard_of(key: &[u8], shards: u16) -> u16
    where
        Self: Sized,
    {
        sawmill::shard::shard_of(key, shards)
    }

    /// Its URL.
    fn url(&self) -> String;

    /// The namespace that the test has to itself.
    fn namespace(&self) -> Namespace {
        Namespace::default()
    }

    /// Opens its two seams, without the library on top.
    async fn seams(&self) -> Store;

    /// False while a process that stands still keeps others from writing.
    async fn can_write(&self) -> bool {
        true
    }
}

/// A namespace that nobody used before.
pub fn unused_namespace() -> Namespace {
    format!("t-{:016x}", Env::system().dice().roll()).parse().unwrap()
}

/// The engine that behaviours are shown on.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    pub engine: &'static str,
    pub options: fn() -> OpenOptions,
    lacking: fn() -> Option<String>,
    new: fn() -> Arc<dyn TestStore>,
    shard_of: fn(&[u8], u16) -> u16,
    module: &'static str,
}

impl Subject {
    /// The engine of these stores. `module` is the path of the module that the tests are in.
    pub fn of<S: TestStore>(module: &'static str) -> Self {
        Self {
            engine: S::engine(),
            options: S::options,
            lacking: S::lacking,
            new: || Arc::new(S::new()),
            shard_of: S::shard_of,
            module,
        }
    }

    /// A new store.
    pub fn place(self) -> Place {
        let place = Place { subject: self, store: (self.new)() };
        PLACES.with_borrow_mut(|places| {
            if let Some(places) = places {
                places.push(place.clone());
            }
        });
        place
    }

    /// The shard of a topic with so many to which a key belongs.
    pub fn shard_of(self, key: &[u8], shards: u16) -> u16 {
        (self.shard_of)(key, shards)
    }

    /// The name of the test that child processes run.
    pub fn child_test(self) -> String {
        self.module.split("::").skip(1).chain(["child"]).collect::<Vec<_>>().join("::")
    }

    /// True if it can be tried here. If not, says so.
    fn is_here(self, test: &str) -> bool {
        let why = (self.lacking)();
        if let Some(why) = &why {
            crate::skipped(test, why);
        }
        why.is_none()
    }
}

/// A store that one test has to itself.
#[derive(Clone)]
pub struct Place {
    pub subject: Subject,
    pub store: Arc<dyn TestStore>,
}

impl Place {
    pub fn url(&self) -> String {
        self.store.url()
    }

    /// The store, opened as a process of its own would.
    pub async fn mill(&self) -> Sawmill {
        self.open().await.unwrap()
    }

    async fn open(&self) -> Result<Sawmill> {
        let namespace = self.store.namespace();
        (self.subject.options)().namespace(namespace.as_str()).open(&self.url()).await
    }

    /// The two seams, without the library on top. They are opened on a thread of their own and stay open as long as the test program.
    pub fn store(&self) -> Seams {
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
        let store = self.store.clone();
        let opened = std::thread::spawn(move || RUNTIME.block_on(store.seams())).join().unwrap();
        Seams { log: opened.log.unwrap(), ledger: opened.ledger.unwrap() }
    }

    pub fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        self.subject.shard_of(key, shards)
    }
}

/// The two seams of a store.
#[derive(Clone)]
pub struct Seams {
    pub log: Arc<dyn Log>,
    pub ledger: Arc<dyn Ledger>,
}

impl Seams {
    /// Those of a new store in memory.
    pub fn memory() -> Self {
        let memory = Arc::new(Memory::new());
        Self { log: memory.clone(), ledger: memory }
    }
}

thread_local! {
    /// The stores of the test that runs on this thread, as long as it runs: a wait that has expired looks into them.
    static PLACES: RefCell<Option<Vec<Place>>> = const { RefCell::new(None) };
}

/// While it is there, the stores of a test are at hand.
struct AtHand;

impl AtHand {
    fn new() -> Self {
        PLACES.set(Some(Vec::new()));
        Self
    }
}

impl Drop for AtHand {
    fn drop(&mut self) {
        drop(PLACES.take());
    }
}

/// True if groups have worked on the stores of this test and have nothing left to do: what has not come by now will not come any more.
/// False if that cannot be known.
pub(super) async fn nothing_is_left() -> bool {
    let places = PLACES.with_borrow(|places| places.clone().unwrap_or_default());
    let looks = async {
        let first = are_idle(&places).await?;
        // A message that moves from one count to another may be in neither for a moment.
        Env::system().sleep(Duration::from_secs(1)).await;
        Ok::<bool, Error>(first && are_idle(&places).await?)
    };
    matches!(Env::system().within(LAST_LOOK, looks).await, Some(Ok(true)))
}

async fn are_idle(places: &[Place]) -> Result<bool> {
    let mut groups = 0;
    for place in places {
        let mill = place.open().await?;
        for topic in mill.topics().await? {
            let topic = topic.name.to_string();
            for group in mill.groups(&topic).await? {
                if left(&mill.status(&topic, &group.to_string()).await?) > 0 {
                    return Ok(false);
                }
                groups += 1;
            }
        }
    }
    Ok(groups > 0)
}

/// Runs a test as `#[tokio::test]` does. The macros of the lists call this.
pub fn one_thread<T: Future<Output = ()>>(name: &str, on: Subject, test: impl FnOnce(Subject) -> T) {
    run(Builder::new_current_thread(), name, on, test);
}

/// The same, with several threads.
pub fn many_threads<T: Future<Output = ()>>(name: &str, on: Subject, test: impl FnOnce(Subject) -> T) {
    run(Builder::new_multi_thread(), name, on, test);
}

/// The same, for a test that makes its own threads.
pub fn no_runtime(name: &str, on: Subject, test: impl FnOnce(Subject)) {
    if on.is_here(name) {
        let _at_hand = AtHand::new();
        test(on);
    }
}

fn run<T: Future<Output = ()>>(
    mut runtime: Builder,
    name: &str,
    on: Subject,
    test: impl FnOnce(Subject) -> T,
) {
    if on.is_here(name) {
        let _at_hand = AtHand::new();
        runtime.enable_all().build().unwrap().block_on(test(on));
    }
}

/// Panics if the tests that are left out on this engine are not those that it cannot pass.
pub async fn check_lacks(on: Subject, lacks: &'static [&'static str]) {
    let place = on.place();
    let log = place.store().log;
    let capabilities = log.capabilities();
    let left_out = lacks.contains(&"idempotent_append");
    assert_eq!(left_out, !capabilities.idempotent_append, "{} says {capabilities:?}", on.engine);
    if lacks.contains(&"trimming") {
        let spec = TopicSpec { shards: 1, ..TopicSpec::new("trimmed".parse().unwrap()) };
        let topic = log.create_topic(&spec).await.unwrap();
        log.append(&topic, now(), vec![record(0, "old")]).await.unwrap();
        let ends = log.positions(&topic, Timestamp::LATEST).await.unwrap();
        let upto: Vec<Vec<Position>> = ends.into_iter().map(|end| vec![end]).collect();
        let dropped = log.trim(&topic, &upto, Timestamp::LATEST).await.unwrap();
        assert_eq!(dropped, [0], "{} does trim, and the tests of that are left out", on.engine);
    }
}
