//! Wake-ups for other processes, as hints. Cassandra cannot notify its clients, so a process that pushes
//! writes a random number beside the topic's uid, once for all pushes since the last time. A process that
//! waits for messages polls these numbers for all topics in one small query, instead of polling every shard.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::connection::link::Answer;
use crate::store::Open;

/// The pause after a notification, which collects more of them.
const PAUSE: Duration = Duration::from_millis(20);
/// The poll interval while messages arrive, and after none have arrived for a while.
const BUSY_POLL: Duration = Duration::from_millis(25);
const IDLE_POLL: Duration = Duration::from_millis(100);
const BUSY_FOR: Duration = Duration::from_secs(10);

/// The notifications of this process for others.
#[derive(Default)]
pub(crate) struct RemoteNotifier {
    /// The uids of topics with messages that others have not been notified of.
    pending: Mutex<BTreeSet<String>>,
    changed: Notify,
    /// The number last written for each topic: this process ignores its own.
    own: Mutex<HashMap<String, i64>>,
}

impl RemoteNotifier {
    fn own(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sending task, so that it ends when the store is closed.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Notifies others of messages in this topic.
    pub(crate) fn notify(&self, uid: &str) {
        if self.pending().insert(uid.to_owned()) {
            self.changed.notify_one();
        }
    }
}

/// Starts the tasks that send and receive notifications. They end when the store is closed.
pub(crate) fn start(open: &Arc<Open>) {
    open.env.spawn(Box::pin(send(Arc::downgrade(open), open.remote_notifier.clone())));
    open.env.spawn(Box::pin(receive(Arc::downgrade(open))));
}

async fn send(open: Weak<Open>, notifier: Arc<RemoteNotifier>) {
    loop {
        notifier.changed.notified().await;
        let Some(open) = open.upgrade() else { return };
        let uids = std::mem::take(&mut *notifier.pending());
        for uid in uids {
            let number = open.env.rng().next_u64().cast_signed();
            notifier.own().insert(uid.clone(), number);
            // A hint may be lost: waiting readers also poll.
            let _ = open
                .link
                .execute(&open.link.statements.pulse_set, (open.namespace.as_str(), &uid, number))
                .await;
        }
        open.env.sleep(PAUSE).await;
    }
}

async fn receive(open: Weak<Open>) {
    let (mut known, mut idle_from) = (HashMap::new(), None);
    loop {
        let Some(open) = open.upgrade() else { return };
        let env = open.env.clone();
        if open.notifier.has_message_listeners() {
            let answer =
                open.link.execute(&open.link.statements.pulse_list, (open.namespace.as_str(),)).await;
            for (uid, number) in answer.and_then(Answer::rows::<(String, i64)>).unwrap_or_default() {
                if known.insert(uid.clone(), number) != Some(number)
                    && open.remote_notifier.own().get(&uid) != Some(&number)
                {
                    open.notifier.notify_messages();
                    idle_from = Some(env.now() + BUSY_FOR);
                }
            }
        }
        drop(open);
        let is_busy = idle_from.is_some_and(|from| env.now() < from);
        env.sleep(if is_busy { BUSY_POLL } else { IDLE_POLL }).await;
    }
}
