//! The live line of a worker: rate, done, failed, backlog.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sawmill::engine::runtime::{Env, Moment};
use sawmill::worker::{Counts, WorkerState};
use sawmill::{Sawmill, Worker};

use super::ActiveWorker;
use crate::terminal::live::{self, LiveLine};
use crate::terminal::text;

/// The interval between two updates of the line.
const EVERY: Duration = Duration::from_millis(250);
/// The interval between two backlog queries, and the time limit of each.
const BACKLOG_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(1);
/// The period that the rate is averaged over.
const RATE_OVER: Duration = Duration::from_secs(5);

pub(super) struct Progress {
    mill: Sawmill,
    env: Env,
    topics: Vec<String>,
    group: String,
    worker: Arc<Worker>,
    quiet: Arc<AtomicBool>,
}

impl Progress {
    pub(super) fn new(active: &ActiveWorker, worker: Arc<Worker>, quiet: Arc<AtomicBool>) -> Self {
        let (topics, group) = (active.topics.clone(), active.plan.group.clone());
        Self { mill: active.mill.clone(), env: active.runner.env.clone(), topics, group, worker, quiet }
    }

    /// Awaits the work, and shows the line meanwhile if there is a terminal.
    pub(super) async fn shown_during<T>(&self, work: impl Future<Output = T>) -> T {
        if !live::is_seen() {
            return work.await;
        }
        tokio::select! {
            biased;
            done = work => done,
            never = self.show() => match never {},
        }
    }

    async fn show(&self) -> std::convert::Infallible {
        let line = LiveLine::new(&self.env);
        let name = format!("{}/{}", self.topics.join("+"), self.group);
        let mut rate = Rate::default();
        let mut backlog = None;
        let mut refreshed: Option<Moment> = None;
        loop {
            let now = self.env.now();
            if self.quiet.load(Ordering::Relaxed) {
                line.clear();
            } else {
                if refreshed.is_none_or(|refreshed| now.since(refreshed) >= BACKLOG_EVERY) {
                    refreshed = Some(now);
                    backlog = self.env.within(PATIENCE, self.backlog()).await.flatten();
                }
                let counts = self.worker.counts();
                let per_second = rate.per_second(now, counts.done);
                line.set(&described(&name, &counts, per_second, backlog, &self.worker.state()));
            }
            self.env.sleep(EVERY).await;
        }
    }

    /// Returns the number of waiting messages; `None` if the store does not answer.
    async fn backlog(&self) -> Option<u64> {
        let mut sum = 0;
        for topic in &self.topics {
            let status = self.mill.admin().status(topic, &self.group).await.ok()?;
            sum += status.waiting + status.retrying;
        }
        Some(sum)
    }
}

fn described(
    name: &str,
    counts: &Counts,
    per_second: f64,
    backlog: Option<u64>,
    state: &WorkerState,
) -> String {
    let rate = match per_second {
        few if few < 10.0 => format!("{few:.1}"),
        many => text::count(many.round() as u64),
    };
    format!(
        "{name}  {} done  {} failed  {rate}/s  backlog {}  {}/{} busy",
        text::count(counts.done),
        text::count(counts.failed),
        backlog.map_or_else(|| "?".to_owned(), text::count),
        state.busy,
        state.concurrency,
    )
}

/// The recent growth rate of a count.
#[derive(Default)]
struct Rate {
    seen: VecDeque<(Moment, u64)>,
}

impl Rate {
    fn per_second(&mut self, now: Moment, count: u64) -> f64 {
        self.seen.push_back((now, count));
        // Keep the newest sample that is old enough, and those after it.
        while self.seen.get(1).is_some_and(|(at, _)| now.since(*at) >= RATE_OVER) {
            self.seen.pop_front();
        }
        let Some((since, before)) = self.seen.front() else { return 0.0 };
        let seconds = now.since(*since).as_secs_f64();
        if seconds > 0.0 { (count - before) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(0), 0), 0.0);
        assert_eq!(rate.per_second(at(1000), 100), 100.0);
        assert_eq!(rate.per_second(at(5000), 100), 20.0);
        assert_eq!(rate.per_second(at(6000), 100), 0.0, "what was done long ago does not count");
        assert_eq!(rate.per_second(at(60_000), 154), 1.0);
    }
}
