//! Layers: code that a program wraps around its handler.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sawmill_engine::Result;

use super::{Context, Handler, States};
use crate::handler::{IntoOutcome, Outcome};

type Layer = dyn Fn(Context, Next) -> BoxFuture<'static, Outcome> + Send + Sync;

/// The layers of a worker, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    layers: Vec<Arc<Layer>>,
}

impl Layers {
    pub(crate) fn add<F, R>(&mut self, layer: F)
    where
        F: Fn(Context, Next) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.layers
            .push(Arc::new(move |context, next| layer(context, next).map(IntoOutcome::into_outcome).boxed()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Wraps all layers around a handler.
    pub(crate) fn around(&self, handler: Box<dyn Handler>) -> Box<dyn Handler> {
        if self.is_empty() {
            return handler;
        }
        Box::new(Layered(Arc::new(Stack { layers: self.layers.clone(), handler })))
    }
}

struct Stack {
    layers: Vec<Arc<Layer>>,
    handler: Box<dyn Handler>,
}

struct Layered(Arc<Stack>);

impl Handler for Layered {
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome> {
        Next { stack: self.0.clone(), depth: 0 }.run(context)
    }

    fn check(&self, states: &States) -> Result<()> {
        self.0.handler.check(states)
    }
}

/// The rest of the chain inside a layer: its inner layers and the handler. See
/// [`layer`](crate::WorkerBuilder::layer).
pub struct Next {
    stack: Arc<Stack>,
    depth: usize,
}

impl Next {
    /// Runs the inner layers and the handler on this message, and returns the outcome.
    pub fn run(self, context: Context) -> BoxFuture<'static, Outcome> {
        match self.stack.layers.get(self.depth).cloned() {
            Some(layer) => layer(context, Next { depth: self.depth + 1, ..self }),
            None => self.stack.handler.call(context),
        }
    }
}
