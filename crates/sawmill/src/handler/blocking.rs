//! Handlers that block their thread: each call runs on a thread of its own.

use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sawmill_engine::Result;
use sawmill_engine::runtime::Env;

use super::{Context, FromContext, Function, Handler, States};
use crate::handler::{IntoOutcome, Outcome};

/// Makes a blocking function a handler.
pub(crate) fn blocking<F, Args>(function: F, env: Env) -> Box<dyn Handler>
where
    F: Function<Args, Output: IntoOutcome>,
    Args: FromContext + 'static,
{
    Box::new(Blocking { function: Arc::new(function), env, arguments: PhantomData })
}

struct Blocking<F, Args> {
    function: Arc<F>,
    env: Env,
    arguments: PhantomData<fn(Args)>,
}

impl<F, Args> Handler for Blocking<F, Args>
where
    F: Function<Args, Output: IntoOutcome>,
    Args: FromContext + 'static,
{
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome> {
        let function = self.function.clone();
        let work = move || match Args::from_context(&context) {
            Ok(arguments) => function.call(arguments).into_outcome(),
            Err(outcome) => outcome,
        };
        let ended = self.env.blocking(work);
        async move {
            match ended.await {
                Some(Ok(outcome)) => outcome,
                // The panic continues here, and is treated like that of an async handler.
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Outcome::retry("the runtime ended before there was a thread for this message"),
            }
        }
        .boxed()
    }

    fn check(&self, states: &States) -> Result<()> {
        Args::check(states)
    }
}
