//! Hooks: code that runs once before a worker's first message, and once after its last.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use sawmill_engine::{Error, ErrorKind, Result};

use super::{FromStates, Function, States};

type StartHook = dyn Fn(States) -> BoxFuture<'static, Result<States>> + Send + Sync;
type StopHook = dyn Fn(&States) -> BoxFuture<'static, ()> + Send + Sync;

/// The hooks of a worker, and the states that were given to its builder.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) states: States,
    start: Vec<Arc<StartHook>>,
    stop: Vec<Arc<StopHook>>,
}

impl Hooks {
    pub(crate) fn on_start<F, Args, T, E>(&mut self, hook: F)
    where
        F: Function<Args, Output: Future<Output = Result<T, E>> + Send + 'static>,
        Args: FromStates,
        T: Send + Sync + 'static,
        E: Display,
    {
        self.start.push(Arc::new(move |mut states: States| {
            let arguments = match Args::from_states(&states) {
                Ok(arguments) => arguments,
                Err(error) => return ready(Err(error)).boxed(),
            };
            let opening = hook.call(arguments);
            async move {
                let opened = opening.await.map_err(|error| {
                    let what = format!("the worker did not start, because its start hook failed: {error:#}");
                    Error::new(ErrorKind::Hook, what)
                })?;
                states.put(opened);
                Ok(states)
            }
            .boxed()
        }));
    }

    pub(crate) fn on_stop<F, Args>(&mut self, hook: F)
    where
        F: Function<Args, Output: Future<Output = ()> + Send + 'static>,
        Args: FromStates,
    {
        self.stop.push(Arc::new(move |states: &States| match Args::from_states(states) {
            Ok(arguments) => hook.call(arguments).boxed(),
            // The state that the hook would close was never opened.
            Err(_) => ready(()).boxed(),
        }));
    }

    /// Runs the start hooks in turn. If one fails, runs the stop hooks, to close what the others opened.
    pub(crate) async fn start(&self) -> Result<States> {
        let mut states = self.states.clone();
        for hook in &self.start {
            match hook(states.clone()).await {
                Ok(more) => states = more,
                Err(error) => {
                    self.stop(&states).await;
                    return Err(error);
                }
            }
        }
        Ok(states)
    }

    /// Runs the stop hooks, in reverse order. If one panics, the others still run.
    pub(crate) async fn stop(&self, states: &States) {
        for hook in self.stop.iter().rev() {
            let hook = std::panic::catch_unwind(AssertUnwindSafe(|| hook(states)));
            let ended = match hook {
                Ok(hook) => AssertUnwindSafe(hook).catch_unwind().await,
                Err(panic) => Err(panic),
            };
            if ended.is_err() {
                tracing::error!("a stop hook panicked");
            }
        }
    }
}
