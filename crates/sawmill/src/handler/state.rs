//! State that the handlers of a worker share, found by its type.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sawmill_engine::Result;

use super::extract::missing;

/// A handler argument: a value that all handlers of a worker share, provided by
/// [`state`](crate::WorkerBuilder::state) or [`on_start`](crate::WorkerBuilder::on_start). A worker does not
/// start if its handler asks for a value that is not provided.
///
/// ```
/// use sawmill::{Context, Sawmill, State};
///
/// struct Sender { address: String }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = Sawmill::open("memory:").await?;
/// # mill.create_topic("emails").await?;
/// let worker = mill
///     .worker("emails")
///     .state(Sender { address: "mill@example.org".to_owned() })
///     .start(|mail: Context, sender: State<Sender>| async move {
///         println!("{} sends {:?}", sender.address, mail.payload());
///     })
///     .await?;
/// worker.stop().await;
/// # Ok(()) }
/// ```
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The values that the handlers of a worker share, at most one of each type. Clones share the values.
#[derive(Clone, Default)]
pub struct States {
    values: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl States {
    /// Returns the value of this type, if there is one.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        let value = self.values.get(&TypeId::of::<T>())?.clone();
        value.downcast().ok().map(State)
    }

    /// Adds a value. It replaces one of the same type.
    pub(crate) fn put<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Arc::new(value));
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.values.len())
    }
}

/// The arguments of a hook: up to four [`State`]s.
pub trait FromStates: Sized + Send {
    /// Finds the arguments. Fails if one is not provided, and names it.
    fn from_states(states: &States) -> Result<Self>;
}

impl<T: Send + Sync + 'static> FromStates for State<T> {
    fn from_states(states: &States) -> Result<Self> {
        states.get().ok_or_else(missing::<T>)
    }
}

macro_rules! tuple {
    ($($A:ident)*) => {
        impl<$($A: Send + Sync + 'static),*> FromStates for ($(State<$A>,)*) {
            fn from_states(_states: &States) -> Result<Self> {
                Ok(($(State::<$A>::from_states(_states)?,)*))
            }
        }
    };
}

tuple!();
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_type_and_the_last_one_counts() {
        let mut states = States::default();
        states.put(1_u32);
        states.put("text");
        states.put(2_u32);
        assert_eq!(*states.get::<u32>().unwrap(), 2);
        assert_eq!(*states.get::<&str>().unwrap(), "text");
        assert!(states.get::<u64>().is_none());
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut states = States::default();
        states.put(1_u32);
        assert!(<(State<u32>,)>::from_states(&states).is_ok());
        let error = <(State<u32>, State<String>)>::from_states(&states).unwrap_err().to_string();
        assert!(error.starts_with("State<alloc::string::String> is asked for"), "{error}");
    }
}
