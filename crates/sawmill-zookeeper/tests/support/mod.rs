//! Helpers shared by the tests of this engine: the test server.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::LazyLock;

use sawmill_engine::runtime::Env;
use tokio::runtime::{Builder, Runtime};

/// The variable with the URL of the server that `cargo xtask engines up` has started.
const VARIABLE: &str = "SAWMILL_TEST_ZOOKEEPER";

/// Returns the URL of the server, or why there is none.
pub(crate) fn server() -> Result<String, String> {
    named(VARIABLE, "zookeeper")
}

/// Returns the URL of a PostgreSQL server for messages.
pub(crate) fn postgres() -> Result<String, String> {
    named("SAWMILL_TEST_POSTGRES", "postgres")
}

fn named(variable: &str, engine: &str) -> Result<String, String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{variable} names no server; `cargo xtask engines up {engine}` starts one"))
}

/// Returns the URL of the server, or reports a skip.
pub(crate) fn server_for(test: &str) -> Option<String> {
    server().map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

pub(crate) fn random() -> u64 {
    Env::system().rng().next_u64()
}

/// Runs this on its own thread, in a runtime that lives as long as the test program, so that what it opens
/// stays open.
pub(crate) fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    std::thread::spawn(|| RUNTIME.block_on(work)).join().unwrap()
}
