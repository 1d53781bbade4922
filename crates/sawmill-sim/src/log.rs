//! The simulated log: messages can be late, duplicated or delayed, behind the simulated network.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::model::{Topic, TopicName};
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest, Record,
    Span,
};
use sawmill::{Error, ErrorKind, Message, MessageId, Result, Timestamp, TopicSpec};
use tokio::sync::watch;

use crate::control::NodeId;
use crate::faults::FaultKind;
use crate::ledger::unavailable;
use crate::network::{Call, CallFate, CallInfo, CallKind, Outcome, Seam};
use crate::observer::Event;
use crate::store::{EngineBug, Inside, at_once};
use crate::topic_messages::Arrival;

/// How far the clock of [`EngineBug::PromoteEarly`] is ahead.
const PROMOTED_EARLY_BY: Duration = Duration::from_secs(2);

/// The log of a [`SimStore`](crate::SimStore) for one node.
pub struct SimLog {
    pub(crate) inside: Arc<Inside>,
    pub(crate) node: NodeId,
    pub(crate) notifier: Arc<watch::Sender<()>>,
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
        self.inside.network.call(call, move |_| async move { effect(&inside) }).await.into_result(name)
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
            inside.add_topic(&topic);
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
            inside.remove_topic(&topic);
            at_once(inside.memory.delete_topic(&topic))
        };
        self.call("delete_topic", CallKind::Write, effect).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let (inside, topic, node) = (self.inside.clone(), topic.clone(), self.node);
        let call = Call { node, seam: Seam::Log, name: "append", kind: CallKind::Append };
        let effect = move |info| async move { inside.append(node, &topic, now, records, info).await };
        self.inside.network.call(call, effect).await.into_result("append")
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let (topic, wants) = (topic.clone(), self.inside.cut_short(self.node, wants));
        let effect = move |inside: &Arc<Inside>| {
            inside.topic_messages(&topic, |topic_messages| {
                let mut blocks = topic_messages.read(&wants)?;
                // A shard that was left out reports more messages, because its reader cannot know.
                wants.iter().zip(&mut blocks).for_each(|(want, block)| block.more |= want.limit == 0);
                Ok(blocks)
            })
        };
        self.call("read", CallKind::Read, effect).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (topic, span) = (topic.clone(), span.clone());
        let effect = move |inside: &Arc<Inside>| {
            inside.topic_messages(&topic, |topic_messages| topic_messages.reread(shard, &span))
        };
        self.call("reread", CallKind::Read, effect).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let topic = topic.clone();
        let early = self.inside.settings.bug == Some(EngineBug::PromoteEarly);
        let now = if early { now + PROMOTED_EARLY_BY } else { now };
        let effect = move |inside: &Arc<Inside>| {
            let doubles =
                || !inside.settings.idempotent_append && inside.network.hits(|of| of.doubled_promotion);
            let (promoted, landed) = inside
                .topic_messages(&topic, |topic_messages| topic_messages.promote(now, limit, doubles))?;
            for _ in promoted.moved..landed.len() {
                inside.control.strike(NodeId::WORLD, FaultKind::DoubledPromotion, String::new);
            }
            inside.announce(&topic, &landed);
            if promoted.moved > 0 {
                inside.make_durable();
            }
            Ok(promoted)
        };
        self.call("promote", CallKind::Write, effect).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let topic = topic.clone();
        let effect = move |inside: &Arc<Inside>| {
            inside.topic_messages(&topic, |topic_messages| Ok(topic_messages.find(id)))
        };
        self.call("find", CallKind::Read, effect).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let topic = topic.clone();
        let effect = move |inside: &Arc<Inside>| {
            inside.topic_messages(&topic, |topic_messages| Ok(topic_messages.positions(since)))
        };
        self.call("positions", CallKind::Read, effect).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let (topic, after) = (topic.clone(), after.to_vec());
        let effect = move |inside: &Arc<Inside>| {
            inside.topic_messages(&topic, |topic_messages| topic_messages.backlog(&after))
        };
        self.call("backlog", CallKind::Read, effect).await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        let (topic, upto) = (topic.clone(), upto.to_vec());
        let effect = move |inside: &Arc<Inside>| {
            let mut counts = Vec::with_capacity(upto.len());
            for (shard, upto) in (0..).zip(&upto) {
                let late = inside.network.hits(|faults| faults.late_trim);
                let most = if late { inside.network.below(3) as usize } else { usize::MAX };
                let dropped = inside.topic_messages(&topic, |topic_messages| {
                    topic_messages.trim(shard, upto, before, most)
                })?;
                if late && dropped.len() == most {
                    inside.control.strike(NodeId::WORLD, FaultKind::LateTrim, String::new);
                }
                for (number, message) in &dropped {
                    inside.emit(&Event::Trimmed { topic: &topic, shard, number: *number, message });
                }
                counts.push(dropped.len() as u64);
            }
            inside.make_durable();
            Ok(counts)
        };
        self.call("trim", CallKind::Write, effect).await
    }

    fn message_notifications(&self, _topic: &Topic) -> Notifications {
        Notifications::new(self.notifier.subscribe())
    }
}

impl<T> Outcome<Result<T>> {
    fn into_result(self, name: &str) -> Result<T> {
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
    /// Shortens some reads, possibly to nothing of a shard.
    fn cut_short(&self, node: NodeId, wants: &[ReadRequest]) -> Vec<ReadRequest> {
        let mut wants = wants.to_vec();
        for want in &mut wants {
            if self.network.hits(|faults| faults.short_read) {
                want.limit = want.limit.min(self.network.below(2) as usize);
                self.control.strike(node, FaultKind::ShortRead, || format!("shard {}", want.shard));
            }
        }
        wants
    }

    /// Applies an append. Returns when it may be acknowledged.
    async fn append(
        self: &Arc<Self>,
        node: NodeId,
        topic: &Topic,
        now: Timestamp,
        mut records: Vec<Record>,
        info: CallInfo,
    ) -> Result<()> {
        let (network, at) = (&self.network, self.control.now());
        let answered = info.fate == CallFate::Answered;
        if info.fate == CallFate::UnknownPartial {
            self.leave_some_out(node, &mut records);
        }
        let doubled = network.hits(|faults| if answered { faults.doubled } else { faults.doubled_unknown });
        if doubled && !self.settings.idempotent_append && !records.is_empty() {
            self.control.strike(node, FaultKind::DoubledAppend, || format!("{} messages", records.len()));
            records.extend_from_within(..);
        }
        let late = network.hits(|faults| faults.late_visible);
        let held = !late && network.hits(|faults| faults.held_back);
        let lands = if late || held { at + network.delay(|faults| faults.visible_by) } else { at };
        // The earliest possible acknowledgement counts: the end of the effect, not the arrival of the answer.
        let acknowledged = (answered && !held).then_some(at);
        let arrival = Arrival { records, now, sent: info.sent, lands, acknowledged };
        let moments = self.topic_messages(topic, |topic_messages| topic_messages.arrive(arrival))?;
        self.make_durable();
        match (late && answered, held) {
            (true, _) => self.control.strike(node, FaultKind::LateVisibility, String::new),
            (_, true) => self.control.strike(node, FaultKind::HeldBack, String::new),
            _ => {}
        }
        self.land(topic);
        let last = moments.last().copied().unwrap_or(at);
        self.land_later(topic, moments.into_iter().filter(|moment| *moment > at).collect());
        if held {
            // The task that lands these messages wakes at the same moment, before or after this one, so they
            // are landed here too.
            network.world.sleep(last.saturating_sub(at)).await;
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

    /// Keeps a random number of the first messages of each shard, because order holds only within a shard.
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
