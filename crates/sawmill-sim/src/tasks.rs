//! The tasks of a run and how they are woken.
//!
//! Some channels wake their waiters in an order that differs from run to run. Wake-ups are therefore
//! collected while a task is polled, and sorted in the order in which the tasks were spawned. Only the seeded
//! scheduler decides which task runs first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};

use futures_util::future::BoxFuture;

use crate::control::NodeId;

/// Identifies a task for ever: slots are reused, serial numbers are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId {
    pub(crate) serial: u64,
    pub(crate) slot: usize,
}

pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) node: NodeId,
    /// `None` while the task is polled.
    pub(crate) work: Option<Work>,
}

/// A future and its waker.
pub(crate) struct Work {
    pub(crate) future: BoxFuture<'static, ()>,
    pub(crate) waker: Waker,
    pub(crate) task_waker: Arc<TaskWaker>,
}

/// The tasks that were woken since the last collection.
#[derive(Default)]
pub(crate) struct WokenTasks(Mutex<Vec<TaskId>>);

/// Wakes one task.
pub(crate) struct TaskWaker {
    task: TaskId,
    is_woken: AtomicBool,
    woken: Arc<WokenTasks>,
}

impl TaskWaker {
    /// Allows the next wake-up, because the task is about to be polled.
    pub(crate) fn reset(&self) {
        self.is_woken.store(false, Ordering::Relaxed);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            lock(&self.woken.0).push(self.task);
        }
    }
}

/// All tasks, each in its slot.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<usize>,
    spawned: u64,
    woken: Arc<WokenTasks>,
}

impl Tasks {
    /// Adds a task and wakes it.
    pub(crate) fn add(&mut self, node: NodeId, future: BoxFuture<'static, ()>) -> TaskId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.spawned += 1;
        let id = TaskId { serial: self.spawned, slot };
        let task_waker =
            Arc::new(TaskWaker { task: id, is_woken: AtomicBool::new(false), woken: self.woken.clone() });
        task_waker.wake_by_ref();
        let work = Work { future, waker: Waker::from(task_waker.clone()), task_waker };
        self.slots[slot] = Some(Task { id, node, work: Some(work) });
        id
    }

    /// Returns the task, if it still exists.
    pub(crate) fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slots[id.slot].as_mut().filter(|task| task.id == id)
    }

    /// Removes a task, if it still exists. The caller must drop it without holding a lock.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.slots[id.slot].take_if(|task| task.id == id)?;
        self.free.push(id.slot);
        Some(task)
    }

    /// Returns the tasks of a node, or of all nodes.
    pub(crate) fn of(&self, node: Option<NodeId>) -> Vec<TaskId> {
        let tasks = self.slots.iter().flatten();
        tasks.filter(|task| node.is_none_or(|node| task.node == node)).map(|task| task.id).collect()
    }

    /// Moves the woken tasks to `into`, in the order of spawning.
    pub(crate) fn take_woken(&mut self, into: &mut Vec<TaskId>) {
        into.append(&mut lock(&self.woken.0));
        into.sort_unstable();
    }
}

/// Locks a mutex, ignoring poison: a run that panicked is over, and its state is only being dropped.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
