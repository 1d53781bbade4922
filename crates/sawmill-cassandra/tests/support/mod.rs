//! Shared by the tests of this engine: the node that they use.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::LazyLock;
use std::time::Duration;

use sawmill_engine::runtime::Env;
use sawmill_engine::storage::Namespace;
use tokio::runtime::{Builder, Runtime};

/// Holds the URL of a node that `cargo xtask engines up` has started.
const VARIABLE: &str = "SAWMILL_TEST_CASSANDRA";

/// The URL of the node, or why there is none.
pub(crate) fn server() -> Result<String, String> {
    let url = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{VARIABLE} names no node; `cargo xtask engines up cassandra` starts one"))
}

/// The URL of the node for this test. Without a node the test is skipped, visibly.
pub(crate) fn server_for(test: &str) -> Option<String> {
    server().map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

/// A new namespace.
pub(crate) fn namespace() -> Namespace {
    format!("t-{:016x}", Env::system().rng().next_u64()).parse().unwrap()
}

/// The URL with another keyspace.
pub(crate) fn with_keyspace(url: &str, keyspace: &str) -> String {
    let (way, settings) = url.split_once('?').unwrap_or((url, ""));
    let (nodes, _) = way.rsplit_once('/').unwrap();
    format!("{nodes}/{keyspace}?{settings}")
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let env = Env::system();
    let began = env.now();
    while !holds().await {
        assert!(env.now().since(began) < Duration::from_secs(60), "test timed out: {what}");
        env.sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a future on a runtime that outlives the test.
pub(crate) fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    std::thread::spawn(|| RUNTIME.block_on(work)).join().unwrap()
}
