//! The types that a handler can take as arguments.

use sawmill_engine::{Error, Result};

use super::state::States;
use super::{Context, State};
use crate::handler::Outcome;

/// An argument of a handler, made from the message's [`Context`].
///
/// Implement it for your own types:
///
/// ```
/// use sawmill::handler::FromContext;
/// use sawmill::{Context, Json, Outcome, Sawmill};
///
/// /// The customer whose message it is.
/// struct Tenant(String);
///
/// impl FromContext for Tenant {
///     fn from_context(context: &Context) -> Result<Self, Outcome> {
///         match context.headers().text("tenant") {
///             Some(tenant) => Ok(Tenant(tenant.to_owned())),
///             None => Err(Outcome::dead("the header \"tenant\" is missing")),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = Sawmill::open("memory:").await?;
/// # mill.create_topic("bills").await?;
/// let worker = mill.worker("bills").start(|tenant: Tenant, Json(amount): Json<u32>| async move {
///     println!("{} owes {amount}", tenant.0);
/// }).await?;
/// worker.stop().await;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    note = "arguments are `Context`, `Json<T>`, `State<T>`, `Bytes`, `String`, `Proto<T>` with the feature `prost`, tuples of these, and types of one's own that implement `FromContext`"
)]
pub trait FromContext: Sized + Send {
    /// Makes the argument from a message's context. If that fails, returns the outcome of the message.
    fn from_context(context: &Context) -> Result<Self, Outcome>;

    /// Checks, once when the worker starts, that all the states the argument needs are there. An error keeps
    /// the worker from starting.
    fn check(_states: &States) -> Result<()> {
        Ok(())
    }
}

impl FromContext for Context {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        Ok(context.clone())
    }
}

impl<T: Send + Sync + 'static> FromContext for State<T> {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        let states = &context.source.site.states;
        states.get().ok_or_else(|| Outcome::stop(missing::<T>()))
    }

    fn check(states: &States) -> Result<()> {
        states.get::<T>().map(drop).ok_or_else(missing::<T>)
    }
}

/// The error of a worker whose handler asks for a state that is not provided.
pub(super) fn missing<T>() -> Error {
    let name = std::any::type_name::<T>();
    Error::invalid(format!(
        "State<{name}> is asked for, but nobody provides it: give the worker a value of this very type with \
         `.state(…)`, or return one from `.on_start(…)`"
    ))
}

macro_rules! tuple {
    ($($A:ident)*) => {
        impl<$($A: FromContext),*> FromContext for ($($A,)*) {
            fn from_context(_context: &Context) -> Result<Self, Outcome> {
                Ok(($($A::from_context(_context)?,)*))
            }

            fn check(_states: &States) -> Result<()> {
                $($A::check(_states)?;)*
                Ok(())
            }
        }
    };
}

tuple!();
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
