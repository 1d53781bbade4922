//! What a handler's arguments can be.

use super::state::States;
use super::{Context, State};
use crate::error::{Error, Result};
use crate::outcome::Outcome;

/// What a handler can take as an argument.
///
/// A type of one's own may be one too:
///
/// ```
/// use sawmill::{Context, FromContext, Json, Outcome, Sawmill};
///
/// /// Who pushed the message.
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
    /// Makes it from one message's context. If it cannot be made, what is to become of the message.
    fn from_context(context: &Context) -> Result<Self, Outcome>;

    /// Called once, when the worker starts: an error if something it needs is not among what handlers share.
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

/// The error of a worker whose handlers ask for a state that nobody gave it.
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
