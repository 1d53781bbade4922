//! Failure messages of expired waits: they tell a lost message from a slow machine.
//!
//! `cargo xtask test` repeats a test only if its failure begins with "test timed out: ". A loss is worded
//! differently.

use std::time::Duration;

use sawmill::Sawmill;
use sawmill::admin::GroupStatus;
use sawmill::engine::runtime::Env;

/// A store that does not answer within this time gives no information about its messages.
pub(crate) const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix with which `sawmill-servers` reports a server that was too slow to start or stop. Any other
/// error means that there is no server.
const TOO_SLOW: &str = "too slow: ";

/// Returns the failure message of a wait for some messages of a group, after a last check of the group.
/// `missing` counts the messages that did not come. It is called after the status, so messages that came
/// meanwhile do not count as lost.
pub async fn timeout_message(
    what: &str,
    mill: &Sawmill,
    topic: &str,
    group: &str,
    missing: impl AsyncFnOnce() -> usize,
) -> String {
    let look = async { (mill.admin().status(topic, group).await, missing().await) };
    match Env::system().within(STATUS_TIMEOUT, look).await {
        Some((Ok(status), missing)) => describe(what, &status, missing),
        Some((Err(error), missing)) => format!("test timed out: {what}; {missing} are missing: {error}"),
        None => format!("test timed out: {what}; the store does not answer"),
    }
}

/// Returns how many messages the group has still to settle.
pub(crate) fn left(status: &GroupStatus) -> u64 {
    status.waiting + status.scheduled + status.claimed + status.retrying
}

/// Unwraps the result of an operation on a test server. A server that was too slow counts as an expired wait.
pub fn in_time<T>(done: Result<T, String>) -> T {
    match done {
        Ok(done) => done,
        Err(why) => match timeout_of(&why) {
            Some(timeout) => panic!("{timeout}"),
            None => panic!("{why}"),
        },
    }
}

/// Returns the timeout message if this is why a server could not be used.
pub(crate) fn timeout_of(why: &str) -> Option<String> {
    why.starts_with(TOO_SLOW).then(|| format!("test timed out: {why}"))
}

fn describe(what: &str, status: &GroupStatus, missing: usize) -> String {
    match left(status) {
        0 if missing > 0 => format!("lost: {missing}, and nothing waits any more; {what}: {status:?}"),
        waiting => {
            format!("test timed out: {what}; {waiting} wait still, {missing} are missing: {status:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sawmill::engine::storage::MemoryEngine;
    use sawmill::{Context, MessageId};

    use super::*;

    #[test]
    fn a_server_that_is_too_slow_is_told_from_one_that_cannot_be_had() {
        let said = timeout_of("too slow: it sleeps");
        assert_eq!(said.as_deref(), Some("test timed out: too slow: it sleeps"));
        assert_eq!(timeout_of("there is no apt-get here"), None);
    }

    #[tokio::test]
    async fn what_is_missing_is_lost_only_if_nothing_waits_any_more() {
        let mill = Sawmill::options().engine(MemoryEngine).open("memory:").await.unwrap();
        mill.create_topic("t").await.unwrap();
        let id = mill.push("t", "x").await.unwrap();
        let seen: HashSet<MessageId> = HashSet::new();
        let missing = async || usize::from(!seen.contains(&id));
        let said = timeout_message("it runs", &mill, "t", "default", missing).await;
        assert!(said.starts_with("test timed out: it runs; 1 wait still"), "{said}");
        // This handler records nothing, as if it had never run.
        let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
        worker.drained().await;
        let said = timeout_message("it runs", &mill, "t", "default", missing).await;
        assert!(said.starts_with("lost: 1"), "{said}");
        let said = timeout_message("another wait", &mill, "t", "default", async || 0).await;
        assert!(said.starts_with("test timed out: another wait"), "{said}");
        let said = timeout_message("a topic", &mill, "nothing", "default", async || 1).await;
        assert!(said.starts_with("test timed out: a topic; 1 are missing"), "{said}");
        worker.stop().await;
    }
}
