//! Hints for other processes. Cassandra calls nobody, so who pushes leaves a number beside the topic's name, once for all that was pushed
//! meanwhile; and who waits for messages looks at these numbers, of all topics in one small query, instead of at every shard.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::link::Answer;
use crate::store::Open;

/// After telling others, so long is waited for more to tell.
const PAUSE: Duration = Duration::from_millis(20);
/// How often is looked while there are news, and when there were none for a while.
const LIVELY: Duration = Duration::from_millis(25);
const QUIET: Duration = Duration::from_millis(100);
const A_WHILE: Duration = Duration::from_secs(10);

/// What this process has to tell.
#[derive(Default)]
pub(crate) struct Pulse {
    /// Topics of which there is news, by uid.
    untold: Mutex<BTreeSet<String>>,
    changed: Notify,
    /// The numbers that were left last: who left them need not be told.
    left: Mutex<HashMap<String, i64>>,
}

impl Pulse {
    fn left(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is closed.
    pub(crate) fn end(&self) {
        self.changed.notify_one();
    }

    /// There are messages of this topic.
    pub(crate) fn tell(&self, uid: &str) {
        if self.untold().insert(uid.to_owned()) {
            self.changed.notify_one();
        }
    }
}

/// Tells others, and looks for what they tell, until the store is closed.
pub(crate) fn start(open: &Arc<Open>) {
    open.env.spawn(Box::pin(tell(Arc::downgrade(open), open.pulse.clone())));
    open.env.spawn(Box::pin(listen(Arc::downgrade(open))));
}

async fn tell(open: Weak<Open>, pulse: Arc<Pulse>) {
    loop {
        pulse.changed.notified().await;
        let Some(open) = open.upgrade() else { return };
        let uids = std::mem::take(&mut *pulse.untold());
        for uid in uids {
            let number = open.env.dice().roll().cast_signed();
            pulse.left().insert(uid.clone(), number);
            // A hint may be lost: who waits looks for itself now and then.
            let _ = open.link.ask(&open.link.say.pulse_set, (open.namespace.as_str(), &uid, number)).await;
        }
        open.env.sleep(PAUSE).await;
    }
}

async fn listen(open: Weak<Open>) {
    let (mut known, mut quiet_from) = (HashMap::new(), None);
    loop {
        let Some(open) = open.upgrade() else { return };
        let env = open.env.clone();
        if open.bells.has_readers() {
            let answer = open.link.ask(&open.link.say.pulse_list, (open.namespace.as_str(),)).await;
            for (uid, number) in answer.and_then(Answer::rows::<(String, i64)>).unwrap_or_default() {
                if known.insert(uid.clone(), number) != Some(number)
                    && open.pulse.left().get(&uid) != Some(&number)
                {
                    open.bells.ring_messages();
                    quiet_from = Some(env.now() + A_WHILE);
                }
            }
        }
        drop(open);
        let is_lively = quiet_from.is_some_and(|from| env.now() < from);
        env.sleep(if is_lively { LIVELY } else { QUIET }).await;
    }
}
