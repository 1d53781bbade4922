//! Notifies subscribers of changed entries through one watch on the whole ledger, renewed after each change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use sawmill_engine::storage::Notifications;
use tokio::sync::watch;
use zookeeper_client::{AddWatchMode, PersistentWatcher};

use crate::error::explain;
use crate::session::Session;

/// The pause before another attempt to watch.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause after a change, without a watch.
const PAUSE_AFTER_CHANGE: Duration = Duration::from_millis(100);

/// Notifies subscribers of changed entries. Watches only after the first subscription.
pub(crate) struct Notifier {
    changed: watch::Sender<()>,
    /// True after the first subscription. Dropped with the ledger.
    wanted: watch::Sender<bool>,
}

impl Notifier {
    /// Creates the notifier and starts its task.
    pub(crate) fn start(session: &Arc<Session>, root: String) -> Self {
        let (changed, wanted) = (watch::Sender::new(()), watch::Sender::new(false));
        let task = watch_ledger(Arc::downgrade(session), root, changed.clone(), wanted.subscribe());
        session.env().spawn(task);
        Self { changed, wanted }
    }

    pub(crate) fn subscribe(&self) -> Notifications {
        let notifications = Notifications::new(self.changed.subscribe());
        self.wanted.send_replace(true);
        notifications
    }
}

/// Watches while the ledger is open. One event shows that something has changed. The watch is then removed
/// for a while, so that frequent writes do not make ZooKeeper send every change to every client.
async fn watch_ledger(
    session: Weak<Session>,
    root: String,
    changed: watch::Sender<()>,
    mut wanted: watch::Receiver<bool>,
) {
    if wanted.wait_for(|wanted| *wanted).await.is_err() {
        return;
    }
    loop {
        let Some(open) = session.upgrade() else { return };
        let env = open.env().clone();
        let watcher = begin(&open, &root).await;
        // Only users of the ledger keep its session alive.
        drop(open);
        let Some(mut watcher) = watcher else {
            env.sleep(RETRY_PAUSE).await;
            continue;
        };
        // Changes before the watch are not reported.
        changed.send_replace(());
        let closed = std::pin::pin!(wanted.wait_for(|wanted| !*wanted));
        // Events are lost while disconnected, so a disconnection counts as a change.
        if let Either::Right(_) = select(std::pin::pin!(watcher.changed()), closed).await {
            return;
        }
        changed.send_replace(());
        drop(watcher);
        env.sleep(PAUSE_AFTER_CHANGE).await;
    }
}

async fn begin(session: &Session, root: &str) -> Option<PersistentWatcher> {
    let client = session.client().await.ok()?;
    let watcher = client.watch(root, AddWatchMode::PersistentRecursive).await;
    watcher.inspect_err(|error| tracing::debug!(error = %explain(error), "the ledger is not watched")).ok()
}
