//! The store that behaviours are tested on. An engine implements [`TestStore`]; nothing else in the tests
//! knows the engine.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Ledger, Log, Memory, Namespace, OpenedStore, Position};
use sawmill::{Error, OpenOptions, Result, Sawmill, Timestamp, TopicSpec};
use tokio::runtime::{Builder, Runtime};

use crate::sample::{now, record};
use crate::waits::{STATUS_TIMEOUT, left};

/// A store used by one test alone, on an engine or on a pair of engines.
#[async_trait]
pub trait TestStore: Send + Sync + 'static {
    /// Returns the engine's name for failure messages.
    fn engine() -> &'static str
    where
        Self: Sized;

    /// Returns why there can be no store here, for example because there is no server. The tests are then
    /// reported as skipped.
    fn lacking() -> Option<String>
    where
        Self: Sized,
    {
        None
    }

    /// Makes an unused store. Its resources on the machine are removed with it.
    fn new() -> Self
    where
        Self: Sized;

    /// Returns the options to open such a store by its URL.
    fn options() -> OpenOptions
    where
        Self: Sized;

    /// Returns the shard to which a key belongs, in a topic with this many shards.
    fn shard_of(key: &[u8], shards: u16) -> u16
    where
        Self: Sized,
    {
        sawmill::engine::model::shard_of(key, shards)
    }

    /// Returns its URL.
    fn url(&self) -> String;

    /// Returns the namespace used by this test alone.
    fn namespace(&self) -> Namespace {
        Namespace::default()
    }

    /// Opens its two seams, without the library on top.
    async fn seams(&self) -> OpenedStore;

    /// Returns false while a suspended process blocks other writers.
    async fn can_write(&self) -> bool {
        true
    }
}

/// Returns an unused namespace.
pub fn unused_namespace() -> Namespace {
    format!("t-{:016x}", Env::system().rng().next_u64()).parse().unwrap()
}

/// The engine that behaviours are tested on.
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
    /// Makes the subject of these stores. `module` is the path of the module that contains the tests.
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

    /// Makes a new store.
    pub fn place(self) -> Place {
        let place = Place { subject: self, store: (self.new)() };
        PLACES.with_borrow_mut(|places| {
            if let Some(places) = places {
                places.push(place.clone());
            }
        });
        place
    }

    /// Returns the shard to which a key belongs, in a topic with this many shards.
    pub fn shard_of(self, key: &[u8], shards: u16) -> u16 {
        (self.shard_of)(key, shards)
    }

    /// Returns the name of the test that child processes run.
    pub fn child_test(self) -> String {
        self.module.split("::").skip(1).chain(["child"]).collect::<Vec<_>>().join("::")
    }

    /// Returns whether the engine can be tested here. If not, reports the test as skipped.
    fn is_here(self, test: &str) -> bool {
        let why = (self.lacking)();
        if let Some(why) = &why {
            crate::skipped(test, why);
        }
        why.is_none()
    }
}

/// A store used by one test alone.
#[derive(Clone)]
pub struct Place {
    pub subject: Subject,
    pub store: Arc<dyn TestStore>,
}

impl Place {
    pub fn url(&self) -> String {
        self.store.url()
    }

    /// Opens the store as a separate process would.
    pub async fn mill(&self) -> Sawmill {
        self.open().await.unwrap()
    }

    async fn open(&self) -> Result<Sawmill> {
        let namespace = self.store.namespace();
        (self.subject.options)().namespace(namespace.as_str()).open(&self.url()).await
    }

    /// Returns the two seams, without the library on top. They are opened on another thread and stay open as
    /// long as the test program.
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
    /// Makes the seams of a new store in memory.
    pub fn memory() -> Self {
        let memory = Arc::new(Memory::new());
        Self { log: memory.clone(), ledger: memory }
    }
}

thread_local! {
    /// The stores of the test on this thread, while it runs: an expired wait inspects them.
    static PLACES: RefCell<Option<Vec<Place>>> = const { RefCell::new(None) };
}

/// Makes the stores of a test available while it exists.
struct RegisteredPlaces;

impl RegisteredPlaces {
    fn new() -> Self {
        PLACES.set(Some(Vec::new()));
        Self
    }
}

impl Drop for RegisteredPlaces {
    fn drop(&mut self) {
        drop(PLACES.take());
    }
}

/// Returns true if groups have worked on this test's stores and have nothing left to do, so that nothing more
/// will come. Returns false if that is unknown.
pub(super) async fn nothing_is_left() -> bool {
    let places = PLACES.with_borrow(|places| places.clone().unwrap_or_default());
    let checks = async {
        let first = are_idle(&places).await?;
        // A message that moves from one count to another may be in neither for a moment.
        Env::system().sleep(Duration::from_secs(1)).await;
        Ok::<bool, Error>(first && are_idle(&places).await?)
    };
    matches!(Env::system().within(STATUS_TIMEOUT, checks).await, Some(Ok(true)))
}

async fn are_idle(places: &[Place]) -> Result<bool> {
    let mut groups = 0;
    for place in places {
        let mill = place.open().await?;
        for topic in mill.admin().topics().await? {
            let topic = topic.name.to_string();
            for group in mill.admin().groups(&topic).await? {
                if left(&mill.admin().status(&topic, &group.to_string()).await?) > 0 {
                    return Ok(false);
                }
                groups += 1;
            }
        }
    }
    Ok(groups > 0)
}

/// Runs a test as `#[tokio::test]` does. Called by the macros of the lists.
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
        let _at_hand = RegisteredPlaces::new();
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
        let _at_hand = RegisteredPlaces::new();
        runtime.enable_all().build().unwrap().block_on(test(on));
    }
}

/// Panics unless the tests left out on this engine are exactly those that it cannot pass.
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
