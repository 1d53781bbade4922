//! The context of a check: an engine, and a namespace used by this check alone.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use sawmill::TopicSpec;
use sawmill::engine::model::Topic;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Ledger, Log, Namespace, OpenedStore};
use tokio::sync::oneshot;

use crate::waits::timeout_of;

/// The longest time for a check, unless the engine hangs.
const LONGEST_CHECK: Duration = Duration::from_secs(180);

/// Opens an engine for the suite.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// Opens the engine's store for this namespace. Opening it twice gives two handles on the same data, as
    /// in two processes.
    async fn open(&self, namespace: &Namespace) -> OpenedStore;

    /// Returns why the engine cannot be tested here, for example because there is no server. Its checks are
    /// then reported as skipped.
    fn lacking(&self) -> Option<String> {
        None
    }

    /// Returns how far the engine's notifications reach. Correctness never depends on them, so an engine may
    /// have none; its test file then says so, and the checks of missing ones are skipped.
    fn hints_reach(&self) -> Reach {
        Reach::EveryHandle
    }

    /// Returns how long "soon" may take: until an acknowledged message is readable, and until a notification
    /// arrives.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// The handles that a change notifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None: everyone polls.
    Nobody,
    /// The handle that made the change.
    SameHandle,
    /// Every handle, at least in the same process.
    EveryHandle,
}

/// An engine, and a namespace in it used by one check alone.
#[derive(Clone)]
pub struct Place {
    factory: Arc<dyn Factory>,
    namespace: Namespace,
    env: Env,
}

impl Place {
    /// Makes an unused namespace, named after the check.
    pub fn new(check: &str, factory: Arc<dyn Factory>) -> Self {
        let env = Env::system();
        let check: String = check.chars().take(22).collect();
        let namespace = format!("{check}-{:016x}", env.rng().next_u64());
        Self { factory, namespace: namespace.parse().expect("a check's name is part of a namespace"), env }
    }

    /// Returns another namespace on the same engine.
    pub(crate) fn elsewhere(&self) -> Self {
        Self::new("elsewhere", self.factory.clone())
    }

    /// Opens a new handle on the log.
    pub(crate) async fn log(&self) -> Arc<dyn Log> {
        let store = self.factory.open(&self.namespace).await;
        store.log.expect("an engine that is run through the log suite opens a store with a log")
    }

    /// Opens a new handle on the ledger.
    pub(crate) async fn ledger(&self) -> Arc<dyn Ledger> {
        let store = self.factory.open(&self.namespace).await;
        store.ledger.expect("an engine that is run through the ledger suite opens a store with a ledger")
    }

    /// Creates a topic with this name and number of shards.
    pub(crate) async fn topic(&self, log: &Arc<dyn Log>, name: &str, shards: u16) -> Topic {
        log.create_topic(&spec(name, shards)).await.expect("a topic with a good name is created")
    }

    /// Opens a handle and creates a topic with this name and number of shards.
    pub(crate) async fn log_and_topic(&self, name: &str, shards: u16) -> (Arc<dyn Log>, Topic) {
        let log = self.log().await;
        let topic = self.topic(&log, name, shards).await;
        (log, topic)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn patience(&self) -> Duration {
        self.factory.patience()
    }

    /// Returns true if the engine's notifications reach this far. If not, reports the check as skipped.
    pub(crate) fn hints_reach(&self, check: &str, reach: Reach) -> bool {
        let reaches = match self.factory.hints_reach() {
            Reach::Nobody => false,
            Reach::SameHandle => reach == Reach::SameHandle,
            Reach::EveryHandle => true,
        };
        if !reaches {
            skipped(check, "the factory says that this engine's notifications do not reach this far");
        }
        reaches
    }
}

/// Returns the specification of a topic.
pub(crate) fn spec(name: &str, shards: u16) -> TopicSpec {
    let name = name.parse().expect("the suite uses good names");
    TopicSpec { shards, ..TopicSpec::new(name) }
}

/// Runs one check on a runtime of its own, and panics if the engine breaks its promise.
///
/// Called by the macros of the suites; call it by hand to try a single check.
pub fn run<F, C>(name: &str, factory: impl Future<Output = F>, check: impl FnOnce(Place) -> C)
where
    F: Factory,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("the machine has room for four threads");
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let factory = factory.await;
            if let Some(why) = factory.lacking() {
                return skipped(name, &why);
            }
            let place = Place::new(name, Arc::new(factory));
            let env = place.env().clone();
            if env.within(LONGEST_CHECK, check(place)).await.is_none() {
                panic!("test timed out: {name} ends within {LONGEST_CHECK:?}; the engine hangs");
            }
        });
    }));
    // The engine may have blocked threads; a failed check must not wait for them.
    runtime.shutdown_timeout(Duration::from_secs(5));
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Reports that a test could not be run here, and why, on the terminal and in the file that `cargo xtask
/// test` names. With `CI=true` everything must run, so a skipped test fails; so does one whose server was too
/// slow to start.
pub fn skipped(test: &str, why: &str) {
    if let Some(timeout) = timeout_of(why) {
        panic!("{timeout}");
    }
    // One line for each test, since lines are counted.
    let why: Vec<&str> = why.split_whitespace().collect();
    let why = why.join(" ");
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        panic!("{test} cannot be run here: {why}; provide what is missing, or run it without CI=true");
    }
    let line = format!("SKIPPED: {test}: {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("SAWMILL_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("the file that counts skipped tests can be written");
    }
}

/// Runs all tasks in parallel, and returns their answers in the order of the tasks. Panics if one of them
/// panics.
pub(crate) async fn together<T, F>(tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let env = Env::system();
    let answers = tasks.into_iter().map(|task| {
        let (answer, answered) = oneshot::channel();
        env.spawn(async move {
            // A check that has already failed no longer waits for answers.
            let _ = answer.send(AssertUnwindSafe(task).catch_unwind().await);
        });
        answered
    });
    let answers: Vec<_> = answers.collect();
    join_all(answers)
        .await
        .into_iter()
        .map(|answer| match answer.expect("the runtime runs every task to its end") {
            Ok(answer) => answer,
            Err(panic) => resume_unwind(panic),
        })
        .collect()
}
