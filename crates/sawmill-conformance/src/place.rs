//! Where a check runs: an engine, and a namespace of the check's own.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use sawmill::engine::{Namespace, Store};
use sawmill::env::Env;
use sawmill::ledger::Ledger;
use sawmill::log::Log;
use sawmill::topic::{Topic, TopicSpec};
use tokio::sync::oneshot;

use crate::waits::timeout_of;

/// No check takes longer, unless the engine hangs.
const LONGEST_CHECK: Duration = Duration::from_secs(180);

/// How an engine is opened for the suite.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// Opens the engine's store for this namespace. Opening it twice gives two handles on the same data, as two
    /// processes would have them.
    async fn open(&self, namespace: &Namespace) -> Store;

    /// Why the engine cannot be tried here, if it cannot: there is no server, say. Its checks are skipped then, visibly.
    fn lacking(&self) -> Option<String> {
        None
    }

    /// How far the engine's hints reach. Nothing correct depends on hints, so an engine may have none; but then its
    /// test file says so, and the checks of what it lacks are skipped.
    fn hints_reach(&self) -> Reach {
        Reach::EveryHandle
    }

    /// How long "soon" may take: when an acknowledged message must have become readable and a hint must have come.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// Who hears of a change through the engine's hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nobody: everyone polls.
    Nobody,
    /// Those who use the handle through which it was made.
    SameHandle,
    /// Those who use any handle, at least in the same process.
    EveryHandle,
}

/// An engine, and a namespace in it that one check has to itself.
#[derive(Clone)]
pub struct Place {
    factory: Arc<dyn Factory>,
    namespace: Namespace,
    env: Env,
}

impl Place {
    /// A namespace that nobody used before, named after the check.
    pub fn new(check: &str, factory: Arc<dyn Factory>) -> Self {
        let env = Env::system();
        let check: String = check.chars().take(22).collect();
        let namespace = format!("{check}-{:016x}", env.dice().roll());
        Self { factory, namespace: namespace.parse().expect("a check's name is part of a namespace"), env }
    }

    /// Another namespace on the same engine.
    pub(crate) fn elsewhere(&self) -> Self {
        Self::new("elsewhere", self.factory.clone())
    }

    /// A new handle on the log.
    pub(crate) async fn log(&self) -> Arc<dyn Log> {
        let store = self.factory.open(&self.namespace).await;
        store.log.expect("an engine that is run through the log suite opens a store with a log")
    }

    /// A new handle on the ledger.
    pub(crate) async fn ledger(&self) -> Arc<dyn Ledger> {
        let store = self.factory.open(&self.namespace).await;
        store.ledger.expect("an engine that is run through the ledger suite opens a store with a ledger")
    }

    /// A topic with this name and so many shards.
    pub(crate) async fn topic(&self, log: &Arc<dyn Log>, name: &str, shards: u16) -> Topic {
        log.create_topic(&spec(name, shards)).await.expect("a topic with a good name is created")
    }

    /// A handle, and a topic with this name and so many shards.
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

    /// True if the engine says that its hints reach so far. If not, this check is skipped, visibly.
    pub(crate) fn hints_reach(&self, check: &str, reach: Reach) -> bool {
        let reaches = match self.factory.hints_reach() {
            Reach::Nobody => false,
            Reach::SameHandle => reach == Reach::SameHandle,
            Reach::EveryHandle => true,
        };
        if !reaches {
            skipped(check, "the factory says that this engine's hints do not reach so far");
        }
        reaches
    }
}

/// A topic as it is to be created.
pub(crate) fn spec(name: &str, shards: u16) -> TopicSpec {
    let name = name.parse().expect("the suite uses good names");
    TopicSpec { shards, ..TopicSpec::new(name) }
}

/// Runs one check to its end, on a runtime of its own, and panics if the engine does not keep its promise.
///
/// The macros of the suites call this; calling it by hand is for trying out a single check.
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
    // An engine may have threads that still wait for something; a failed check must not wait for them.
    runtime.shutdown_timeout(Duration::from_secs(5));
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Says visibly that a test could not be run here, and why: on the terminal, and in the file that `cargo xtask test` names. With `CI=true`
/// everything must be run, so it is a failure; and so is a server that was too slow to start.
pub fn skipped(test: &str, why: &str) {
    if let Some(timeout) = timeout_of(why) {
        panic!("{timeout}");
    }
    // A line for each test: they are counted.
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

/// Runs all tasks at once, truly beside one another, and gives their answers in the order of the tasks. If one of them
/// panics, so does this.
pub(crate) async fn together<T, F>(tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let env = Env::system();
    let answers = tasks.into_iter().map(|task| {
        let (answer, answered) = oneshot::channel();
        env.spawn(async move {
            // Nobody waits for the answer any more if the check has failed already.
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
