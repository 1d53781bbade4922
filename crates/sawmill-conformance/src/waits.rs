//! What a test says that has waited for messages for too long: that some are lost, or that the machine is slow.
//!
//! `cargo xtask test` runs a test a second time only if all it says begins with "this did not happen: ". A loss says something else.

use std::time::Duration;

use sawmill::env::Env;
use sawmill::{GroupStatus, Sawmill};

/// A store that does not answer within this time says nothing of its messages.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// Takes a last look at a group, and says what became of a wait for some of its messages. `missing` counts those that did not come: it
/// is asked after the status, so that nothing is lost that came meanwhile.
pub async fn in_vain(
    what: &str,
    mill: &Sawmill,
    topic: &str,
    group: &str,
    missing: impl AsyncFnOnce() -> usize,
) -> String {
    let look = async { (mill.status(topic, group).await, missing().await) };
    match Env::system().within(LAST_LOOK, look).await {
        Some((Ok(status), missing)) => words(what, &status, missing),
        Some((Err(error), missing)) => format!("this did not happen: {what}; {missing} are missing: {error}"),
        None => format!("this did not happen: {what}; the store does not answer"),
    }
}

fn words(what: &str, status: &GroupStatus, missing: usize) -> String {
    match status.waiting + status.scheduled + status.claimed + status.retrying {
        0 if missing > 0 => format!("lost: {missing}, and nothing waits any more; {what}: {status:?}"),
        waiting => {
            format!("this did not happen: {what}; {waiting} wait still, {missing} are missing: {status:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sawmill::memory::MemoryEngine;
    use sawmill::{Context, MessageId};

    use super::*;

    #[tokio::test]
    async fn what_is_missing_is_lost_only_if_nothing_waits_any_more() {
        let mill = Sawmill::options().engine(MemoryEngine).open("memory:").await.unwrap();
        mill.create_topic("t").await.unwrap();
        let id = mill.push("t", "x").await.unwrap();
        let seen: HashSet<MessageId> = HashSet::new();
        let missing = async || usize::from(!seen.contains(&id));
        let said = in_vain("it runs", &mill, "t", "default", missing).await;
        assert!(said.starts_with("this did not happen: it runs; 1 wait still"), "{said}");
        // This handler does not note what it runs: as if it had never run.
        let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
        worker.drained().await;
        let said = in_vain("it runs", &mill, "t", "default", missing).await;
        assert!(said.starts_with("lost: 1"), "{said}");
        let said = in_vain("another wait", &mill, "t", "default", async || 0).await;
        assert!(said.starts_with("this did not happen: another wait"), "{said}");
        let said = in_vain("a topic", &mill, "nothing", "default", async || 1).await;
        assert!(said.starts_with("this did not happen: a topic; 1 are missing"), "{said}");
        worker.stop().await;
    }
}
