//! The messages of one topic, and when each becomes readable.
//!
//! Messages of an append are first in flight, and each lands at its own moment. Numbers are given on landing,
//! so that a message never gets a lower number than one that was already read. An append that was
//! acknowledged before another was sent lands before it. Overlapping appends may overtake each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Backlog, Block, FoundMessage, Position, Promoted, ReadRequest, Record, Span};
use sawmill::{Message, MessageId, Result, Timestamp};

pub(crate) struct TopicMessages {
    pub(crate) topic: Topic,
    shards: Vec<Shard>,
    aside: BTreeMap<(Timestamp, u64), Record>,
    in_flight: BTreeMap<(Duration, u64), InFlight>,
    ids: BTreeSet<u128>,
    /// Counts arrivals. Orders messages that land at the same moment, or are due at the same time.
    arrived: u64,
    rules: LogRules,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRules {
    /// A message whose id already exists is not added again.
    pub(crate) detects_duplicates: bool,
    /// Planted bug: the number is given on arrival, though the message lands later.
    pub(crate) numbers_on_arrival: bool,
}

#[derive(Default)]
struct Shard {
    last: u64,
    /// The latest arrival among the landed messages.
    latest_landed: u64,
    messages: BTreeMap<u64, Message>,
}

struct InFlight {
    record: Record,
    /// The pusher's time, which decides whether it is due.
    now: Timestamp,
    /// When its append was acknowledged, if that was before landing.
    acknowledged: Option<Duration>,
    number: Option<u64>,
}

/// An append that has reached the store.
pub(crate) struct Arrival {
    pub(crate) records: Vec<Record>,
    /// The pusher's time.
    pub(crate) now: Timestamp,
    /// When the call was sent.
    pub(crate) sent: Duration,
    /// When its messages become readable, unless earlier ones take longer.
    pub(crate) lands: Duration,
    /// When it is acknowledged, if that is before it lands.
    pub(crate) acknowledged: Option<Duration>,
}

/// A message that landed.
pub(crate) enum Landed {
    Readable { shard: u16, number: u64, message: Message, overtaken: bool },
    Aside { shard: u16, due: Timestamp, message: Message },
}

impl TopicMessages {
    pub(crate) fn new(topic: Topic, rules: LogRules) -> Self {
        Self {
            shards: (0..topic.shards).map(|_| Shard::default()).collect(),
            topic,
            aside: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            ids: BTreeSet::new(),
            arrived: 0,
            rules,
        }
    }

    /// Takes an append, and returns the moments at which its messages land.
    pub(crate) fn arrive(&mut self, arrival: Arrival) -> Result<BTreeSet<Duration>> {
        for record in &arrival.records {
            self.shard(record.shard)?;
        }
        let mut moments = BTreeSet::new();
        let before: Vec<(u16, Duration)> = self
            .in_flight
            .iter()
            .filter(|(_, other)| other.acknowledged.is_some_and(|at| at <= arrival.sent))
            .map(|((lands, _), other)| (other.record.shard, *lands))
            .collect();
        for record in arrival.records {
            let others = before.iter().filter(|(shard, _)| *shard == record.shard).map(|(_, lands)| *lands);
            let lands = others.fold(arrival.lands, Duration::max);
            let on_arrival = self.rules.numbers_on_arrival;
            let number = on_arrival.then(|| self.shard(record.shard).map(Shard::next_number)).transpose()?;
            let (now, acknowledged) = (arrival.now, arrival.acknowledged);
            self.arrived += 1;
            self.in_flight.insert((lands, self.arrived), InFlight { record, now, acknowledged, number });
            moments.insert(lands);
        }
        Ok(moments)
    }

    /// Lands all messages whose moment has come.
    pub(crate) fn land(&mut self, at: Duration) -> Result<Vec<Landed>> {
        let mut landed = Vec::new();
        while let Some(first) = self.in_flight.first_entry()
            && first.key().0 <= at
        {
            let arrived = first.key().1;
            let InFlight { record, now, number, .. } = first.remove();
            if record.repeatable
                && self.rules.detects_duplicates
                && !self.ids.insert(record.message.id.as_u128())
            {
                continue;
            }
            match record.message.due {
                Some(due) if due > now => {
                    let (shard, message) = (record.shard, record.message.clone());
                    landed.push(Landed::Aside { shard, due, message });
                    self.aside.insert((due, arrived), record);
                }
                _ => {
                    let shard = self.shard(record.shard)?;
                    let overtaken = arrived < shard.latest_landed;
                    shard.latest_landed = shard.latest_landed.max(arrived);
                    landed.push(shard.put(record, number, overtaken));
                }
            }
        }
        Ok(landed)
    }

    pub(crate) fn read(&mut self, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let block = |want: &ReadRequest| {
            let shard = self.shard(want.shard)?;
            let after = want.after.number()?;
            let found = shard.messages.range(after + 1..).take(want.limit);
            let (numbers, messages): (Vec<u64>, Vec<Message>) = found.map(|(n, m)| (*n, m.clone())).unzip();
            let end = numbers.last().copied().unwrap_or(after);
            let span = Span::from_range(after, end, messages.len());
            let more = shard.messages.range(end + 1..).next().is_some();
            Ok(Block { messages, span, end: Position::from_number(end), more })
        };
        wants.iter().map(block).collect()
    }

    pub(crate) fn reread(&mut self, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (after, upto, count) = span.range()?;
        let messages = &self.shard(shard)?.messages;
        let found: Vec<Message> = messages.range(after + 1..=upto).map(|(_, m)| m.clone()).collect();
        if found.len() == count { Ok(found) } else { Err(self.topic.gone(count, found.len())) }
    }

    /// Makes due messages readable. Adds a message twice if `doubles` returns true.
    pub(crate) fn promote(
        &mut self,
        now: Timestamp,
        limit: usize,
        doubles: impl Fn() -> bool,
    ) -> Result<(Promoted, Vec<Landed>)> {
        let (mut landed, mut moved) = (Vec::new(), 0);
        while moved < limit
            && let Some(first) = self.aside.first_entry()
            && first.key().0 <= now
        {
            let record = first.remove();
            moved += 1;
            if doubles() {
                landed.push(self.shard(record.shard)?.put(record.clone(), None, false));
            }
            landed.push(self.shard(record.shard)?.put(record, None, false));
        }
        let next_due = self.aside.keys().next().map(|(due, _)| *due);
        Ok((Promoted { moved, next_due }, landed))
    }

    pub(crate) fn find(&self, id: MessageId) -> Option<FoundMessage> {
        let aside = self.aside.values().find(|record| record.message.id == id);
        if let Some(Record { shard, message, .. }) = aside {
            return Some(FoundMessage { shard: *shard, message: message.clone(), before: None });
        }
        (0..).zip(&self.shards).find_map(|(shard, messages)| {
            let (at, message) = messages.messages.iter().find(|(_, message)| message.id == id)?;
            let before = Some(Position::from_number(at - 1));
            Some(FoundMessage { shard, message: message.clone(), before })
        })
    }

    pub(crate) fn positions(&self, since: Timestamp) -> Vec<Position> {
        let before = |shard: &Shard| {
            let first = shard.messages.iter().find(|(_, message)| message.created >= since);
            Position::from_number(first.map_or(shard.last, |(number, _)| number - 1))
        };
        self.shards.iter().map(before).collect()
    }

    pub(crate) fn backlog(&mut self, after: &[(u16, Position)]) -> Result<Backlog> {
        let mut backlog = Backlog { aside: self.aside.len() as u64, ..Backlog::default() };
        for (shard, position) in after {
            let waiting = self.shard(*shard)?.messages.range(position.number()? + 1..);
            let oldest = waiting.clone().next().map(|(_, message)| message.created);
            backlog.ready.push(waiting.count() as u64);
            backlog.oldest = [backlog.oldest, oldest].into_iter().flatten().min();
        }
        Ok(backlog)
    }

    /// Drops messages that are not needed any more, and returns them.
    pub(crate) fn trim(
        &mut self,
        shard: u16,
        upto: &[Position],
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<(u64, Message)>> {
        let upto = Position::least_number(upto)?;
        let messages = &mut self.shard(shard)?.messages;
        let old = messages.range(..=upto).filter(|(_, message)| message.created < before);
        let numbers: Vec<u64> = old.map(|(number, _)| *number).take(most).collect();
        let dropped: Vec<(u64, Message)> =
            numbers.iter().filter_map(|number| messages.remove_entry(number)).collect();
        for (_, message) in &dropped {
            self.ids.remove(&message.id.as_u128());
        }
        Ok(dropped)
    }

    /// Returns all readable messages with shard and number.
    pub(crate) fn readable(&self) -> Vec<(u16, u64, Message)> {
        let of = |(shard, messages): (usize, &Shard)| {
            let all = messages.messages.iter();
            all.map(|(number, message)| (shard as u16, *number, message.clone())).collect::<Vec<_>>()
        };
        self.shards.iter().enumerate().flat_map(of).collect()
    }

    /// Returns all messages that are not readable yet: kept aside, or in flight.
    pub(crate) fn hidden(&self) -> Vec<Record> {
        let in_flight = self.in_flight.values().map(|in_flight| &in_flight.record);
        self.aside.values().chain(in_flight).cloned().collect()
    }

    fn shard(&mut self, shard: u16) -> Result<&mut Shard> {
        self.shards.get_mut(usize::from(shard)).ok_or_else(|| self.topic.no_shard(shard))
    }
}

impl Shard {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn put(&mut self, record: Record, number: Option<u64>, overtaken: bool) -> Landed {
        let number = number.unwrap_or_else(|| self.next_number());
        self.messages.insert(number, record.message.clone());
        Landed::Readable { shard: record.shard, number, message: record.message, overtaken }
    }
}
