//! A reader that follows a shard by position and verifies every block.

use std::sync::Arc;
use std::time::Duration;

use sawmill::Message;
use sawmill::engine::model::Topic;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Block, Log, Position, ReadRequest};

use crate::Place;
use crate::sample::{text, texts};

/// How often the reader polls: acknowledged messages are readable soon, not at once, and there may be no
/// notification.
const POLL: Duration = Duration::from_millis(5);

const SAYS_MORE: &str = "reading at the end of a quiet shard still says that there may be more";

/// Follows one shard of a topic.
pub(crate) struct Reader {
    log: Arc<dyn Log>,
    topic: Topic,
    shard: u16,
    env: Env,
    patience: Duration,
    /// The current position.
    pub(crate) position: Position,
    /// All messages read.
    pub(crate) seen: Vec<Message>,
    /// The blocks they came in.
    pub(crate) blocks: Vec<Block>,
}

impl Reader {
    /// Makes a reader at the beginning of a shard.
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

    /// Moves the reader to this position.
    pub(crate) fn at(mut self, position: &Position) -> Self {
        self.position = position.clone();
        self
    }

    /// Reads one block and moves to its end.
    pub(crate) async fn step(&mut self, limit: usize) -> Block {
        let want = ReadRequest { shard: self.shard, after: self.position.clone(), limit };
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

    /// Reads in blocks of at most `limit` until it has exactly `count` messages in all. Each block must come
    /// soon after the one before it.
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

    /// Reads to the end of a quiet shard with an unknown number of messages left.
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

    /// Asserts that there is nothing more to read, and that a block says so soon.
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

/// Asserts that a shard, read from its beginning, has exactly these payloads.
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
