//! The producer: appends concurrent pushes together.
//!
//! One task appends. When it is idle, it appends a push at once. Pushes that arrive during an append wait,
//! and the next append takes them together. So a store that needs 5 ms for a durable write takes hundreds of
//! single pushes in that time, and no push waits for a timer.

use std::sync::Arc;

use sawmill_engine::fault;
use sawmill_engine::model::{MessageId, Push, TopicName, base_name};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};

use super::Sawmill;
use crate::store::Store;
use crate::store::push::CheckedPush;
use crate::telemetry::PushSpan;

/// The maximum number of messages in one append, and in the queue. Further pushes wait for room in the queue.
const MAX_MESSAGES: usize = 1000;
/// The approximate maximum number of bytes in one append.
const MAX_BYTES: usize = 4 << 20;

/// Appends single pushes of many tasks together; made by [`Sawmill::producer`]. Clones share one queue.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    topic: TopicName,
    queue: mpsc::Sender<Queued>,
}

struct Queued {
    checked: CheckedPush,
    answer: oneshot::Sender<Result<MessageId>>,
}

impl Sawmill {
    /// Makes a producer for a topic: concurrent single pushes of many tasks share one append. Fails with
    /// [`NotFound`](ErrorKind::NotFound) if the topic does not exist.
    ///
    /// The producer spawns a task on the runtime of the caller. It ends when all clones of the producer are
    /// dropped.
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
        self.store.find(&name).await?;
        let (queue, queued) = mpsc::channel(MAX_MESSAGES);
        self.store.env().spawn(gather(self.store.clone(), name.clone(), queued));
        Ok(Producer { shared: Arc::new(Shared { store: self.store.clone(), topic: name, queue }) })
    }
}

impl Producer {
    /// Pushes a message and returns its id. When this returns, the message is durable. A push that starts
    /// after another one has returned is appended after it.
    ///
    /// An invalid message fails alone; an error of the store fails all pushes of the same append. If the
    /// future is dropped before it completes, the message may or may not be pushed.
    pub async fn push(&self, message: impl Into<Push>) -> Result<MessageId> {
        let span = PushSpan::new(&self.shared.topic, 1);
        let pushed = self.push_within(&span, message.into()).await;
        span.end(pushed.as_ref().map(std::slice::from_ref));
        pushed
    }

    async fn push_within(&self, span: &PushSpan, message: Push) -> Result<MessageId> {
        let store = &self.shared.store;
        let checked = span.within(|| store.check(message, store.new_id(), store.env().wall()))?;
        let (answer, answered) = oneshot::channel();
        let ended = |kind| Error::new(kind, "the producer's task has ended with its runtime: make a new one");
        let queued = self.shared.queue.send(Queued { checked, answer }).await;
        queued.map_err(|_| ended(ErrorKind::Unavailable))?;
        answered.await.map_err(|_| ended(ErrorKind::Unknown))?
    }
}

/// Appends what is queued until no producer is left.
async fn gather(store: Arc<Store>, topic: TopicName, mut queue: mpsc::Receiver<Queued>) {
    let mut queued = Vec::new();
    while queue.recv_many(&mut queued, MAX_MESSAGES).await > 0 {
        // Unique messages need the ledger. The others must neither wait for it nor fail with it.
        let (unique, plain): (Vec<Queued>, Vec<Queued>) =
            queued.drain(..).partition(|queued| queued.checked.unique.is_some());
        for batch in portions(plain).into_iter().chain(portions(unique)) {
            append(&store, &topic, batch).await;
        }
    }
}

/// Splits the queued pushes so that no append is too large.
fn portions(queued: Vec<Queued>) -> Vec<Vec<Queued>> {
    let mut portions: Vec<Vec<Queued>> = Vec::new();
    let mut bytes = usize::MAX;
    for queued in queued {
        let message = &queued.checked.message;
        let size = message.payload.len() + message.headers.size();
        bytes = bytes.saturating_add(size);
        match portions.last_mut().filter(|_| bytes <= MAX_BYTES) {
            Some(portion) => portion.push(queued),
            None => {
                bytes = size;
                portions.push(vec![queued]);
            }
        }
    }
    portions
}

async fn append(store: &Store, topic: &TopicName, batch: Vec<Queued>) {
    let (messages, answers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|queued| (queued.checked, queued.answer)).unzip();
    if fault!(AckBeforeAppend) {
        let ids: Vec<MessageId> = messages.iter().map(|checked| checked.message.id).collect();
        answers.into_iter().zip(ids).for_each(|(answer, id)| _ = answer.send(Ok(id)));
        let _ = store.append(topic, messages).await;
        return;
    }
    // Sending fails if the caller has dropped its push; then nobody needs the answer.
    match store.append(topic, messages).await {
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
    use sawmill_engine::runtime::Env;
    use sawmill_engine::storage::Memory;

    use super::*;

    #[test]
    fn no_append_is_too_large() {
        let (log, ledger) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
        let store = Store::new(log, ledger, Env::system(), Vec::new());
        let queued = |bytes: usize| Queued {
            checked: store
                .check(Push::new(vec![0; bytes]), MessageId::from_u128(1), store.env().wall())
                .unwrap(),
            answer: oneshot::channel().0,
        };
        let mib = 1 << 20;
        let sizes = [mib, 2 * mib, mib, 1, 5 * mib, 1, 1];
        let portions = portions(sizes.into_iter().map(queued).collect());
        let lengths: Vec<usize> = portions.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 1, 1, 2], "a message above the maximum goes alone");
    }
}
