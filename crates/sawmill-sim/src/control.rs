//! Nodes, and [`Control`]: what a scenario can do to them, and the environment of each node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sawmill::engine::runtime::Env;

use crate::faults::{FaultKind, Tally};
use crate::features::{Feature, Features};
use crate::node_env::NodeEnv;
use crate::rng::Seeded;
use crate::tasks::{TaskId, Tasks, lock};
use crate::trace::{Line, Trace};

/// A simulated process. A process that restarts after a crash is a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The world itself: the store, the network and the scenario. It never crashes.
    pub const WORLD: NodeId = NodeId(0);

    /// Returns the number of the node, in order of creation; the world is 0.
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
    pub(crate) rng: Seeded,
    /// The start of its steady clock. It differs on every node, so that comparing the clocks of two nodes
    /// shows as an error.
    pub(crate) beginning: Duration,
    pub(crate) skew_millis: i64,
    /// The rate of its steady clock, in thousandths.
    pub(crate) pace: u32,
}

/// The whole state of a run.
pub(crate) struct State {
    seed: u64,
    pub(crate) now: Duration,
    pub(crate) tasks: Tasks,
    pub(crate) ready: Vec<TaskId>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) timers: BTreeMap<(Duration, u64), Waker>,
    pub(crate) timers_made: u64,
    pub(crate) rng: Seeded,
    pub(crate) trace: Trace,
    tally: Tally,
    features: Features,
}

/// Random streams of a seed: the scheduler's, then numbered streams, then those of the nodes.
const SCHEDULER_STREAM: u64 = 0;
const NODE_STREAMS: u64 = 1 << 33;
/// The rate of a clock that runs like the world's.
pub(crate) const EVEN_PACE: u32 = 1000;

/// Controls a run. Clones control the same run.
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
            rng: Seeded::new(seed, SCHEDULER_STREAM),
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
        let mut rng = Seeded::new(state.seed, NODE_STREAMS + u64::from(number));
        let beginning = Duration::from_secs(rng.below(10_000_000));
        let status = Status::Running;
        state.nodes.push(Node {
            name: name.into(),
            status,
            kept: Vec::new(),
            rng,
            beginning,
            skew_millis: 0,
            pace: EVEN_PACE,
        });
        NodeId(number)
    }

    /// Returns the clock, the random numbers and the spawner of this node.
    pub fn env(&self, node: NodeId) -> Env {
        let env = NodeEnv { control: self.clone(), node };
        Env::new(env.clone(), env.clone(), env)
    }

    /// Runs a task on this node. Does nothing if the node has crashed.
    pub fn spawn(&self, node: NodeId, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(node, Box::pin(task));
    }

    pub(crate) fn spawn_boxed(&self, node: NodeId, task: BoxFuture<'static, ()>) -> Option<TaskId> {
        let mut state = lock(&self.0);
        if state.node(node).status == Status::Crashed {
            // Dropping the task may run any code, so it happens without the lock.
            drop(state);
            drop(task);
            return None;
        }
        Some(state.tasks.add(node, task))
    }

    /// Returns the simulated time since the run began.
    pub fn now(&self) -> Duration {
        lock(&self.0).now
    }

    /// Returns a random stream of this run's seed, for a scenario or an engine.
    pub fn rng(&self, stream: u32) -> Seeded {
        Seeded::new(lock(&self.0).seed, 1 + u64::from(stream))
    }

    /// Ends a process at once: its tasks are dropped and never run again. Calls that it has sent still
    /// arrive.
    pub fn crash(&self, node: NodeId) {
        assert_ne!(node, NodeId::WORLD, "the world does not crash");
        let mut state = lock(&self.0);
        if std::mem::replace(&mut state.node(node).status, Status::Crashed) == Status::Crashed {
            return;
        }
        state.node(node).kept.clear();
        let tasks = state.tasks.of(Some(node));
        // A task that crashes its own node is being polled; its future is dropped after that poll.
        let removed: Vec<_> = tasks.into_iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        drop(removed);
        self.strike(node, FaultKind::Crash, String::new);
    }

    /// Stops a process like SIGSTOP: none of its tasks runs until [`thaw`](Control::thaw). Its clock goes on,
    /// and calls that it has sent take effect.
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

    /// Lets a frozen process go on, and delivers everything that happened meanwhile.
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

    /// Returns true until the node crashes.
    pub fn is_alive(&self, node: NodeId) -> bool {
        lock(&self.0).node(node).status != Status::Crashed
    }

    /// Offsets a node's wall clock by this much.
    pub fn skew(&self, node: NodeId, millis: i64) {
        lock(&self.0).node(node).skew_millis = millis;
        self.strike(node, FaultKind::Skew, || format!("{millis} ms"));
    }

    /// Sets the rate of a node's steady clock, in thousandths of the world's. Must be called before anything
    /// runs there.
    pub fn set_pace(&self, node: NodeId, pace: u32) {
        lock(&self.0).node(node).pace = pace;
        self.note(node, "pace", &[pace.into()], || format!("the clock runs at {pace} thousandths"));
    }

    /// Returns how much time passes in the world while this much passes on the clock of a node.
    pub fn as_long(&self, node: NodeId, time: Duration) -> Duration {
        let pace = lock(&self.0).node(node).pace;
        if pace == EVEN_PACE { time } else { time.saturating_mul(EVEN_PACE) / pace + Duration::from_nanos(1) }
    }

    /// Counts a fault that took effect, and records it.
    pub fn strike(&self, node: NodeId, kind: FaultKind, more: impl FnOnce() -> String) {
        lock(&self.0).tally.strike(kind);
        self.note(node, "fault", &[kind as u64], || format!("! {} {}", kind.name(), more()));
    }

    /// Records an event. Its kind and numbers are always recorded, its text only if lines are kept.
    pub fn note(&self, node: NodeId, what: &'static str, numbers: &[u64], text: impl FnOnce() -> String) {
        let mut state = lock(&self.0);
        let at = state.now;
        state.trace.record(at, node, what, numbers);
        if state.trace.keeps_lines() {
            let name = state.node(node).name.clone();
            drop(state);
            // The closure may query anything, including the time, so it runs without the lock.
            let line = Line { at, node: name, text: text() };
            lock(&self.0).trace.keep(line);
        }
    }

    /// Returns how often each kind of fault took effect.
    pub fn tally(&self) -> Tally {
        lock(&self.0).tally.clone()
    }

    /// Counts a feature that was used.
    pub fn used(&self, feature: Feature) {
        lock(&self.0).features.count(feature);
    }

    /// Returns how often each feature was used.
    pub fn features(&self) -> Features {
        lock(&self.0).features.clone()
    }

    /// Returns what has happened until now.
    pub fn trace(&self) -> Trace {
        lock(&self.0).trace.clone()
    }
}

impl State {
    pub(crate) fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }
}
