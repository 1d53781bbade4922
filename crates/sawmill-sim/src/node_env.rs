//! The environment of one node: its clocks, timers and random numbers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sawmill::Timestamp;
use sawmill::engine::runtime::{Clock, Moment, Rng, Spawn};

use crate::control::{Control, EVEN_PACE, NodeId};
use crate::tasks::lock;

/// The wall clock of an unskewed node at the beginning of a run: 2026-01-01 UTC.
const WALL_MILLIS: u64 = 1_767_225_600_000;
/// The shortest sleep. Even a loop of empty sleeps lets time pass.
const SHORTEST_SLEEP: Duration = Duration::from_micros(1);

/// The clock, random numbers and spawner of a node.
#[derive(Clone)]
pub(crate) struct NodeEnv {
    pub(crate) control: Control,
    pub(crate) node: NodeId,
}

impl Clock for NodeEnv {
    fn now(&self) -> Moment {
        let mut state = lock(&self.control.0);
        let now = state.now;
        let node = state.node(self.node);
        let passed = if node.pace == EVEN_PACE { now } else { now.saturating_mul(node.pace) / EVEN_PACE };
        Moment::at(passed + node.beginning)
    }

    fn wall(&self) -> Timestamp {
        let mut state = lock(&self.control.0);
        let millis = WALL_MILLIS + state.now.as_millis() as u64;
        Timestamp::from_millis(millis.saturating_add_signed(state.node(self.node).skew_millis))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let duration = self.control.as_long(self.node, duration);
        let deadline = self.control.now().saturating_add(duration.max(SHORTEST_SLEEP));
        Box::pin(Sleep { control: self.control.clone(), deadline, timer: None })
    }
}

impl Rng for NodeEnv {
    fn next_u64(&self) -> u64 {
        lock(&self.control.0).node(self.node).rng.next_u64()
    }
}

impl Spawn for NodeEnv {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.control.spawn_boxed(self.node, task);
    }
}

/// Completes at its deadline in simulated time.
struct Sleep {
    control: Control,
    deadline: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let control = self.control.clone();
        let mut state = lock(&control.0);
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let number = *self.timer.get_or_insert_with(|| {
            state.timers_made += 1;
            state.timers_made
        });
        state.timers.insert((self.deadline, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            lock(&self.control.0).timers.remove(&(self.deadline, number));
        }
    }
}
