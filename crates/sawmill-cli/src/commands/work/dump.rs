//! The state dump of a worker (SIGUSR2): what it runs, its counters, and the backlog of its topics.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use sawmill::admin::GroupStatus;
use sawmill::engine::runtime::Moment;
use sawmill::{Sawmill, Worker};

use super::runner::Runner;
use super::running::Run;
use crate::terminal::text;

/// The time limit for the status of a topic.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The worker to dump, and what a dump needs besides.
pub(crate) struct StateDump {
    pub(crate) mill: Sawmill,
    pub(crate) worker: Arc<Worker>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) topics: Vec<String>,
    pub(crate) group: String,
    /// How long opening the store took.
    pub(crate) connect: Duration,
    pub(crate) since: Moment,
}

impl StateDump {
    /// Returns the state as lines of text.
    pub(crate) async fn text(&self) -> String {
        let mut text = self.of_worker();
        for topic in &self.topics {
            let status =
                self.runner.env.within(STATUS_TIMEOUT, self.mill.admin().status(topic, &self.group)).await;
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
        let times = self.runner.runs.times();
        let rate = times.runs as f64 / up.as_secs_f64().max(0.001);
        let mut text = String::new();
        let mut line = |line: String| text.push_str(&(line + "\n"));
        line(format!("state of worker {id} of group {} at {}", self.group, text::rfc3339(env.wall())));
        line(format!(
            "  concurrency {}, busy {}, claimed {}, {}",
            state.concurrency, state.busy, state.claimed, state.waiting_on
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
            text::span(times.mean()),
            text::span(times.longest),
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
