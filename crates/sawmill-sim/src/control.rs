//! Nodes, and the levers of a run: what a scenario can do to them, and the environment that each of them lives in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sawmill::env::Env;

use crate::dice::Seeded;
use crate::faults::{FaultKind, Tally};
use crate::features::{Feature, Features};
use crate::here::Here;
use crate::tasks::{TaskId, Tasks, lock};
use crate::trace::{Line, Trace};

/// One process of the simulated world. A process that starts again after a crash is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The world itself: the store, the network, and whoever runs the scenario. It never crashes.
    pub const WORLD: NodeId = NodeId(0);

    /// Nodes are numbered as they are added; the world is 0.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Running,
    Frozen,
    Crashed,
}

pub(crate) struct Node {
    name: String,
    pub(crate) status: Status,
    /// Tasks that were woken while the node was frozen.
    pub(crate) kept: Vec<TaskId>,
    pub(crate) dice: Seeded,
    /// Where its steady clock began: another place on every node, so that comparing two of them cannot go unnoticed.
    pub(crate) beginning: Duration,
    pub(crate) skew_millis: i64,
    /// How fast its steady clock runs, in thousandths.
    pub(crate) pace: u32,
}

/// Everything that a run consists of.
pub(crate) struct State {
    seed: u64,
    pub(crate) now: Duration,
    pub(crate) tasks: Tasks,
    pub(crate) ready: Vec<TaskId>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) timers: BTreeMap<(Duration, u64), Waker>,
    pub(crate) timers_made: u64,
    pub(crate) dice: Seeded,
    pub(crate) trace: Trace,
    tally: Tally,
    features: Features,
}

/// The streams of a seed: the scheduler's, then those that are asked for by number, then the nodes'.
const SCHEDULER_STREAM: u64 = 0;
const NODE_STREAMS: u64 = 1 << 33;
/// The pace of a clock that runs as the world's does.
pub(crate) const EVEN_PACE: u32 = 1000;

/// The levers of a run. Clones move the same ones.
#[derive(Clone)]
pub struct Control(pub(crate) Arc<Mutex<State>>);

impl Control {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let control = Self(Arc::new(Mutex::new(State {
            seed,
            now: Duration::ZERO,
            tasks: Tasks::default(),
            ready: Vec::new(),
            nodes: Vec::new(),
            timers: BTreeMap::new(),
            timers_made: 0,
            dice: Seeded::new(seed, SCHEDULER_STREAM),
            trace,
            tally: Tally::default(),
            features: Features::default(),
        })));
        control.add_node("world");
        control
    }

    /// Starts a process.
    pub fn add_node(&self, name: impl Into<String>) -> NodeId {
        let mut state = lock(&self.0);
        let number = state.nodes.len() as u32;
        let mut dice = Seeded::new(state.seed, NODE_STREAMS + u64::from(number));
        let beginning = Duration::from_secs(dice.below(10_000_000));
        let status = Status::Running;
        state.nodes.push(Node {
            name: name.into(),
            status,
            kept: Vec::new(),
            dice,
            beginning,
            skew_millis: 0,
            pace: EVEN_PACE,
        });
        NodeId(number)
    }

    /// Time, randomness, and a place to run tasks, as this node has them.
    pub fn env(&self, node: NodeId) -> Env {
        let here = Here { control: self.clone(), node };
        Env::new(here.clone(), here.clone(), here)
    }

    /// Runs a task on this node. On a crashed node nothing runs any more.
    pub fn spawn(&self, node: NodeId, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(node, Box::pin(task));
    }

    pub(crate) fn spawn_boxed(&self, node: NodeId, task: BoxFuture<'static, ()>) -> Option<TaskId> {
        let mut state = lock(&self.0);
        if state.node(node).status == Status::Crashed {
            // Dropping the task may run anything, so not under the lock.
            drop(state);
            drop(task);
            return None;
        }
        Some(state.tasks.add(node, task))
    }

    /// How much simulated time has passed since the run began.
    pub fn now(&self) -> Duration {
        lock(&self.0).now
    }

    /// One of the streams of random numbers of this run's seed, for a scenario or an engine.
    pub fn dice(&self, stream: u32) -> Seeded {
        Seeded::new(lock(&self.0).seed, 1 + u64::from(stream))
    }

    /// Ends a process at once: its tasks are dropped and never run again. What it has sent is on its way.
    pub fn crash(&self, node: NodeId) {
        assert_ne!(node, NodeId::WORLD, "the world does not crash");
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.node(node).status, Status::Crashed) == Status::Crashed {
            return;
        }
        state.node(node).kept.clear();
        let tasks = state.tasks.of(Some(node));
        // A task that crashes its own node is being polled: its future is dropped when that ends.
        let removed: Vec<_> = tasks.into_iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        drop(removed);
        self.strike(node, FaultKind::Crash, String::new);
    }

    /// Stops a process like SIGSTOP: none of its tasks runs until [`thaw`](Control::thaw), while its clock goes on and
    /// what it has sent takes effect.
    pub fn freeze(&self, node: NodeId) {
        assert_ne!(node, NodeId::WORLD, "the world does not freeze");
        let mut state = lock(&self.0);
        if state.node(node).status != Status::Running {
            return;
        }
        state.node(node).status = Status::Frozen;
        drop(state);
        self.strike(node, FaultKind::Freeze, String::new);
    }

    /// Lets a frozen process go on: everything that happened meanwhile reaches it now.
    pub fn thaw(&self, node: NodeId) {
        let mut state = lock(&self.0);
        if state.node(node).status != Status::Frozen {
            return;
        }
        state.node(node).status = Status::Running;
        let kept = std::mem::take(&mut state.node(node).kept);
        state.ready.extend(kept);
        drop(state);
        self.note(node, "thaw", &[], || "thawed".to_owned());
    }

    /// True until the node crashes.
    pub fn is_alive(&self, node: NodeId) -> bool {
        lock(&self.0).node(node).status != Status::Crashed
    }

    /// Sets a node's wall clock before or behind by this much.
    pub fn skew(&self, node: NodeId, millis: i64) {
        lock(&self.0).node(node).skew_millis = millis;
        self.strike(node, FaultKind::Skew, || format!("{millis} ms"));
    }

    /// Lets a node's steady clock run faster or slower, in thousandths of the world's. Only before anything runs there.
    pub fn set_pace(&self, node: NodeId, pace: u32) {
        lock(&self.0).node(node).pace = pace;
        self.note(node, "pace", &[pace.into()], || format!("the clock runs at {pace} thousandths"));
    }

    /// How long the world takes while this much time passes on the clock of a node.
    pub fn as_long(&self, node: NodeId, time: Duration) -> Duration {
        let pace = lock(&self.0).node(node).pace;
        if pace == EVEN_PACE { time } else { time.saturating_mul(EVEN_PACE) / pace + Duration::from_nanos(1) }
    }

    /// Counts a fault that struck, and records it.
    pub fn strike(&self, node: NodeId, kind: FaultKind, more: impl FnOnce() -> String) {
        lock(&self.0).tally.strike(kind);
        self.note(node, "fault", &[kind as u64], || format!("! {} {}", kind.name(), more()));
    }

    /// Records an event: what it was and its numbers always, its text only if lines are kept.
    pub fn note(&self, node: NodeId, what: &'static str, numbers: &[u64], text: impl FnOnce() -> String) {
        let mut state = lock(&self.0);
        let at = state.now;
        state.trace.record(at, node, what, numbers);
        if state.trace.keeps_lines() {
            let name = state.node(node).name.clone();
            drop(state);
            // The text may ask for anything, the time included.
            let line = Line { at, node: name, text: text() };
            lock(&self.0).trace.keep(line);
        }
    }

    /// How often each kind of fault has struck.
    pub fn tally(&self) -> Tally {
        lock(&self.0).tally.clone()
    }

    /// Counts a feature that was used.
    pub fn used(&self, feature: Feature) {
        lock(&self.0).features.count(feature);
    }

    /// How often each feature was used.
    pub fn features(&self) -> Features {
        lock(&self.0).features.clone()
    }

    /// What has happened until now.
    pub fn trace(&self) -> Trace {
        lock(&self.0).trace.clone()
    }
}

impl State {
    pub(crate) fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }
}
