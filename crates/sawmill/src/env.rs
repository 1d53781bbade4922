//! What the library takes from the world around it: time, randomness, and a place to run its tasks.
//!
//! A program uses [`Env::system`]. The simulation brings its own clock, dice and scheduler, and so owns everything that
//! could make two runs differ.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;

use crate::clock::{Clock, Moment, SystemClock, Timestamp};
use crate::dice::{Dice, SystemDice};

/// Where the library runs its tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Runs this future to its end, beside everything else.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs this to its end where it may block its thread. A place without threads of its own runs it as a task.
    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.spawn(Box::pin(async move { work() }));
    }
}

/// Time, randomness, and a place to run tasks.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    dice: Arc<dyn Dice>,
    spawner: Arc<dyn Spawn>,
}

impl Env {
    /// The machine's clock, the system's randomness, and the tokio runtime that the caller runs on.
    pub fn system() -> Self {
        Self::new(SystemClock, SystemDice, TokioSpawn)
    }

    /// An environment of one's own.
    pub fn new(clock: impl Clock, dice: impl Dice, spawner: impl Spawn) -> Self {
        Self { clock: Arc::new(clock), dice: Arc::new(dice), spawner: Arc::new(spawner) }
    }

    /// The same, by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Now, on the steady clock.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Now, as people write it.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Completes when this much time has passed.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    /// Waits for `future`, but no longer than `limit`; `None` if the time ran out.
    pub async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(std::pin::pin!(future), self.sleep(limit)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// The source of randomness.
    pub fn dice(&self) -> &dyn Dice {
        &*self.dice
    }

    /// Runs this future to its end, beside everything else.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(Box::pin(task));
    }

    /// Runs this where it may block its thread, whether or not anybody waits for what it returns. `None` if it never got to
    /// run; the error is its panic.
    pub fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<std::thread::Result<T>>> + Send + 'static {
        let (say, said) = oneshot::channel();
        self.spawner.spawn_blocking(Box::new(move || {
            // Nobody may be there any more to hear it.
            let _ = say.send(std::panic::catch_unwind(AssertUnwindSafe(work)));
        }));
        async move { said.await.ok() }
    }
}

/// Lets other tasks run.
pub(crate) async fn breathe() {
    let mut breathed = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut breathed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct TokioSpawn;

// The door itself: the only place where tasks are handed to tokio.
#[allow(clippy::disallowed_methods)]
impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        tokio::task::spawn_blocking(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocking_work_says_what_it_returns_or_how_it_panics() {
        let env = Env::system();
        let here = std::thread::current().id();
        let there = env.blocking(|| std::thread::current().id()).await;
        assert!(there.unwrap().unwrap() != here, "it has a thread of its own");
        let panic = env.blocking(|| std::panic::resume_unwind(Box::new("jam"))).await;
        let panic: Result<(), _> = panic.unwrap();
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"jam"));
    }
}
