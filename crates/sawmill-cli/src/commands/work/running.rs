//! The current runs, for the state dump and for ending them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::process::Pid;
use sawmill::engine::runtime::{Env, Moment};
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
    times: RunTimes,
}

/// A message that runs.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: MessageId,
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) attempt: u32,
    pub(crate) since: Moment,
    /// None if the run has no process.
    pub(crate) pid: Option<Pid>,
    /// The code that runs the message owns the group and ends it.
    group: Weak<ProcessGroup>,
}

/// The durations of finished runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunTimes {
    pub(crate) runs: u64,
    pub(crate) sum: Duration,
    pub(crate) longest: Duration,
}

impl RunTimes {
    pub(crate) fn mean(&self) -> Duration {
        self.sum.checked_div(u32::try_from(self.runs).unwrap_or(u32::MAX)).unwrap_or_default()
    }
}

impl Runs {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, table: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// Registers a run, until the returned entry is dropped.
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

    /// Returns the current runs, the oldest first.
    pub(crate) fn now(&self) -> Vec<Run> {
        self.table().now.values().cloned().collect()
    }

    pub(crate) fn times(&self) -> RunTimes {
        self.table().times
    }

    /// Sends SIGTERM to all runs.
    pub(crate) fn terminate(&self) {
        self.now().iter().filter_map(|run| run.group.upgrade()).for_each(|group| group.terminate());
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        // The sender is ours, so waiting cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A registered run, removed on drop.
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
            table.times.runs += 1;
            table.times.sum += took;
            table.times.longest = table.times.longest.max(took);
        }
        self.runs.count.send_replace(table.now.len());
    }
}
