//! Tracks the tasks of a test. The test clock may move only when all of them wait.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use sawmill_engine::runtime::{Env, Spawn};

/// Runs tasks on tokio, and counts the awake ones: running, or woken and about to run.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    awake: Arc<AtomicUsize>,
}

impl Tasks {
    /// Returns true if every task waits for something outside.
    pub(super) fn all_wait(&self) -> bool {
        self.awake.load(Ordering::SeqCst) == 0
    }
}

impl Spawn for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.awake.fetch_add(1, Ordering::SeqCst);
        let waker = TaskWaker {
            awake: self.awake.clone(),
            state: Mutex::new(State { awake: true, woken: false, runtime_waker: None }),
        };
        Env::system().spawn(Task { task: Some(task), waker: Arc::new(waker) });
    }
}

struct Task {
    task: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
}

/// Wakes a task, and keeps whether it is awake.
struct TaskWaker {
    awake: Arc<AtomicUsize>,
    state: Mutex<State>,
}

struct State {
    awake: bool,
    /// Woken since the last poll.
    woken: bool,
    /// Wakes the task on the runtime.
    runtime_waker: Option<Waker>,
}

impl TaskWaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn mark_awake(&self, state: &mut State) {
        if !std::mem::replace(&mut state.awake, true) {
            self.awake.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn mark_waiting(&self, state: &mut State) {
        if std::mem::replace(&mut state.awake, false) {
            self.awake.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let waker = {
            let mut state = self.state();
            let Some(waker) = state.runtime_waker.clone() else { return };
            state.woken = true;
            self.mark_awake(&mut state);
            waker
        };
        waker.wake();
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task_waker = self.waker.clone();
        {
            let mut state = task_waker.state();
            (state.woken, state.runtime_waker) = (false, Some(context.waker().clone()));
            task_waker.mark_awake(&mut state);
        }
        let waker = Waker::from(task_waker.clone());
        let task = self.task.as_mut();
        let polled =
            task.map_or(Poll::Ready(()), |task| task.as_mut().poll(&mut Context::from_waker(&waker)));
        let mut state = task_waker.state();
        if polled.is_pending() && !state.woken {
            task_waker.mark_waiting(&mut state);
        }
        polled
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Dropping the task may wake others, so drop it while it still counts as awake.
        self.task = None;
        let mut state = self.waker.state();
        state.runtime_waker = None;
        self.waker.mark_waiting(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sawmill_engine::runtime::{Clock, SystemClock};

    use super::*;

    async fn eventually_wait(tasks: &Tasks) {
        while !tasks.all_wait() {
            SystemClock.sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn tasks_are_awake_until_they_wait_or_end() {
        let tasks = Tasks::default();
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(Box::pin(async {
            let _ = receive.await;
        }));
        assert!(!tasks.all_wait(), "it has not run yet");
        eventually_wait(&tasks).await;
        send.send(()).unwrap();
        assert!(!tasks.all_wait(), "woken, and about to run");
        eventually_wait(&tasks).await;
        tasks.spawn(Box::pin(async {
            for _ in 0..100 {
                sawmill_engine::runtime::yield_now().await;
            }
        }));
        sawmill_engine::runtime::yield_now().await;
        assert!(!tasks.all_wait(), "it has woken itself");
        eventually_wait(&tasks).await;
    }
}
