//! What runs now, for those who ask: the state dump, and whoever has to end it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::process::Pid;
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Context, MessageId};
use tokio::sync::watch;

use super::process_group::ProcessGroup;

/// All runs of a worker.
pub(crate) struct Runs {
    env: Env,
    table: Mutex<Table>,
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Table {
    last: u64,
    now: BTreeMap<u64, Run>,
    took: Took,
}

/// A message that runs.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: MessageId,
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) attempt: u32,
    pub(crate) since: Moment,
    /// None if no process runs for it.
    pub(crate) pid: Option<Pid>,
    /// Whoever runs it owns it, and ends it.
    group: Weak<ProcessGroup>,
}

/// How long runs took that have ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) runs: u64,
    pub(crate) sum: Duration,
    pub(crate) longest: Duration,
}

impl Took {
    pub(crate) fn mean(&self) -> Duration {
        self.sum.checked_div(u32::try_from(self.runs).unwrap_or(u32::MAX)).unwrap_or_default()
    }
}

impl Runs {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, table: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// This message runs, until what this returns is dropped.
    pub(crate) fn begin(self: &Arc<Self>, context: &Context, group: Option<&Arc<ProcessGroup>>) -> Entry {
        let mut table = self.table();
        table.last += 1;
        let number = table.last;
        let run = Run {
            id: context.id(),
            topic: context.topic().to_owned(),
            key: context.key().map(|key| key.to_vec()),
            attempt: context.attempt(),
            since: self.env.now(),
            pid: group.map(|group| group.leader()),
            group: group.map(Arc::downgrade).unwrap_or_default(),
        };
        table.now.insert(number, run);
        self.count.send_replace(table.now.len());
        Entry { runs: self.clone(), number }
    }

    /// What runs now, the oldest first.
    pub(crate) fn now(&self) -> Vec<Run> {
        self.table().now.values().cloned().collect()
    }

    pub(crate) fn took(&self) -> Took {
        self.table().took
    }

    /// Asks all that runs to end.
    pub(crate) fn terminate(&self) {
        self.now().iter().filter_map(|run| run.group.upgrade()).for_each(|group| group.terminate());
    }

    /// Completes when nothing runs.
    pub(crate) async fn idle(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A message that runs, as long as this is there.
pub(crate) struct Entry {
    runs: Arc<Runs>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let now = self.runs.env.now();
        let mut table = self.runs.table();
        if let Some(run) = table.now.remove(&self.number) {
            let took = now.since(run.since);
            table.took.runs += 1;
            table.took.sum += took;
            table.took.longest = table.took.longest.max(took);
        }
        self.runs.count.send_replace(table.now.len());
    }
}
