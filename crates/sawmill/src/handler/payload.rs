//! Payloads as handler arguments: JSON, protocol buffers, text and bytes.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use sawmill_engine::Result;
use serde::de::DeserializeOwned;

use crate::handler::{Context, FromContext, Outcome};

/// A handler argument: the payload, parsed as JSON. A message that cannot be parsed becomes a dead letter at
/// once, with the error as its reason.
///
/// ```
/// use sawmill::{Json, Push, Sawmill};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Mail { to: String, text: String }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = Sawmill::open("memory:").await?;
/// # mill.create_topic("emails").await?;
/// let mail = Mail { to: "alice".to_owned(), text: "Hello".to_owned() };
/// mill.push("emails", Push::json(&mail)?.key("alice")).await?;
///
/// let worker = mill.worker("emails").start(|Json(mail): Json<Mail>| async move {
///     println!("to {}: {}", mail.to, mail.text);
/// }).await?;
/// worker.drained().await;
/// assert_eq!(worker.stop().await.done, 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

/// A handler argument: the payload, parsed as a protocol buffer. A message that cannot be parsed becomes a
/// dead letter at once, with the error as its reason.
///
/// ```
/// use sawmill::{Proto, Push, Sawmill};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Mail {
///     #[prost(string, tag = "1")]
///     to: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = Sawmill::open("memory:").await?;
/// # mill.create_topic("emails").await?;
/// mill.push("emails", Push::proto(&Mail { to: "alice".to_owned() })).await?;
/// let worker = mill.worker("emails").start(|mail: Proto<Mail>| async move {
///     println!("to {}", mail.to);
/// }).await?;
/// worker.drained().await;
/// assert_eq!(worker.stop().await.done, 1);
/// # Ok(()) }
/// ```
#[cfg(feature = "prost")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proto<T>(pub T);

impl<T: DeserializeOwned + Send> FromContext for Json<T> {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        serde_json::from_slice(context.payload()).map(Json).map_err(|error| unreadable::<T>("JSON", error))
    }
}

#[cfg(feature = "prost")]
impl<T: prost::Message + Default> FromContext for Proto<T> {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        let payload = context.payload().clone();
        T::decode(payload).map(Proto).map_err(|error| unreadable::<T>("a protocol buffer", error))
    }
}

impl FromContext for Bytes {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        Ok(context.payload().clone())
    }
}

impl FromContext for String {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        let text = std::str::from_utf8(context.payload());
        text.map(str::to_owned).map_err(|error| unreadable::<String>("UTF-8 text", error))
    }
}

/// Returns the outcome for an unreadable payload: dead at once, because a retry would get the same payload.
fn unreadable<T>(form: &str, error: impl std::fmt::Display) -> Outcome {
    let name = std::any::type_name::<T>();
    Outcome::dead(format!("the payload cannot be read as {form} ({name}): {error}"))
}

macro_rules! deref {
    ($Name:ident) => {
        impl<T> Deref for $Name<T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.0
            }
        }

        impl<T> DerefMut for $Name<T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.0
            }
        }
    };
}

deref!(Json);
#[cfg(feature = "prost")]
deref!(Proto);
