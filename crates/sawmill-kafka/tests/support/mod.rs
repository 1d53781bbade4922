//! What the tests of this engine share: the broker that they talk to.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::LazyLock;

use sawmill::env::Env;
use tokio::runtime::{Builder, Runtime};

/// Where `cargo xtask engines up` has started a broker.
const VARIABLE: &str = "SAWMILL_TEST_KAFKA";

/// The URL of the broker, or why there is none.
pub(crate) fn server() -> Result<String, String> {
    named(VARIABLE, "kafka")
}

/// A PostgreSQL, for the ledger.
pub(crate) fn postgres() -> Result<String, String> {
    named("SAWMILL_TEST_POSTGRES", "postgres")
}

fn named(variable: &str, engine: &str) -> Result<String, String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{variable} names no server; `cargo xtask engines up {engine}` starts one"))
}

/// The URL of the broker for this test. Without one the test is skipped, visibly.
pub(crate) fn server_for(test: &str) -> Option<String> {
    server().map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

pub(crate) fn random() -> u64 {
    Env::system().dice().roll()
}

/// Does this on a thread of its own, in a runtime that stays as long as the test program: what is opened there stays open.
pub(crate) fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    std::thread::spawn(|| RUNTIME.block_on(work)).join().unwrap()
}
