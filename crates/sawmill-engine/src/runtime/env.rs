//! The environment: time, randomness and a place to run tasks, in one value that is passed through the
//! library.
//!
//! A program uses [`Env::system`]. The simulation provides its own clock, random numbers and scheduler. It
//! thereby controls everything that could make two runs differ.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;

use crate::runtime::{Clock, Moment, Rng, SystemClock, SystemRng, Timestamp};

/// A place where the library runs its tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Runs this future to completion, concurrently with everything else.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs this work to completion where it may block its thread. A place without threads of its own runs it
    /// as a task.
    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.spawn(Box::pin(async move { work() }));
    }
}

/// The environment of the library: time, randomness, and a place to run tasks.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    spawner: Arc<dyn Spawn>,
}

impl Env {
    /// Returns an environment of the machine's clock, the system's randomness, and the tokio runtime of the
    /// caller.
    pub fn system() -> Self {
        Self::new(SystemClock, SystemRng, TokioSpawn)
    }

    /// Creates an environment of these parts.
    pub fn new(clock: impl Clock, rng: impl Rng, spawner: impl Spawn) -> Self {
        Self { clock: Arc::new(clock), rng: Arc::new(rng), spawner: Arc::new(spawner) }
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the current moment of the steady clock.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns the current wall-clock time.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Completes after this much time has passed.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    /// Waits for `future`, but no longer than `limit`. Returns `None` if the time ran out.
    pub async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(std::pin::pin!(future), self.sleep(limit)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// Returns the source of randomness.
    pub fn rng(&self) -> &dyn Rng {
        &*self.rng
    }

    /// Runs this future to completion, concurrently with everything else.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(Box::pin(task));
    }

    /// Runs this work where it may block its thread, even if nobody waits for its result. The result is
    /// `None` if the work never ran; the error is its panic.
    pub fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<std::thread::Result<T>>> + Send + 'static {
        let (say, said) = oneshot::channel();
        self.spawner.spawn_blocking(Box::new(move || {
            // The receiver may be gone. Nobody needs the result then.
            let _ = say.send(std::panic::catch_unwind(AssertUnwindSafe(work)));
        }));
        async move { said.await.ok() }
    }
}

/// Lets other tasks run.
pub async fn yield_now() {
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

// This is the only place where tasks are handed to tokio.
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
