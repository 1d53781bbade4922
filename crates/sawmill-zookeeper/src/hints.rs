//! Hints: one watch on everything that the ledger keeps, renewed with the session.

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

/// Watches as long as there is a ledger to watch.
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
        match watcher {
            Some(watcher) => {
                // What has changed before is not told.
                bell.send_replace(());
                if ring(watcher, &bell, &mut wanted).await.is_err() {
                    return;
                }
                bell.send_replace(());
            }
            None => env.sleep(PAUSE).await,
        }
    }
}

async fn begin(link: &Link, root: &str) -> Option<PersistentWatcher> {
    let client = link.client().await.ok()?;
    let watcher = client.watch(root, AddWatchMode::PersistentRecursive).await;
    watcher.inspect_err(|error| tracing::debug!(error = %explain(error), "the ledger is not watched")).ok()
}

/// Rings for every event until the session is over; the error says that the ledger is closed.
async fn ring(
    mut watcher: PersistentWatcher,
    bell: &watch::Sender<()>,
    wanted: &mut watch::Receiver<bool>,
) -> Result<(), ()> {
    loop {
        let closed = std::pin::pin!(wanted.wait_for(|wanted| !*wanted));
        let event = match select(std::pin::pin!(watcher.changed()), closed).await {
            Either::Left((event, _)) => event,
            Either::Right(_) => return Err(()),
        };
        // While there was no connection, events were lost: so that is one, too.
        bell.send_replace(());
        if event.session_state.is_terminated() {
            return Ok(());
        }
    }
}
