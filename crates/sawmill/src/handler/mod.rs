//! Handlers: how a program says what is to be done with a message.
//!
//! A handler is a function whose arguments say what it wants to know: the whole [`Context`], the payload as
//! [`Json`](crate::Json), what all handlers [share](crate::State), or anything else that can be made
//! [from a context](FromContext). The traits here make such functions into handlers; a program seldom names them.

mod batch;
mod blocking;
mod context;
mod extract;
mod function;
mod hook;
mod layer;
mod note;
mod state;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::error::Result;
use crate::outcome::{IntoOutcome, Outcome};
pub use batch::{Batch, FromBatch};
pub(crate) use batch::{BatchHandler, batched, share_out};
pub(crate) use blocking::blocking;
pub use context::Context;
pub(crate) use context::{Site, Source};
pub use extract::FromContext;
pub use function::Function;
pub(crate) use hook::Hooks;
pub(crate) use layer::Layers;
pub use layer::Next;
pub(crate) use note::Notes;
pub use state::{FromStates, State, States};

/// What runs for each message. Functions are made into one by [`IntoHandler`]; a type of one's own may be one too.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use sawmill::{Context, Handler, Outcome, Sawmill};
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
    /// Handles one message.
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome>;

    /// Called once, when the worker starts: an error if something it needs is not among what handlers share.
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

/// What can be made into a [`Handler`]: a handler itself, and every `async` function or closure of up to four arguments
/// that are each made [from a context](FromContext), and that returns something that [stands for an
/// outcome](crate::IntoOutcome).
///
/// The arguments are tried in turn. One that cannot be made settles the message, and the function is not called.
#[diagnostic::on_unimplemented(
    message = "this is no handler",
    label = "not an async function whose arguments can be made from a `Context`",
    note = "a handler is an `async` function or closure of up to four arguments, each with its type written out and each one that implements `FromContext` (`Context`, `Json<T>`, `State<T>`, `Bytes`, `String`, ...)",
    note = "it returns `()`, a `Result`, or an `Outcome`, and its future can be sent to other threads"
)]
pub trait IntoHandler<Args> {
    /// The handler it becomes.
    fn into_handler(self) -> Box<dyn Handler>;
}

/// Stands for the arguments of what is a handler already.
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
