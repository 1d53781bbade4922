//! The producer: pushes that come at the same time are appended together.
//!
//! One task appends. When it is idle, a push is appended at once; while an append is under way, those that come meanwhile
//! wait and are appended together by the next. So a store that takes 5 ms for a durable write takes hundreds of single
//! pushes in that time, and nobody waits for a timer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind, Result};
use crate::message::{MessageId, Push};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::push::Checked;
use crate::topic::TopicName;
use crate::trace::PushSpan;
use crate::worker::base_name;

/// The most messages that are appended together, and that wait for that. Who comes then waits for room.
const MOST: usize = 1000;
/// About how many bytes are appended together.
const MOST_BYTES: usize = 4 << 20;

/// Pushes messages one by one from many places, cheaply; see [`Sawmill::producer`]. Clones share one queue.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    mill: Sawmill,
    topic: TopicName,
    queue: mpsc::Sender<Queued>,
}

struct Queued {
    checked: Checked,
    answer: oneshot::Sender<Result<MessageId>>,
}

impl Sawmill {
    /// A producer for a topic: single pushes of many tasks, at the same time, cost one append together. It needs a task,
    /// which runs where this is called and ends when all clones of the producer are gone.
    ///
    /// ```
    /// use sawmill::Sawmill;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// let emails = mill.producer("emails").await?;
    /// let (alice, bob) = tokio::join!(emails.push("Hello Alice"), emails.push("Hello Bob"));
    /// assert_ne!(alice?, bob?);
    /// # Ok(()) }
    /// ```
    pub async fn producer(&self, topic: &str) -> Result<Producer> {
        let name = base_name(topic)?;
        self.find(&name).await?;
        let (queue, queued) = mpsc::channel(MOST);
        self.env().spawn(gather(self.clone(), name.clone(), queued));
        Ok(Producer { shared: Arc::new(Shared { mill: self.clone(), topic: name, queue }) })
    }
}

impl Producer {
    /// Pushes a message and returns its id. When this returns, the message is durable. Messages that are pushed one after
    /// another, each when the one before it has returned, are appended in that order.
    ///
    /// A message that cannot be pushed at all fails alone; an error of the store is the error of all that were to be
    /// appended together. If this is dropped before it is done, the message may be pushed or not.
    pub async fn push(&self, message: impl Into<Push>) -> Result<MessageId> {
        let span = PushSpan::new(&self.shared.topic, 1);
        let pushed = self.push_within(&span, message.into()).await;
        span.end(pushed.as_ref().map(std::slice::from_ref));
        pushed
    }

    async fn push_within(&self, span: &PushSpan, message: Push) -> Result<MessageId> {
        let mill = &self.shared.mill;
        let ids = mill.new_ids(1);
        let id = ids.first().copied().unwrap_or_else(|| MessageId::from_u128(0));
        let checked = span.within(|| mill.check(message, id, mill.env().wall()))?;
        let (answer, answered) = oneshot::channel();
        let ended = |kind| Error::new(kind, "the producer's task has ended with its runtime: make a new one");
        let queued = self.shared.queue.send(Queued { checked, answer }).await;
        queued.map_err(|_| ended(ErrorKind::Unavailable))?;
        answered.await.map_err(|_| ended(ErrorKind::Unknown))?
    }
}

/// Appends what is queued until no producer is left.
async fn gather(mill: Sawmill, topic: TopicName, mut queue: mpsc::Receiver<Queued>) {
    let mut queued = Vec::new();
    while queue.recv_many(&mut queued, MOST).await > 0 {
        // Unique ones need the ledger: the others are not to wait for it, nor to fail with it.
        let (unique, plain): (Vec<Queued>, Vec<Queued>) =
            queued.drain(..).partition(|queued| queued.checked.unique.is_some());
        for batch in portions(plain).into_iter().chain(portions(unique)) {
            append(&mill, &topic, batch).await;
        }
    }
}

/// Splits what is queued so that no append is too large.
fn portions(queued: Vec<Queued>) -> Vec<Vec<Queued>> {
    let mut portions: Vec<Vec<Queued>> = Vec::new();
    let mut bytes = usize::MAX;
    for queued in queued {
        let message = &queued.checked.message;
        let size = message.payload.len() + message.headers.size();
        bytes = bytes.saturating_add(size);
        match portions.last_mut().filter(|_| bytes <= MOST_BYTES) {
            Some(portion) => portion.push(queued),
            None => {
                bytes = size;
                portions.push(vec![queued]);
            }
        }
    }
    portions
}

async fn append(mill: &Sawmill, topic: &TopicName, batch: Vec<Queued>) {
    let (messages, answers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|queued| (queued.checked, queued.answer)).unzip();
    if planted::is(Bug::AckBeforeAppend) {
        let ids: Vec<MessageId> = messages.iter().map(|checked| checked.message.id).collect();
        answers.into_iter().zip(ids).for_each(|(answer, id)| _ = answer.send(Ok(id)));
        let _ = mill.append(topic, messages).await;
        return;
    }
    // Whoever does not wait for the answer any more does not get it.
    match mill.append(topic, messages).await {
        Ok(ids) => {
            for (answer, id) in answers.into_iter().zip(ids) {
                let _ = answer.send(Ok(id));
            }
        }
        Err(error) => {
            for answer in answers {
                let _ = answer.send(Err(Error::new(error.kind(), error.to_string())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::memory::Memory;

    #[test]
    fn no_append_is_too_large() {
        let mill = Sawmill::from_parts(Arc::new(Memory::new()), Arc::new(Memory::new()), Env::system());
        let queued = |bytes: usize| Queued {
            checked: mill
                .check(Push::new(vec![0; bytes]), MessageId::from_u128(1), mill.env().wall())
                .unwrap(),
            answer: oneshot::channel().0,
        };
        let mib = 1 << 20;
        let sizes = [mib, 2 * mib, mib, 1, 5 * mib, 1, 1];
        let portions = portions(sizes.into_iter().map(queued).collect());
        let lengths: Vec<usize> = portions.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 1, 1, 2], "what is too large by itself goes alone");
    }
}
