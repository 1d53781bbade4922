//! The tasks of a test, and whether all of them wait: only then may a test's clock move on.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;

use crate::env::{Env, Spawn};

/// Runs tasks on tokio, and knows how many of them are awake: running, or woken and about to run.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    awake: Arc<AtomicUsize>,
}

impl Tasks {
    /// True if every task waits for something outside.
    pub(super) fn all_wait(&self) -> bool {
        self.awake.load(Ordering::SeqCst) == 0
    }
}

impl Spawn for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.awake.fetch_add(1, Ordering::SeqCst);
        let alarm = Alarm {
            awake: self.awake.clone(),
            state: Mutex::new(State { awake: true, again: false, waker: None }),
        };
        Env::system().spawn(Task { task: Some(task), alarm: Arc::new(alarm) });
    }
}

struct Task {
    task: Option<BoxFuture<'static, ()>>,
    alarm: Arc<Alarm>,
}

/// What wakes a task, and knows whether it is awake.
struct Alarm {
    awake: Arc<AtomicUsize>,
    state: Mutex<State>,
}

struct State {
    awake: bool,
    /// Woken since it was last polled.
    again: bool,
    /// What wakes it on the runtime.
    waker: Option<Waker>,
}

impl Alarm {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn rouse(&self, state: &mut State) {
        if !std::mem::replace(&mut state.awake, true) {
            self.awake.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn lull(&self, state: &mut State) {
        if std::mem::replace(&mut state.awake, false) {
            self.awake.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        let waker = {
            let mut state = self.state();
            let Some(waker) = state.waker.clone() else { return };
            state.again = true;
            self.rouse(&mut state);
            waker
        };
        waker.wake();
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let alarm = self.alarm.clone();
        {
            let mut state = alarm.state();
            (state.again, state.waker) = (false, Some(context.waker().clone()));
            alarm.rouse(&mut state);
        }
        let waker = Waker::from(alarm.clone());
        let task = self.task.as_mut();
        let polled =
            task.map_or(Poll::Ready(()), |task| task.as_mut().poll(&mut Context::from_waker(&waker)));
        let mut state = alarm.state();
        if polled.is_pending() && !state.again {
            alarm.lull(&mut state);
        }
        polled
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // What it held may wake others: it is dropped while this one still counts as awake.
        self.task = None;
        let mut state = self.alarm.state();
        state.waker = None;
        self.alarm.lull(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use std::time::Duration;

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
                crate::env::breathe().await;
            }
        }));
        crate::env::breathe().await;
        assert!(!tasks.all_wait(), "it has woken itself");
        eventually_wait(&tasks).await;
    }
}
