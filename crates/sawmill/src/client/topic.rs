//! Typed topics: a topic whose payloads are JSON values of one type.

use std::marker::PhantomData;

use sawmill_engine::Result;
use sawmill_engine::model::{MessageId, Push, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Sawmill;
use crate::worker::WorkerBuilder;

/// A topic whose payloads are values of one type, as JSON; made by [`Sawmill::topic`]. Clones are cheap.
///
/// ```
/// use sawmill::{Json, Sawmill};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Mail { to: String }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// let mill = Sawmill::open("memory:").await?;
/// let emails = mill.topic::<Mail>("emails").await?;
/// emails.push(&Mail { to: "alice".into() }).await?;
///
/// let worker = emails.worker().start(|Json(mail): Json<Mail>| async move { println!("to {}", mail.to) }).await?;
/// worker.drained().await;
/// assert_eq!(worker.stop().await.done, 1);
/// # Ok(()) }
/// ```
pub struct TypedTopic<T> {
    mill: Sawmill,
    name: String,
    payload: PhantomData<fn(T) -> T>,
}

impl<T> Clone for TypedTopic<T> {
    fn clone(&self) -> Self {
        Self { mill: self.mill.clone(), name: self.name.clone(), payload: PhantomData }
    }
}

impl Sawmill {
    /// Finds the topic with this name, or creates it with the default settings, for payloads of one type.
    pub async fn topic<T: Serialize + DeserializeOwned>(&self, name: &str) -> Result<TypedTopic<T>> {
        let Topic { name, .. } = self.create_topic(name).await?;
        Ok(TypedTopic { mill: self.clone(), name: name.to_string(), payload: PhantomData })
    }
}

impl<T: Serialize + DeserializeOwned> TypedTopic<T> {
    /// The name of the topic.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a message of a value, to be given a key, headers, a due time or a unique name before it is
    /// [pushed](TypedTopic::push_message).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// let calls = mill.topic::<u32>("calls").await?;
    /// calls.push_message(calls.message(&110)?.key("alice").after(Duration::from_secs(60))).await?;
    /// # Ok(()) }
    /// ```
    pub fn message(&self, value: &T) -> Result<Push> {
        Push::json(value)
    }

    /// Pushes a value and returns the id of its message. When this returns, the message is durable.
    pub async fn push(&self, value: &T) -> Result<MessageId> {
        self.push_message(Push::json(value)?).await
    }

    /// Pushes values and returns the ids of their messages, in the same order. If one cannot be pushed at all, none is.
    pub async fn push_many<'v>(&self, values: impl IntoIterator<Item = &'v T>) -> Result<Vec<MessageId>>
    where
        T: 'v,
    {
        let messages: Result<Vec<Push>> = values.into_iter().map(Push::json).collect();
        self.mill.push_many(&self.name, messages?).await
    }

    /// Pushes a [message](TypedTopic::message) and returns its id.
    pub async fn push_message(&self, message: Push) -> Result<MessageId> {
        self.mill.push(&self.name, message).await
    }

    /// Returns a worker for the topic, to be started. Its handler takes [`Json<T>`](crate::Json).
    pub fn worker(&self) -> WorkerBuilder {
        self.mill.worker(self.name.as_str())
    }
}
