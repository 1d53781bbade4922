//! What a test says that has waited for messages for too long: that some are lost, or that the machine is slow.
//!
//! `cargo xtask test` runs a test a second time only if all it says begins with "test timed out: ". A loss says something else.

use std::time::Duration;

use sawmill::env::Env;
use sawmill::{GroupStatus, Sawmill};

/// A store that does not answer within this time says nothing of its messages.
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(10);
/// How `sawmill-servers` says that a server was too slow to start or to stop. Anything else means that it cannot be had.
const TOO_SLOW: &str = "too slow: ";

/// Takes a last look at a group, and says what became of a wait for some of its messages. `missing` counts those that did not come: it
/// is asked after the status, so that nothing is lost that came meanwhile.
pub async fn timeout_message(
    what: &str,
    mill: &Sawmill,
    topic: &str,
    group: &str,
    missing: impl AsyncFnOnce() -> usize,
) -> String {
    let look = async { (mill.status(topic, group).await, missing().await) };
    match Env::system().within(LAST_LOOK, look).await {
        Some((Ok(status), missing)) => words(what, &status, missing),
        Some((Err(error), missing)) => format!("test timed out: {what}; {missing} are missing: {error}"),
        None => format!("test timed out: {what}; the store does not answer"),
    }
}

/// How many messages the group has still to settle.
pub(crate) fn left(status: &GroupStatus) -> u64 {
    status.waiting + status.scheduled + status.claimed + status.retrying
}

/// What was done with a server of the test's own. One that was too slow is a wait that has expired.
pub fn in_time<T>(done: Result<T, String>) -> T {
    match done {
        Ok(done) => done,
        Err(why) => match timeout_of(&why) {
            Some(timeout) => panic!("{timeout}"),
            None => panic!("{why}"),
        },
    }
}

/// The words of a wait that has expired, if this is why a server could not be had.
pub(crate) fn timeout_of(why: &str) -> Option<String> {
    why.starts_with(TOO_SLOW).then(|| format!("test timed out: {why}"))
}

fn words(what: &str, status: &GroupStatus, missing: usize) -> String {
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

    use sawmill::memory::MemoryEngine;
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
        // This handler does not note what it runs: as if it had never run.
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
