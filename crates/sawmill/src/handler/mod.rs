//! Handlers: the functions that a program runs for each message.
//!
//! A handler's arguments select what it gets: the whole [`Context`], the payload as [`Json`], [state](State)
//! that all handlers share, or any type that can be made [from a context](FromContext). The traits here turn
//! such functions into handlers; programs seldom name them.

mod batch;
mod blocking;
mod context;
mod extract;
mod finish;
mod function;
mod hook;
mod layer;
mod note;
mod outcome;
mod payload;
mod state;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use sawmill_engine::Result;

pub use batch::{Batch, FromBatch};
pub(crate) use batch::{BatchHandler, batched, share_out};
pub(crate) use blocking::blocking;
pub use context::Context;
pub(crate) use context::{Origin, Site};
pub use extract::FromContext;
pub(crate) use finish::Finishes;
pub use function::Function;
pub(crate) use hook::Hooks;
pub(crate) use layer::Layers;
pub use layer::Next;
pub(crate) use note::Notes;
pub use outcome::{IntoOutcome, IntoOutcomes, Outcome};
pub use payload::Json;
#[cfg(feature = "prost")]
pub use payload::Proto;
pub use state::{FromStates, State, States};

/// Handles single messages. Functions become handlers by [`IntoHandler`]; your own types can implement this
/// trait too.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use sawmill::{Context, Outcome, Sawmill};
/// use sawmill::handler::Handler;
///
/// struct Greeter { greeting: String }
///
/// impl Handler for Greeter {
///     fn call(&self, mail: Context) -> BoxFuture<'static, Outcome> {
///         let greeting = self.greeting.clone();
///         Box::pin(async move {
///             println!("{greeting} {}", mail.id());
///             Outcome::Done
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = Sawmill::open("memory:").await?;
/// # mill.create_topic("greetings").await?;
/// let worker = mill.worker("greetings").start(Greeter { greeting: "Hello".to_owned() }).await?;
/// worker.stop().await;
/// # Ok(()) }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Handles one message, and returns its outcome.
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome>;

    /// Checks, once when the worker starts, that all the states the handler needs are there. An error keeps
    /// the worker from starting.
    fn check(&self, _states: &States) -> Result<()> {
        Ok(())
    }
}

impl<H: Handler + ?Sized> Handler for Box<H> {
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome> {
        (**self).call(context)
    }

    fn check(&self, states: &States) -> Result<()> {
        (**self).check(states)
    }
}

/// Converts into a [`Handler`]. Implemented for handlers themselves, and for every `async` function or
/// closure with up to four arguments that are each made [from a context](FromContext), and a result that
/// converts into an [outcome](IntoOutcome).
///
/// The arguments are made in turn. If one cannot be made, its outcome settles the message and the function is
/// not called.
#[diagnostic::on_unimplemented(
    message = "this is no handler",
    label = "not an async function whose arguments can be made from a `Context`",
    note = "a handler is an `async` function or closure of up to four arguments, each with its type written out and each one that implements `FromContext` (`Context`, `Json<T>`, `State<T>`, `Bytes`, `String`, ...)",
    note = "it returns `()`, a `Result`, or an `Outcome`, and its future can be sent to other threads"
)]
pub trait IntoHandler<Args> {
    /// Returns the handler.
    fn into_handler(self) -> Box<dyn Handler>;
}

/// Marks the implementation of [`IntoHandler`] for types that are handlers already.
#[derive(Debug)]
pub struct Whole;

impl<H: Handler> IntoHandler<Whole> for H {
    fn into_handler(self) -> Box<dyn Handler> {
        Box::new(self)
    }
}

impl<F, Args> IntoHandler<Args> for F
where
    F: Function<Args, Output: Future<Output: IntoOutcome> + Send + 'static>,
    Args: FromContext + 'static,
{
    fn into_handler(self) -> Box<dyn Handler> {
        Box::new(Typed { function: self, arguments: std::marker::PhantomData })
    }
}

/// A function as a handler.
struct Typed<F, Args> {
    function: F,
    arguments: std::marker::PhantomData<fn(Args)>,
}

impl<F, Args> Handler for Typed<F, Args>
where
    F: Function<Args, Output: Future<Output: IntoOutcome> + Send + 'static>,
    Args: FromContext + 'static,
{
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome> {
        match Args::from_context(&context) {
            Ok(arguments) => self.function.call(arguments).map(IntoOutcome::into_outcome).boxed(),
            Err(outcome) => ready(outcome).boxed(),
        }
    }

    fn check(&self, states: &States) -> Result<()> {
        Args::check(states)
    }
}
