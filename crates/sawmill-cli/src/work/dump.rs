//! The state of a worker, for people: what it does, what it has done, and where its topics stand.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use sawmill::clock::Moment;
use sawmill::{GroupStatus, Sawmill, Worker};

use super::runner::Runner;
use super::running::Run;
use crate::text;

/// How long the store may take to say where a topic stands.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a dump needs to know of the worker.
pub(crate) struct Subject {
    pub(crate) mill: Sawmill,
    pub(crate) worker: Arc<Worker>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) topics: Vec<String>,
    pub(crate) group: String,
    /// How long it took to open the store.
    pub(crate) connect: Duration,
    pub(crate) since: Moment,
}

impl Subject {
    /// The state, in lines.
    pub(crate) async fn dump(&self) -> String {
        let mut text = self.of_worker();
        for topic in &self.topics {
            let status = self.runner.env.within(PATIENCE, self.mill.status(topic, &self.group)).await;
            let line = match status {
                Some(Ok(status)) => of_topic(&status),
                Some(Err(error)) => format!("not known: {error}"),
                None => "not known: the store does not answer".to_owned(),
            };
            let _ = writeln!(text, "  topic {topic}: {line}");
        }
        for run in self.runner.runs.now() {
            let _ = writeln!(text, "  running {}", self.of_run(&run));
        }
        text.trim_end().to_owned()
    }

    fn of_worker(&self) -> String {
        let (env, state, counts) = (&self.runner.env, self.worker.state(), self.worker.counts());
        let id = state.id.map_or_else(|| "(not a member of its group now)".to_owned(), |id| id.to_string());
        let up = env.now().since(self.since);
        let took = self.runner.runs.took();
        let rate = took.runs as f64 / up.as_secs_f64().max(0.001);
        let mut text = String::new();
        let mut line = |line: String| text.push_str(&(line + "\n"));
        line(format!("state of worker {id} of group {} at {}", self.group, text::rfc3339(env.wall())));
        line(format!(
            "  slots {}, busy {}, claimed {}, {}",
            state.slots, state.busy, state.claimed, state.waiting_on
        ));
        line(format!(
            "  started {}, done {}, failed {}, dead {}, adopted {}, recovered {}",
            counts.started, counts.done, counts.failed, counts.dead, counts.adopted, counts.recovered
        ));
        line(format!(
            "  rebalances {}, rejoined {}, reads {}, commits {}, conflicts {}",
            counts.rebalances, counts.rejoined, counts.reads, counts.commits, counts.conflicts
        ));
        line(format!(
            "  up {}, {rate:.1} runs per second, {} per run, {} the longest, {} to open the store",
            text::span(up),
            text::span(took.mean()),
            text::span(took.longest),
            text::span(self.connect)
        ));
        text
    }

    fn of_run(&self, run: &Run) -> String {
        let key = run.key.as_ref().map(|key| format!(", key {}", text::preview(key, 40))).unwrap_or_default();
        let since = text::span(self.runner.env.now().since(run.since));
        let pid = run.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
        format!("{} of {}{key}, attempt {}{pid}, for {since}", run.id, run.topic, run.attempt)
    }
}

fn of_topic(status: &GroupStatus) -> String {
    let paused = if status.paused { ", paused" } else { "" };
    format!(
        "waiting {}, scheduled {}, claimed {}, retrying {}, done {}, dead {}, dropped {}, cancelled {}{paused}",
        status.waiting,
        status.scheduled,
        status.claimed,
        status.retrying,
        status.done,
        status.dead,
        status.dropped,
        status.cancelled
    )
}
