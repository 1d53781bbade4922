//! Reads ahead: a thread fetches the partitions of one topic from where they are read, and buffers a bounded
//! number of messages.
//!
//! Partitions are assigned by hand, so no agreement between readers is needed. A reader that goes back, or
//! far ahead, moves the offset from which its partition is fetched.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill_engine::model::Message;
use sawmill_engine::runtime::{Env, Timestamp};
use sawmill_engine::storage::{Block, Notifier, Position, ReadRequest, Span};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::brokers::cluster::Cluster;
use crate::error::{DriverContext, code_of, explain};
use crate::log::record;

/// How long a poll waits before the thread checks whether the fetcher still exists.
const POLL: Duration = Duration::from_millis(100);
/// How long a fetch waits at the broker for messages. A new partition waits behind it for as long.
const FETCH_WAIT_MS: &str = "100";
/// How long a read with an empty buffer waits for the broker to report the end.
const EMPTY_WAIT: Duration = Duration::from_millis(250);
/// How long a read waits for messages that are known to exist, beside those it already has.
const KNOWN_MESSAGES_WAIT: Duration = Duration::from_secs(1);
/// Approximate buffer limit of a topic, and the minimum for one partition.
const MAX_TOPIC_BYTES: usize = 64 << 20;
const MIN_PARTITION_BYTES: usize = 1 << 20;
/// The most bytes of a block.
const BLOCK_BYTES: usize = 8 << 20;
/// Beyond this distance, fetching the offsets between costs more than starting anew.
const MAX_GAP: u64 = 20_000;

/// Fetches one topic until it is dropped.
pub(crate) struct Fetcher {
    inner: Arc<Inner>,
    env: Env,
}

struct Inner {
    topic: String,
    consumer: BaseConsumer<DriverContext>,
    buffers: Mutex<Vec<PartitionBuffer>>,
    /// Counts assignment moves. A message polled during a move may be from the previous offset.
    moves: AtomicU64,
    changed: watch::Sender<()>,
    /// Notified when messages arrive.
    notifier: Arc<Notifier>,
    stopped: AtomicBool,
    last_error: Mutex<Option<Code>>,
    max_bytes: usize,
}

/// The buffered messages of one partition: all from `first` up to, not including, `next`.
#[derive(Default)]
struct PartitionBuffer {
    assigned: bool,
    first: u64,
    next: u64,
    messages: VecDeque<(u64, Message)>,
    bytes: usize,
    /// The broker had no more at `next`.
    at_end: bool,
    paused: bool,
    /// The offset of the last read.
    wanted: u64,
}

fn size(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    100 + message.payload.len() + message.key.as_ref().map_or(0, |key| key.len()) + headers
}

impl PartitionBuffer {
    fn push(&mut self, offset: u64, message: Message) {
        self.bytes += size(&message);
        self.messages.push_back((offset, message));
        self.next = offset + 1;
        self.at_end = false;
    }

    /// Drops messages that were read while the buffer exceeds the limit.
    fn shrink(&mut self, max_bytes: usize) {
        while self.bytes > max_bytes && self.messages.front().is_some_and(|(offset, _)| *offset < self.wanted)
        {
            if let Some((offset, message)) = self.messages.pop_front() {
                self.bytes -= size(&message);
                self.first = offset + 1;
            }
        }
    }

    /// Returns whether this offset is buffered, or soon will be without a move.
    fn covers(&self, from: u64) -> bool {
        self.assigned && self.first <= from && from <= self.next.saturating_add(MAX_GAP)
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
    fn buffers(&self) -> MutexGuard<'_, Vec<PartitionBuffer>> {
        self.buffers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Assigns partitions at new offsets.
    fn move_to(&self, places: &[(u16, u64)]) -> KafkaResult<()> {
        let mut buffers = self.buffers();
        self.moves.fetch_add(1, Ordering::AcqRel);
        let (mut to, mut away) = (TopicPartitionList::new(), TopicPartitionList::new());
        for (partition, from) in places {
            let Some(buffer) = buffers.get_mut(usize::from(*partition)) else { continue };
            let offset = Offset::Offset(i64::try_from(*from).unwrap_or(i64::MAX));
            to.add_partition_offset(&self.topic, i32::from(*partition), offset)?;
            if buffer.assigned {
                away.add_partition(&self.topic, i32::from(*partition));
            }
            *buffer = PartitionBuffer {
                assigned: true,
                first: *from,
                next: *from,
                wanted: *from,
                ..PartitionBuffer::default()
            };
        }
        // The lock stays held, so concurrent moves do not interleave.
        if away.count() > 0 {
            self.consumer.resume(&away)?;
            self.consumer.incremental_unassign(&away)?;
        }
        self.consumer.incremental_assign(&to)
    }

    /// Fetches until the fetcher is dropped.
    fn run(&self) {
        let mut more = false;
        while !self.stopped.load(Ordering::Acquire) {
            let moves = self.moves.load(Ordering::Acquire);
            match self.consumer.poll(if more { Duration::ZERO } else { POLL }) {
                None if more => {
                    more = false;
                    self.changed.send_replace(());
                    self.notifier.notify_messages();
                }
                None => {}
                Some(Ok(message)) => {
                    self.take(&message, moves);
                    more = true;
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => self.end(partition, moves),
                Some(Err(error)) => {
                    tracing::debug!(%error, topic = %self.topic, "fetching is interrupted");
                    *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                        code_of(&error);
                    self.changed.send_replace(());
                }
            }
        }
    }

    fn take(&self, message: &BorrowedMessage<'_>, moves: u64) {
        let Some((offset, read)) = record::read(message) else { return };
        let partition = message.partition();
        let mut buffers = self.buffers();
        let Some(buffer) = usize::try_from(partition).ok().and_then(|at| buffers.get_mut(at)) else { return };
        if self.moves.load(Ordering::Acquire) != moves {
            let from = buffer.next;
            drop(buffers);
            return self.refetch(partition, from);
        }
        if offset < buffer.next {
            return;
        }
        buffer.push(offset, read);
        buffer.shrink(self.max_bytes);
        if buffer.bytes > 2 * self.max_bytes && !buffer.paused {
            let mut list = TopicPartitionList::new();
            list.add_partition(&self.topic, partition);
            buffer.paused = self.consumer.pause(&list).is_ok();
        }
    }

    fn end(&self, partition: i32, moves: u64) {
        let mut buffers = self.buffers();
        let Some(buffer) = usize::try_from(partition).ok().and_then(|at| buffers.get_mut(at)) else { return };
        if self.moves.load(Ordering::Acquire) != moves {
            // The broker reports the end only once.
            let from = buffer.next;
            drop(buffers);
            return self.refetch(partition, from);
        }
        buffer.at_end = true;
        drop(buffers);
        self.changed.send_replace(());
    }

    /// Restarts a partition at its current offset: what was polled may be from before a move.
    fn refetch(&self, partition: i32, from: u64) {
        if let Ok(partition) = u16::try_from(partition)
            && let Err(error) = self.move_to(&[(partition, from)])
        {
            tracing::debug!(%error, "fetching could not be restarted; it is tried again");
        }
    }
}

impl Fetcher {
    pub(crate) fn new(
        cluster: &Cluster,
        topic: &str,
        partitions: u16,
        notifier: Arc<Notifier>,
    ) -> Result<Self> {
        let mut config = cluster.address.config();
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", FETCH_WAIT_MS).set("fetch.error.backoff.ms", "50");
        config.set("fetch.queue.backoff.ms", "50").set("queued.max.messages.kbytes", "16384");
        config.set("fetch.message.max.bytes", "1048576");
        let consumer = config.create_with_context(DriverContext).map_err(|error| explain(&error))?;
        let inner = Arc::new(Inner {
            topic: topic.to_owned(),
            consumer,
            buffers: Mutex::new((0..partitions).map(|_| PartitionBuffer::default()).collect()),
            moves: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            notifier,
            stopped: AtomicBool::new(false),
            last_error: Mutex::new(None),
            max_bytes: (MAX_TOPIC_BYTES / usize::from(partitions.max(1))).max(MIN_PARTITION_BYTES),
        });
        let fetching = inner.clone();
        let started = std::thread::Builder::new().name("sawmill-kafka".into()).spawn(move || fetching.run());
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("no thread could be started ({error})"))
        })?;
        Ok(Self { inner, env: cluster.env.clone() })
    }

    /// Returns the driver's last error since the previous call.
    pub(crate) fn take_error(&self) -> Option<Code> {
        self.inner.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// Reads each shard from the wanted position. `known` returns the offset up to which messages certainly
    /// exist.
    pub(crate) async fn read(&self, wants: &[ReadRequest], known: impl Fn(u16) -> u64) -> Result<Vec<Block>> {
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
                let mut buffers = self.inner.buffers();
                for ((want, from), known) in wants.iter().zip(&froms).zip(&known) {
                    let Some(buffer) = buffers.get_mut(usize::from(want.shard)) else {
                        return Err(Error::new(
                            ErrorKind::Invalid,
                            format!("there is no shard {}", want.shard),
                        ));
                    };
                    if !buffer.covers(*from) {
                        // One at a time, if two requests want different offsets.
                        if !moves.iter().any(|(shard, _)| *shard == want.shard) {
                            moves.push((want.shard, *from));
                        }
                        let (span, end) = (Span::from_range(*from, *from, 0), want.after.clone());
                        blocks.push(Block { messages: Vec::new(), span, end, more: true });
                        continue;
                    }
                    let block = buffer.block(*from, want.limit);
                    buffer.shrink(self.inner.max_bytes);
                    if buffer.paused && buffer.bytes <= self.inner.max_bytes {
                        buffer.paused = false;
                        resume.push(want.shard);
                    }
                    some |= !block.messages.is_empty();
                    if block.messages.is_empty() && want.limit > 0 {
                        missing |= buffer.next < *known || buffer.next < *from;
                        unknown |= !buffer.at_end;
                    }
                    blocks.push(block);
                }
            }
            if !moves.is_empty() {
                let inner = self.inner.clone();
                let moved = self.env.blocking(move || inner.move_to(&moves)).await;
                match moved {
                    // Buffered messages do not wait for those that must be fetched.
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
                (true, true, _) => KNOWN_MESSAGES_WAIT,
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

    /// Returns when the first message from an offset on was created, if it is buffered.
    pub(crate) fn first(&self, shard: u16, from: u64) -> Option<Timestamp> {
        let buffers = self.inner.buffers();
        let buffer =
            buffers.get(usize::from(shard)).filter(|buffer| buffer.assigned && buffer.first <= from)?;
        let at = buffer.messages.partition_point(|(offset, _)| *offset < from);
        buffer.messages.get(at).map(|(_, message)| message.created)
    }

    /// Drops buffered messages before an offset, since they were trimmed.
    pub(crate) fn trimmed(&self, shard: u16, cut: u64) {
        let mut buffers = self.inner.buffers();
        let Some(buffer) = buffers.get_mut(usize::from(shard)) else { return };
        while buffer.messages.front().is_some_and(|(offset, _)| *offset < cut) {
            if let Some((_, message)) = buffer.messages.pop_front() {
                buffer.bytes -= size(&message);
            }
        }
        buffer.first = buffer.first.max(cut.min(buffer.next));
    }

    /// Returns a past block, if all of it is buffered.
    pub(crate) fn past(&self, shard: u16, from: u64, upto: u64, count: usize) -> Option<Vec<Message>> {
        let buffers = self.inner.buffers();
        let buffer = buffers.get(usize::from(shard))?;
        if !buffer.assigned || buffer.first > from || upto > buffer.next {
            return None;
        }
        let start = buffer.messages.partition_point(|(offset, _)| *offset < from);
        let found = buffer.messages.range(start..).take_while(|(offset, _)| *offset < upto);
        let found: Vec<Message> = found.map(|(_, message)| message.clone()).collect();
        (found.len() == count).then_some(found)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.inner.stopped.store(true, Ordering::Release);
    }
}
