//! The simulated log: messages that can be late, doubled or held back, reached over the simulated network.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::clock::Timestamp;
use sawmill::engine::Capabilities;
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Error, ErrorKind, Message, MessageId, Result};
use tokio::sync::watch;

use crate::control::NodeId;
use crate::faults::FaultKind;
use crate::ledger::unavailable;
use crate::network::{Call, CallKind, Fate, Outcome, Passage, Seam};
use crate::observer::Event;
use crate::shelf::Arrival;
use crate::store::{EngineBug, Inside, at_once};

/// How far ahead the clock of [`EngineBug::PromoteEarly`] is.
const PROMOTED_EARLY_BY: Duration = Duration::from_secs(2);

/// The log of a [`SimStore`](crate::SimStore), as one node reaches it.
pub struct SimLog {
    pub(crate) inside: Arc<Inside>,
    pub(crate) node: NodeId,
    pub(crate) bell: Arc<watch::Sender<()>>,
}

impl SimLog {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        kind: CallKind,
        effect: impl FnOnce(&Arc<Inside>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inside = self.inside.clone();
        let call = Call { node: self.node, seam: Seam::Log, name, kind };
        self.inside.network.call(call, move |_| async move { effect(&inside) }).await.told(name)
    }
}

#[async_trait]
impl Log for SimLog {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_payload_bytes: 1 << 20,
            idempotent_append: self.inside.settings.idempotent_append,
            exactly_once: false,
            idle_poll: Duration::from_secs(1),
        }
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        let spec = spec.clone();
        let effect = move |inside: &Arc<Inside>| {
            let topic = at_once(inside.memory.create_topic(&spec))?;
            inside.add_shelf(&topic);
            Ok(topic)
        };
        self.call("create_topic", CallKind::Write, effect).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        let name = name.clone();
        self.call("topic", CallKind::Read, move |inside| at_once(inside.memory.topic(&name))).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.call("topics", CallKind::Read, |inside| at_once(inside.memory.topics())).await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let topic = topic.clone();
        let effect = move |inside: &Arc<Inside>| {
            inside.remove_shelf(&topic);
            at_once(inside.memory.delete_topic(&topic))
        };
        self.call("delete_topic", CallKind::Write, effect).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let (inside, topic, node) = (self.inside.clone(), topic.clone(), self.node);
        let call = Call { node, seam: Seam::Log, name: "append", kind: CallKind::Append };
        let effect = move |passage| async move { inside.append(node, &topic, now, records, passage).await };
        self.inside.network.call(call, effect).await.told("append")
    }

    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        let (topic, wants) = (topic.clone(), self.inside.cut_short(self.node, wants));
        let effect = move |inside: &Arc<Inside>| {
            inside.shelf(&topic, |shelf| {
                let mut blocks = shelf.read(&wants)?;
                // One that was left out has more, as far as its reader knows.
                wants.iter().zip(&mut blocks).for_each(|(want, block)| block.more |= want.limit == 0);
                Ok(blocks)
            })
        };
        self.call("read", CallKind::Read, effect).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (topic, span) = (topic.clone(), span.clone());
        let effect = move |inside: &Arc<Inside>| inside.shelf(&topic, |shelf| shelf.reread(shard, &span));
        self.call("reread", CallKind::Read, effect).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let topic = topic.clone();
        let early = self.inside.settings.bug == Some(EngineBug::PromoteEarly);
        let now = if early { now + PROMOTED_EARLY_BY } else { now };
        let effect = move |inside: &Arc<Inside>| {
            let doubles =
                || !inside.settings.idempotent_append && inside.network.hits(|of| of.doubled_promotion);
            let (promoted, landed) = inside.shelf(&topic, |shelf| shelf.promote(now, limit, doubles))?;
            for _ in promoted.moved..landed.len() {
                inside.control.strike(NodeId::WORLD, FaultKind::DoubledPromotion, String::new);
            }
            inside.announce(&topic, &landed);
            if promoted.moved > 0 {
                inside.lasts();
            }
            Ok(promoted)
        };
        self.call("promote", CallKind::Write, effect).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
        let topic = topic.clone();
        let effect = move |inside: &Arc<Inside>| inside.shelf(&topic, |shelf| Ok(shelf.find(id)));
        self.call("find", CallKind::Read, effect).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let topic = topic.clone();
        let effect = move |inside: &Arc<Inside>| inside.shelf(&topic, |shelf| Ok(shelf.positions(since)));
        self.call("positions", CallKind::Read, effect).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let (topic, after) = (topic.clone(), after.to_vec());
        let effect = move |inside: &Arc<Inside>| inside.shelf(&topic, |shelf| shelf.backlog(&after));
        self.call("backlog", CallKind::Read, effect).await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        let (topic, upto) = (topic.clone(), upto.to_vec());
        let effect = move |inside: &Arc<Inside>| {
            let mut counts = Vec::with_capacity(upto.len());
            for (shard, upto) in (0..).zip(&upto) {
                let late = inside.network.hits(|faults| faults.late_trim);
                let most = if late { inside.network.below(3) as usize } else { usize::MAX };
                let dropped = inside.shelf(&topic, |shelf| shelf.trim(shard, upto, before, most))?;
                if late && dropped.len() == most {
                    inside.control.strike(NodeId::WORLD, FaultKind::LateTrim, String::new);
                }
                for (number, message) in &dropped {
                    inside.tell(&Event::Trimmed { topic: &topic, shard, number: *number, message });
                }
                counts.push(dropped.len() as u64);
            }
            inside.lasts();
            Ok(counts)
        };
        self.call("trim", CallKind::Write, effect).await
    }

    fn news(&self, _topic: &Topic) -> Hints {
        Hints::new(self.bell.subscribe())
    }
}

impl<T> Outcome<Result<T>> {
    fn told(self, name: &str) -> Result<T> {
        match self {
            Outcome::Answer(answer) => answer,
            Outcome::Unavailable => Err(unavailable()),
            Outcome::Unknown => Err(Error::new(
                ErrorKind::Unknown,
                format!("the simulated store did not answer {name}; it may have taken effect"),
            )),
        }
    }
}

impl Inside {
    /// A read may answer less than it was asked for, or nothing of a shard.
    fn cut_short(&self, node: NodeId, wants: &[Want]) -> Vec<Want> {
        let mut wants = wants.to_vec();
        for want in &mut wants {
            if self.network.hits(|faults| faults.short_read) {
                want.limit = want.limit.min(self.network.below(2) as usize);
                self.control.strike(node, FaultKind::ShortRead, || format!("shard {}", want.shard));
            }
        }
        wants
    }

    /// An append reaches the store. It is done when it may be acknowledged.
    async fn append(
        self: &Arc<Self>,
        node: NodeId,
        topic: &Topic,
        now: Timestamp,
        mut records: Vec<Record>,
        passage: Passage,
    ) -> Result<()> {
        let (here, at) = (&self.network, self.control.now());
        let answered = passage.fate == Fate::Answered;
        if passage.fate == Fate::UnknownPartial {
            self.leave_some_out(node, &mut records);
        }
        let doubled = here.hits(|faults| if answered { faults.doubled } else { faults.doubled_unknown });
        if doubled && !self.settings.idempotent_append && !records.is_empty() {
            self.control.strike(node, FaultKind::DoubledAppend, || format!("{} messages", records.len()));
            records.extend_from_within(..);
        }
        let late = here.hits(|faults| faults.late_visible);
        let held = !late && here.hits(|faults| faults.held_back);
        let lands = if late || held { at + here.delay(|faults| faults.visible_by) } else { at };
        // Acknowledged is said as early as it could be: when this is done, not when the answer has arrived.
        let acknowledged = (answered && !held).then_some(at);
        let arrival = Arrival { records, now, sent: passage.sent, lands, acknowledged };
        let moments = self.shelf(topic, |shelf| shelf.arrive(arrival))?;
        self.lasts();
        match (late && answered, held) {
            (true, _) => self.control.strike(node, FaultKind::LateVisibility, String::new),
            (_, true) => self.control.strike(node, FaultKind::HeldBack, String::new),
            _ => {}
        }
        self.land(topic);
        let last = moments.last().copied().unwrap_or(at);
        self.land_later(topic, moments.into_iter().filter(|moment| *moment > at).collect());
        if held {
            // The task that lets it land wakes at the same moment, before or after: so land here too.
            here.world.sleep(last.saturating_sub(at)).await;
            self.land(topic);
        }
        Ok(())
    }

    fn land_later(self: &Arc<Self>, topic: &Topic, moments: BTreeSet<Duration>) {
        if moments.is_empty() {
            return;
        }
        let (inside, topic) = (self.clone(), topic.clone());
        self.network.world.spawn(async move {
            for moment in moments {
                inside.network.world.sleep(moment.saturating_sub(inside.control.now())).await;
                inside.land(&topic);
            }
        });
    }

    /// Keeps the first messages of each shard, how many is for the dice: order holds within a shard only.
    fn leave_some_out(&self, node: NodeId, records: &mut Vec<Record>) {
        let all = records.len();
        let mut closed = BTreeSet::new();
        records.retain(|record| {
            if self.network.below(3) == 0 {
                closed.insert(record.shard);
            }
            !closed.contains(&record.shard)
        });
        let left = records.len();
        match left {
            0 => self.control.strike(node, FaultKind::UnknownLost, || "on append".to_owned()),
            _ if left == all => {
                self.control.strike(node, FaultKind::UnknownApplied, || "on append".to_owned())
            }
            _ => self.control.strike(node, FaultKind::UnknownPartial, || format!("{left} of {all} appended")),
        }
    }
}
