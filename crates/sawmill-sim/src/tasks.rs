//! The tasks of a run and how they are woken.
//!
//! The order in which wake-ups arrive is not trusted: some channels wake their waiters in an order that differs from
//! run to run. So wake-ups are collected while a task is polled, and then taken in the order in which the tasks were
//! spawned; which task goes first is for the seeded dice alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};

use futures_util::future::BoxFuture;

use crate::control::NodeId;

/// Which task, for ever: a place is used again, a serial number is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId {
    pub(crate) serial: u64,
    pub(crate) place: usize,
}

pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) node: NodeId,
    /// Away while the task is polled.
    pub(crate) work: Option<Work>,
}

/// A future and what wakes it.
pub(crate) struct Work {
    pub(crate) future: BoxFuture<'static, ()>,
    pub(crate) waker: Waker,
    pub(crate) bell: Arc<Bell>,
}

/// Tasks that were woken since somebody last looked.
#[derive(Default)]
pub(crate) struct Woken(Mutex<Vec<TaskId>>);

/// Wakes one task.
pub(crate) struct Bell {
    task: TaskId,
    rung: AtomicBool,
    woken: Arc<Woken>,
}

impl Bell {
    /// From now on it can be rung again: the task is about to be polled.
    pub(crate) fn reset(&self) {
        self.rung.store(false, Ordering::Relaxed);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::Relaxed) {
            lock(&self.woken.0).push(self.task);
        }
    }
}

/// All tasks, each at its place.
#[derive(Default)]
pub(crate) struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<usize>,
    spawned: u64,
    woken: Arc<Woken>,
}

impl Tasks {
    /// Adds a task, woken already.
    pub(crate) fn add(&mut self, node: NodeId, future: BoxFuture<'static, ()>) -> TaskId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.spawned += 1;
        let id = TaskId { serial: self.spawned, place };
        let bell = Arc::new(Bell { task: id, rung: AtomicBool::new(false), woken: self.woken.clone() });
        bell.wake_by_ref();
        let work = Work { future, waker: Waker::from(bell.clone()), bell };
        self.places[place] = Some(Task { id, node, work: Some(work) });
        id
    }

    /// The task, if it is still there.
    pub(crate) fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        self.places[id.place].as_mut().filter(|task| task.id == id)
    }

    /// Takes a task out, if it is still there. It is for the caller to drop it, outside of every lock.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.places[id.place].take_if(|task| task.id == id)?;
        self.free.push(id.place);
        Some(task)
    }

    /// The tasks of a node, or of all nodes.
    pub(crate) fn of(&self, node: Option<NodeId>) -> Vec<TaskId> {
        let tasks = self.places.iter().flatten();
        tasks.filter(|task| node.is_none_or(|node| task.node == node)).map(|task| task.id).collect()
    }

    /// Moves what was woken to `into`, in the order of spawning.
    pub(crate) fn take_woken(&mut self, into: &mut Vec<TaskId>) {
        into.append(&mut lock(&self.woken.0));
        into.sort_unstable();
    }
}

/// Locks, also after a panic elsewhere: the run that panicked is over, and its state is only being dropped.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
