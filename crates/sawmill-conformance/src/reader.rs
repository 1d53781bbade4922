//! A reader that follows a shard by position, and distrusts what it is given.

use std::sync::Arc;
use std::time::Duration;

use sawmill::env::Env;
use sawmill::log::{Block, Log, Position, Want};
use sawmill::message::Message;
use sawmill::topic::Topic;

use crate::Place;
use crate::sample::{text, texts};

/// What is acknowledged becomes readable soon, not at once, and there need not be a hint: so the reader polls.
const POLL: Duration = Duration::from_millis(5);

const SAYS_MORE: &str = "reading at the end of a quiet shard still says that there may be more";

/// Follows one shard of a topic.
pub(crate) struct Reader {
    log: Arc<dyn Log>,
    topic: Topic,
    shard: u16,
    env: Env,
    patience: Duration,
    /// Where it stands.
    pub(crate) position: Position,
    /// All it was given.
    pub(crate) seen: Vec<Message>,
    /// The blocks in which it was given it.
    pub(crate) blocks: Vec<Block>,
}

impl Reader {
    /// A reader that stands at the beginning of a shard.
    pub(crate) fn new(place: &Place, log: &Arc<dyn Log>, topic: &Topic, shard: u16) -> Self {
        Self {
            log: log.clone(),
            topic: topic.clone(),
            shard,
            env: place.env().clone(),
            patience: place.patience(),
            position: Position::default(),
            seen: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The same reader, standing at this position.
    pub(crate) fn at(mut self, position: &Position) -> Self {
        self.position = position.clone();
        self
    }

    /// Reads one block, and goes on to its end.
    pub(crate) async fn step(&mut self, limit: usize) -> Block {
        let want = Want { shard: self.shard, after: self.position.clone(), limit };
        let mut blocks = self
            .log
            .read(&self.topic, &[want])
            .await
            .expect("an existing shard of an existing topic is read");
        assert_eq!(blocks.len(), 1, "one want is answered with one block");
        let block = blocks.remove(0);
        assert!(
            block.messages.len() <= limit,
            "{limit} messages were wanted, and {} came",
            block.messages.len()
        );
        if block.messages.is_empty() {
            assert_eq!(block.end, self.position, "an empty block ends where reading began");
        } else {
            assert_ne!(block.end, self.position, "a block with messages ends after them");
        }
        self.position = block.end.clone();
        self.seen.extend(block.messages.iter().cloned());
        if !block.messages.is_empty() {
            self.blocks.push(block.clone());
        }
        block
    }

    /// Reads on, in blocks of at most `limit`, until it was given `count` messages in all, and not more. Each block must
    /// come soon after the one before it.
    pub(crate) async fn until(&mut self, count: usize, limit: usize) {
        let mut progress = self.env.now();
        while self.seen.len() < count {
            if !self.step(limit.min(count - self.seen.len())).await.messages.is_empty() {
                progress = self.env.now();
                continue;
            }
            assert!(
                self.env.now().since(progress) < self.patience,
                "of {count} acknowledged messages only {} are readable after {:?}: {:?}",
                self.seen.len(),
                self.patience,
                shortened(&self.seen)
            );
            self.env.sleep(POLL).await;
        }
    }

    /// Reads on to the end of a quiet shard, of which it is not known how much is left.
    pub(crate) async fn rest(&mut self) {
        let start = self.env.now();
        loop {
            let block = self.step(100).await;
            if block.messages.is_empty() {
                if !block.more {
                    break;
                }
                assert!(self.env.now().since(start) < self.patience, "{SAYS_MORE}");
                self.env.sleep(POLL).await;
            }
        }
    }

    /// Holds that there is nothing more to read now, and that reading comes to say so.
    pub(crate) async fn assert_at_end(&mut self) {
        let before = self.seen.len();
        self.rest().await;
        let more = &self.seen[before..];
        assert!(
            more.is_empty(),
            "there should be nothing more to read, and there came {:?}",
            shortened(more)
        );
    }
}

/// Holds that a shard, read from its beginning, says exactly this.
pub(crate) async fn assert_says<T: AsRef<str>>(
    place: &Place,
    log: &Arc<dyn Log>,
    topic: &Topic,
    shard: u16,
    expected: &[T],
) {
    let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
    let mut reader = Reader::new(place, log, topic, shard);
    reader.until(expected.len(), 100).await;
    assert_eq!(texts(&reader.seen), expected, "shard {shard} of {}, from its beginning", topic.name);
    reader.assert_at_end().await;
}

fn shortened(messages: &[Message]) -> Vec<String> {
    messages.iter().take(20).map(|message| text(message).chars().take(30).collect()).collect()
}
