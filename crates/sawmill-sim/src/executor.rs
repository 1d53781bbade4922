//! The executor: one thread, simulated time, and a scheduler that is driven by the seed.
//!
//! The scheduler picks the next task at random among all tasks that can run, so that over many seeds every
//! interleaving of real threads and machines can occur. Time stands still while anything can run, and then
//! jumps to the next timer.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::control::{Control, NodeId, State, Status};
use crate::tasks::{TaskId, Work, lock};
use crate::trace::Trace;

/// A simulated world, made from a seed. Dereferences to its [`Control`].
///
/// ```
/// use std::time::Duration;
/// use sawmill_sim::{Ended, Limits, NodeId, Sim};
///
/// let sim = Sim::new(42);
/// let env = sim.env(NodeId::WORLD);
/// let ended = sim.run(Limits::default(), async move {
///     env.sleep(Duration::from_secs(60)).await;
///     "a minute later"
/// });
/// assert_eq!(ended, Ended::Finished("a minute later"));
/// assert_eq!(sim.now(), Duration::from_secs(60));
/// ```
pub struct Sim {
    control: Control,
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum simulated time.
    pub time: Duration,
    /// The maximum number of polls.
    pub steps: u64,
    /// The maximum number of polls without time passing. More polls mean an endless loop, which panics.
    pub steps_at_once: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(3600), steps: 100_000_000, steps_at_once: 1_000_000 }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<T> {
    /// The controlling future finished.
    Finished(T),
    /// The simulated time was used up.
    OutOfTime,
    /// The polls were used up.
    OutOfSteps,
    /// Nothing can run and no timer is set: all tasks wait for each other.
    Stuck,
}

enum Next {
    Poll(TaskId, Work),
    Ended(Stop),
}

enum Stop {
    Finished,
    OutOfTime,
    OutOfSteps,
    Stuck,
}

impl Sim {
    /// Creates the world of this seed, without trace lines.
    pub fn new(seed: u64) -> Self {
        Self::with_history(seed, 0)
    }

    /// Creates the world of this seed, keeping the latest trace lines.
    pub fn with_history(seed: u64, lines: usize) -> Self {
        Self { control: Control::new(seed, Trace::keeping(lines)) }
    }

    /// Returns a handle that tasks can keep.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Runs everything until this future, a task of the world, is finished, or until a limit is reached.
    /// Other tasks stay as they are, and go on at the next call.
    ///
    /// # Panics
    ///
    /// If a task panics, or if tasks run endlessly without time passing.
    pub fn run<T: Send + 'static>(
        &self,
        limits: Limits,
        controller: impl Future<Output = T> + Send + 'static,
    ) -> Ended<T> {
        let result = Arc::new(Mutex::new(None));
        let given = result.clone();
        let task = Box::pin(async move {
            let value = controller.await;
            *lock(&given) = Some(value);
        });
        let Some(controller) = self.control.spawn_boxed(NodeId::WORLD, task) else { return Ended::Stuck };
        match self.run_until(limits, controller) {
            Stop::Finished => lock(&result).take().map_or(Ended::Stuck, Ended::Finished),
            Stop::OutOfTime => Ended::OutOfTime,
            Stop::OutOfSteps => Ended::OutOfSteps,
            Stop::Stuck => Ended::Stuck,
        }
    }

    fn run_until(&self, limits: Limits, controller: TaskId) -> Stop {
        let mut steps = Steps { total: 0, at_once: 0, woken: Vec::new() };
        loop {
            let (id, mut work) = match lock(&self.control.0).next(limits, &mut steps) {
                Next::Poll(id, work) => (id, work),
                Next::Ended(stop) => return stop,
            };
            // Polled without the lock, because the task uses the control.
            work.task_waker.reset();
            let poll = work.future.as_mut().poll(&mut Context::from_waker(&work.waker));
            match poll {
                Poll::Pending => self.put_back(id, work),
                Poll::Ready(()) => {
                    let finished = lock(&self.control.0).tasks.remove(id);
                    drop((finished, work));
                    if id == controller {
                        return Stop::Finished;
                    }
                }
            }
        }
    }

    /// Puts a pending task back, unless its node crashed during the poll.
    fn put_back(&self, id: TaskId, work: Work) {
        let mut state = lock(&self.control.0);
        if let Some(task) = state.tasks.get(id) {
            task.work = Some(work);
        } else {
            drop(state);
            drop(work);
        }
    }
}

impl Deref for Sim {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

/// Breaks the cycle between control and tasks, so that both are freed.
impl Drop for Sim {
    fn drop(&mut self) {
        let mut state = lock(&self.control.0);
        state.nodes.iter_mut().for_each(|node| node.status = Status::Crashed);
        let tasks = state.tasks.of(None);
        let removed: Vec<_> = tasks.into_iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        drop(removed);
    }
}

struct Steps {
    total: u64,
    at_once: u64,
    woken: Vec<TaskId>,
}

impl State {
    /// Picks the next task, advancing time if needed.
    fn next(&mut self, limits: Limits, steps: &mut Steps) -> Next {
        if steps.total >= limits.steps {
            return Next::Ended(Stop::OutOfSteps);
        }
        loop {
            self.sort_out_woken(&mut steps.woken);
            while !self.ready.is_empty() {
                let picked = self.rng.below(self.ready.len() as u64) as usize;
                let id = self.ready.swap_remove(picked);
                if let Some(work) = self.take_work(id) {
                    steps.total += 1;
                    steps.at_once += 1;
                    let at = self.now;
                    assert!(
                        steps.at_once <= limits.steps_at_once,
                        "{} polls at {at:?} without time passing: some task loops without waiting",
                        steps.at_once
                    );
                    return Next::Poll(id, work);
                }
            }
            if let Some(stop) = self.pass_time(limits.time) {
                return Next::Ended(stop);
            }
            steps.at_once = 0;
        }
    }

    /// Makes woken tasks ready, unless they were removed.
    fn sort_out_woken(&mut self, woken: &mut Vec<TaskId>) {
        self.tasks.take_woken(woken);
        for id in woken.drain(..) {
            if self.tasks.get(id).is_some() {
                self.ready.push(id);
            }
        }
    }

    /// Takes the work of a ready task, if its node runs. A frozen node keeps the task until it thaws.
    fn take_work(&mut self, id: TaskId) -> Option<Work> {
        let task = self.tasks.get(id)?;
        let node = task.node;
        if self.nodes[node.number() as usize].status == Status::Frozen {
            self.node(node).kept.push(id);
            return None;
        }
        let at = self.now;
        self.trace.record(at, node, "poll", &[id.serial]);
        self.tasks.get(id)?.work.take()
    }

    /// Jumps to the next timer and fires all timers of that moment. Returns the reason to stop if there is
    /// nothing to wait for.
    fn pass_time(&mut self, limit: Duration) -> Option<Stop> {
        let Some((&(deadline, _), _)) = self.timers.first_key_value() else { return Some(Stop::Stuck) };
        if deadline > limit {
            self.now = self.now.max(limit);
            return Some(Stop::OutOfTime);
        }
        self.now = deadline;
        while let Some(first) = self.timers.first_entry()
            && first.key().0 == deadline
        {
            first.remove().wake();
        }
        None
    }
}
