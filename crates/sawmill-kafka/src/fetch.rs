//! Reading ahead: a thread fetches the partitions of one topic that somebody reads, from where they read, and keeps what
//! came last within bounds.
//!
//! Partitions are assigned by hand, so that nobody has to agree with anybody about who reads what. A reader that goes back, or
//! far ahead, moves the place from which its partition is fetched.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill::bells::Bells;
use sawmill::clock::Timestamp;
use sawmill::env::Env;
use sawmill::log::{Block, Position, Span, Want};
use sawmill::message::Message;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::error::{Ears, code_of, explain};
use crate::record;

/// How long the driver is waited for before it is looked whether anybody still reads.
const POLL: Duration = Duration::from_millis(100);
/// How long a fetch waits at the broker for something to come. A partition that is new waits so long behind it.
const FETCH_WAIT_MS: &str = "100";
/// How long a read waits when there is nothing at hand: until the broker has said that there is nothing.
const EMPTY_WAIT: Duration = Duration::from_millis(250);
/// How long it waits for what is known to be there, beside what is at hand.
const KNOWN_WAIT: Duration = Duration::from_secs(1);
/// What is kept of a topic, about, and the least of a partition.
const KEEP_BYTES: usize = 64 << 20;
const KEEP_LEAST: usize = 1 << 20;
/// The most bytes of a block.
const BLOCK_BYTES: usize = 8 << 20;
/// Further ahead than this, fetching what lies between costs more than beginning anew.
const LEAP: u64 = 20_000;

/// What is fetched of one topic. Fetching ends when it is dropped.
pub(crate) struct Fetcher {
    inner: Arc<Inner>,
    env: Env,
}

struct Inner {
    topic: String,
    consumer: BaseConsumer<Ears>,
    shelves: Mutex<Vec<Shelf>>,
    /// Counts how often a partition was moved. What was fetched meanwhile may be from the place before.
    moves: AtomicU64,
    changed: watch::Sender<()>,
    /// Rung when messages came.
    bells: Arc<Bells>,
    over: AtomicBool,
    trouble: Mutex<Option<Code>>,
    keep: usize,
}

/// What is known of one partition: everything from `first` to before `next`.
#[derive(Default)]
struct Shelf {
    assigned: bool,
    first: u64,
    next: u64,
    messages: VecDeque<(u64, Message)>,
    bytes: usize,
    /// The broker had no more at `next`.
    at_end: bool,
    paused: bool,
    /// Where somebody read last.
    wanted: u64,
}

fn size(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    100 + message.payload.len() + message.key.as_ref().map_or(0, |key| key.len()) + headers
}

impl Shelf {
    fn push(&mut self, offset: u64, message: Message) {
        self.bytes += size(&message);
        self.messages.push_back((offset, message));
        self.next = offset + 1;
        self.at_end = false;
    }

    /// Lets go of what was read, as far as there is too much.
    fn shrink(&mut self, keep: usize) {
        while self.bytes > keep && self.messages.front().is_some_and(|(offset, _)| *offset < self.wanted) {
            if let Some((offset, message)) = self.messages.pop_front() {
                self.bytes -= size(&message);
                self.first = offset + 1;
            }
        }
    }

    /// Whether what lies at this offset is here, or will be if nothing is done.
    fn covers(&self, from: u64) -> bool {
        self.assigned && self.first <= from && from <= self.next.saturating_add(LEAP)
    }

    fn block(&mut self, from: u64, limit: usize) -> Block {
        self.wanted = from;
        let start = self.messages.partition_point(|(offset, _)| *offset < from);
        let mut bytes = 0;
        let fits = |(_, message): &&(u64, Message)| {
            bytes += size(message);
            bytes <= BLOCK_BYTES || bytes == size(message)
        };
        let found: Vec<&(u64, Message)> = self.messages.range(start..).take(limit).take_while(fits).collect();
        let end = found.last().map_or(from, |(offset, _)| offset + 1);
        let messages: Vec<Message> = found.into_iter().map(|(_, message)| message.clone()).collect();
        let span = Span::from_range(from, end, messages.len());
        let more = self.messages.back().is_some_and(|(offset, _)| *offset >= end) || !self.at_end;
        Block { messages, span, end: Position::from_number(end), more }
    }
}

impl Inner {
    fn shelves(&self) -> MutexGuard<'_, Vec<Shelf>> {
        self.shelves.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Fetches partitions from other places than before.
    fn move_to(&self, places: &[(u16, u64)]) -> KafkaResult<()> {
        let mut shelves = self.shelves();
        self.moves.fetch_add(1, Ordering::AcqRel);
        let (mut to, mut away) = (TopicPartitionList::new(), TopicPartitionList::new());
        for (partition, from) in places {
            let Some(shelf) = shelves.get_mut(usize::from(*partition)) else { continue };
            let offset = Offset::Offset(i64::try_from(*from).unwrap_or(i64::MAX));
            to.add_partition_offset(&self.topic, i32::from(*partition), offset)?;
            if shelf.assigned {
                away.add_partition(&self.topic, i32::from(*partition));
            }
            *shelf = Shelf { assigned: true, first: *from, next: *from, wanted: *from, ..Shelf::default() };
        }
        // Two who move at once must not come between each other.
        if away.count() > 0 {
            self.consumer.resume(&away)?;
            self.consumer.incremental_unassign(&away)?;
        }
        self.consumer.incremental_assign(&to)
    }

    /// Fetches until nobody reads any more.
    fn run(&self) {
        let mut more = false;
        while !self.over.load(Ordering::Acquire) {
            let moves = self.moves.load(Ordering::Acquire);
            match self.consumer.poll(if more { Duration::ZERO } else { POLL }) {
                None if more => {
                    more = false;
                    self.changed.send_replace(());
                    self.bells.ring_messages();
                }
                None => {}
                Some(Ok(message)) => {
                    self.take(&message, moves);
                    more = true;
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => self.end(partition, moves),
                Some(Err(error)) => {
                    tracing::debug!(%error, topic = %self.topic, "fetching is interrupted");
                    *self.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = code_of(&error);
                    self.changed.send_replace(());
                }
            }
        }
    }

    fn take(&self, message: &BorrowedMessage<'_>, moves: u64) {
        let Some((offset, read)) = record::read(message) else { return };
        let partition = message.partition();
        let mut shelves = self.shelves();
        let Some(shelf) = usize::try_from(partition).ok().and_then(|at| shelves.get_mut(at)) else { return };
        if self.moves.load(Ordering::Acquire) != moves {
            let from = shelf.next;
            drop(shelves);
            return self.again(partition, from);
        }
        if offset < shelf.next {
            return;
        }
        shelf.push(offset, read);
        shelf.shrink(self.keep);
        if shelf.bytes > 2 * self.keep && !shelf.paused {
            let mut list = TopicPartitionList::new();
            list.add_partition(&self.topic, partition);
            shelf.paused = self.consumer.pause(&list).is_ok();
        }
    }

    fn end(&self, partition: i32, moves: u64) {
        let mut shelves = self.shelves();
        let Some(shelf) = usize::try_from(partition).ok().and_then(|at| shelves.get_mut(at)) else { return };
        if self.moves.load(Ordering::Acquire) != moves {
            // The broker does not say it a second time.
            let from = shelf.next;
            drop(shelves);
            return self.again(partition, from);
        }
        shelf.at_end = true;
        drop(shelves);
        self.changed.send_replace(());
    }

    /// Fetches a partition again from where it is: what came may have been from before a move.
    fn again(&self, partition: i32, from: u64) {
        if let Ok(partition) = u16::try_from(partition)
            && let Err(error) = self.move_to(&[(partition, from)])
        {
            tracing::debug!(%error, "fetching could not go on; it is tried again");
        }
    }
}

impl Fetcher {
    pub(crate) fn new(cluster: &Cluster, topic: &str, partitions: u16, bells: Arc<Bells>) -> Result<Self> {
        let mut config = cluster.address.config();
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", FETCH_WAIT_MS).set("fetch.error.backoff.ms", "50");
        config.set("fetch.queue.backoff.ms", "50").set("queued.max.messages.kbytes", "16384");
        config.set("fetch.message.max.bytes", "1048576");
        let consumer = config.create_with_context(Ears).map_err(|error| explain(&error))?;
        let inner = Arc::new(Inner {
            topic: topic.to_owned(),
            consumer,
            shelves: Mutex::new((0..partitions).map(|_| Shelf::default()).collect()),
            moves: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            bells,
            over: AtomicBool::new(false),
            trouble: Mutex::new(None),
            keep: (KEEP_BYTES / usize::from(partitions.max(1))).max(KEEP_LEAST),
        });
        let fetching = inner.clone();
        let started = std::thread::Builder::new().name("sawmill-kafka".into()).spawn(move || fetching.run());
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("there is no room for one more thread ({error})"))
        })?;
        Ok(Self { inner, env: cluster.env.clone() })
    }

    /// Trouble that the driver has told of since it was asked last.
    pub(crate) fn trouble(&self) -> Option<Code> {
        self.inner.trouble.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// Reads each shard from where it is wanted. `known` says up to where there are messages for certain.
    pub(crate) async fn read(&self, wants: &[Want], known: impl Fn(u16) -> u64) -> Result<Vec<Block>> {
        let froms: Result<Vec<u64>> = wants.iter().map(|want| want.after.number()).collect();
        let froms = froms?;
        let known: Vec<u64> = wants.iter().map(|want| known(want.shard)).collect();
        let began = self.env.now();
        let mut changed = self.inner.changed.subscribe();
        let mut resume = Vec::new();
        let blocks = loop {
            let (mut blocks, mut moves) = (Vec::with_capacity(wants.len()), Vec::new());
            let (mut some, mut unknown, mut missing) = (false, false, false);
            {
                let mut shelves = self.inner.shelves();
                for ((want, from), known) in wants.iter().zip(&froms).zip(&known) {
                    let Some(shelf) = shelves.get_mut(usize::from(want.shard)) else {
                        return Err(Error::new(
                            ErrorKind::Invalid,
                            format!("there is no shard {}", want.shard),
                        ));
                    };
                    if !shelf.covers(*from) {
                        // One at a time, if two want to be at different places.
                        if !moves.iter().any(|(shard, _)| *shard == want.shard) {
                            moves.push((want.shard, *from));
                        }
                        let (span, end) = (Span::from_range(*from, *from, 0), want.after.clone());
                        blocks.push(Block { messages: Vec::new(), span, end, more: true });
                        continue;
                    }
                    let block = shelf.block(*from, want.limit);
                    shelf.shrink(self.inner.keep);
                    if shelf.paused && shelf.bytes <= self.inner.keep {
                        shelf.paused = false;
                        resume.push(want.shard);
                    }
                    some |= !block.messages.is_empty();
                    if block.messages.is_empty() && want.limit > 0 {
                        missing |= shelf.next < *known || shelf.next < *from;
                        unknown |= !shelf.at_end;
                    }
                    blocks.push(block);
                }
            }
            if !moves.is_empty() {
                let inner = self.inner.clone();
                let moved = self.env.blocking(move || inner.move_to(&moves)).await;
                match moved {
                    // What is at hand does not wait for what has to be fetched.
                    Some(Ok(Ok(()))) if some => break blocks,
                    Some(Ok(Ok(()))) if self.env.now().since(began) < EMPTY_WAIT => continue,
                    Some(Ok(Ok(()))) => break blocks,
                    Some(Ok(Err(error))) => return Err(explain(&error)),
                    _ => {
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            "fetching was interrupted; try again",
                        ));
                    }
                }
            }
            let limit = match (some, missing, unknown) {
                (true, true, _) => KNOWN_WAIT,
                (false, true, _) | (false, _, true) => EMPTY_WAIT,
                _ => break blocks,
            };
            let left = limit.saturating_sub(self.env.now().since(began));
            if left.is_zero() || self.env.within(left, changed.changed()).await.is_none() {
                break blocks;
            }
        };
        if !resume.is_empty() {
            self.resume(resume).await;
        }
        Ok(blocks)
    }

    async fn resume(&self, shards: Vec<u16>) {
        let inner = self.inner.clone();
        let resumed = self.env.blocking(move || {
            let mut list = TopicPartitionList::new();
            for shard in shards {
                list.add_partition(&inner.topic, i32::from(shard));
            }
            inner.consumer.resume(&list)
        });
        if let Some(Ok(Err(error))) = resumed.await {
            tracing::debug!(%error, "fetching could not be resumed");
        }
    }

    /// When the first message from an offset on was created, if it is at hand.
    pub(crate) fn first(&self, shard: u16, from: u64) -> Option<Timestamp> {
        let shelves = self.inner.shelves();
        let shelf = shelves.get(usize::from(shard)).filter(|shelf| shelf.assigned && shelf.first <= from)?;
        let at = shelf.messages.partition_point(|(offset, _)| *offset < from);
        shelf.messages.get(at).map(|(_, message)| message.created)
    }

    /// What lies before an offset was dropped.
    pub(crate) fn trimmed(&self, shard: u16, cut: u64) {
        let mut shelves = self.inner.shelves();
        let Some(shelf) = shelves.get_mut(usize::from(shard)) else { return };
        while shelf.messages.front().is_some_and(|(offset, _)| *offset < cut) {
            if let Some((_, message)) = shelf.messages.pop_front() {
                shelf.bytes -= size(&message);
            }
        }
        shelf.first = shelf.first.max(cut.min(shelf.next));
    }

    /// A past block, if all of it is at hand.
    pub(crate) fn past(&self, shard: u16, from: u64, upto: u64, count: usize) -> Option<Vec<Message>> {
        let shelves = self.inner.shelves();
        let shelf = shelves.get(usize::from(shard))?;
        if !shelf.assigned || shelf.first > from || upto > shelf.next {
            return None;
        }
        let start = shelf.messages.partition_point(|(offset, _)| *offset < from);
        let found = shelf.messages.range(start..).take_while(|(offset, _)| *offset < upto);
        let found: Vec<Message> = found.map(|(_, message)| message.clone()).collect();
        (found.len() == count).then_some(found)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Release);
    }
}
