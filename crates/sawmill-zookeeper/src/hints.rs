//! Hints: one watch on everything that the ledger keeps, set anew after each change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use sawmill::log::Hints;
use tokio::sync::watch;
use zookeeper_client::{AddWatchMode, PersistentWatcher};

use crate::error::explain;
use crate::session::Link;

/// How long before it is tried again to watch.
const PAUSE: Duration = Duration::from_millis(500);
/// How long after a change nobody watches.
const REST: Duration = Duration::from_millis(100);

/// Rung when an entry has changed. Nobody watches before somebody listens.
pub(crate) struct Bell {
    rung: watch::Sender<()>,
    /// Said once there is a listener; gone with the ledger.
    wanted: watch::Sender<bool>,
}

impl Bell {
    /// A bell, and the task that rings it.
    pub(crate) fn of(link: &Arc<Link>, root: String) -> Self {
        let (rung, wanted) = (watch::Sender::new(()), watch::Sender::new(false));
        let task = watching(Arc::downgrade(link), root, rung.clone(), wanted.subscribe());
        link.env().spawn(task);
        Self { rung, wanted }
    }

    pub(crate) fn hints(&self) -> Hints {
        let hints = Hints::new(self.rung.subscribe());
        self.wanted.send_replace(true);
        hints
    }
}

/// Watches as long as there is a ledger to watch. One event is enough to know that something has changed: then the watch is
/// taken away for a while, so that many who write much do not make ZooKeeper send every change to everybody.
async fn watching(
    link: Weak<Link>,
    root: String,
    bell: watch::Sender<()>,
    mut wanted: watch::Receiver<bool>,
) {
    if wanted.wait_for(|wanted| *wanted).await.is_err() {
        return;
    }
    loop {
        let Some(there) = link.upgrade() else { return };
        let env = there.env().clone();
        let watcher = begin(&there, &root).await;
        // Only those who use the ledger keep its session.
        drop(there);
        let Some(mut watcher) = watcher else {
            env.sleep(PAUSE).await;
            continue;
        };
        // What has changed before it was watched is not told.
        bell.send_replace(());
        let closed = std::pin::pin!(wanted.wait_for(|wanted| !*wanted));
        // While there is no connection events are lost: so that is one, too.
        if let Either::Right(_) = select(std::pin::pin!(watcher.changed()), closed).await {
            return;
        }
        bell.send_replace(());
        drop(watcher);
        env.sleep(REST).await;
    }
}

async fn begin(link: &Link, root: &str) -> Option<PersistentWatcher> {
    let client = link.client().await.ok()?;
    let watcher = client.watch(root, AddWatchMode::PersistentRecursive).await;
    watcher.inspect_err(|error| tracing::debug!(error = %explain(error), "the ledger is not watched")).ok()
}
