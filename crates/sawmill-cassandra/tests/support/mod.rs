//! What the tests of this engine share: the node that they talk to.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

/// Where `cargo xtask engines up` has started a node.
const VARIABLE: &str = "SAWMILL_TEST_CASSANDRA";

/// The URL of the node, or why there is none. Where everything must be tested, that is a failure.
pub(crate) fn server() -> Result<String, String> {
    let url = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    let url =
        url.ok_or_else(|| format!("{VARIABLE} names no node; `cargo xtask engines up cassandra` starts one"));
    if let Err(why) = &url {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    }
    url
}

/// The URL of the node for this test. Without one the test is skipped, visibly.
pub(crate) fn server_for(test: &str) -> Option<String> {
    server().map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}
