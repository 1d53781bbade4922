//! Telemetry: spans and events for logs and traces, metrics, and a stream of events in the process.
//!
//! The names on this page are part of the API. They change only with a new major version.
//!
//! # Traces and logs
//!
//! Spans and events go through [`tracing`], under the target `sawmill`. The **span**
//! [`sawmill.handle`](span::HANDLE), of level info, surrounds each run of a handler, so everything that the
//! handler logs carries its fields: `topic`, `group`, `id` (the one that the push returned), `attempt`,
//! `token`, `worker`, and at the end `outcome`: `done`, `retried`, `snoozed`, `dead`, `dropped`, `cancelled`,
//! or `untouched` if the worker was stopped and the message is left to others.
//!
//! All other steps are **events**:
//!
//! | name | level | when | fields |
//! |---|---|---|---|
//! | `sawmill.push` | debug | messages were pushed | `topic`, `id` of the first, `count` |
//! | `sawmill.claim` | debug | a block was claimed | `topic`, `group`, `worker`, `shard`, `token`, `count` |
//! | `sawmill.retry` | info | an attempt failed, and another one follows | `topic`, `group`, `id`, `worker`, `attempt`, `error`, `next_ms` |
//! | `sawmill.snooze` | debug | a handler asked for its message to come again later | `topic`, `group`, `id`, `worker`, `attempt`, `next_ms` |
//! | `sawmill.dead` | warn | a message became a dead letter | `topic`, `group`, `id`, `worker`, `reason` |
//! | `sawmill.drop` | error | a message was given up in a group that only logs that | `topic`, `group`, `id`, `attempt`, `reason` |
//! | `sawmill.give_back` | debug | the claims of a shard were given back | `topic`, `group`, `worker`, `shard` |
//! | `sawmill.join` | info | a worker joined its group | `group`, `worker` |
//! | `sawmill.leave` | info | a worker left its group | `group`, `worker` |
//! | `sawmill.evicted` | warn | a worker found itself declared dead | `group`, `worker` |
//! | `sawmill.declared_dead` | warn | a worker declared another one dead | `group`, `worker`: the dead one |
//! | `sawmill.adopt` | info | claims without a worker were taken over | `topic`, `group`, `worker`, `shard`, `claims` |
//! | `sawmill.rebalance` | info | the set of workers has changed | `group`, `worker`, `workers`: how many there are |
//! | `sawmill.promote` | debug | messages have become due | `topic`, `count` |
//! | `sawmill.trim` | debug | messages that no group needs were dropped | `topic`, `shard`, `count` |
//! | `sawmill.pause`, `sawmill.resume` | info | an operator paused or resumed a group | `topic`, `group` |
//! | `sawmill.replay` | info | an operator moved a group to another place | `topic`, `group`, `from` |
//! | `sawmill.cancel` | info | a message was cancelled | `topic`, `id` |
//! | `sawmill.stop` | warn | a handler stopped its worker | `topic`, `group`, `id`, `reason` |
//! | `sawmill.trouble` | warn | the store cannot be used: when that begins, and every minute while it lasts | `group`, `error`, `lasting_ms` |
//! | `sawmill.recovered` | info | the store can be used again | `group`, `lasted_ms` |
//!
//! # Metrics
//!
//! Metrics go through the facade [`metrics`]. Install a recorder before the first push and the first worker:
//! counters are registered then, once for each worker and topic. Without a recorder nothing is counted.
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | `sawmill_pushed_total` | counter | `topic` | messages that were pushed |
//! | `sawmill_started_total` | counter | `topic`, `group` | handlers that were started |
//! | `sawmill_finished_total` | counter | `topic`, `group`, `outcome` | what became of messages |
//! | `sawmill_adopted_total` | counter | `group` | claims taken over from workers that died or left |
//! | `sawmill_conflicts_total` | counter | `group` | commits that lost to another worker's commit |
//! | `sawmill_rebalances_total` | counter | `group` | changes of the set of workers, counted by each worker that saw one |
//! | `sawmill_commits_total` | counter | `group` | commits to the ledger that were sent |
//! | `sawmill_reads_total` | counter | `group` | reads of the log that were sent |
//! | `sawmill_handler_seconds` | histogram | `topic`, `group` | how long handlers ran |
//! | `sawmill_wait_seconds` | histogram | `topic`, `group` | time from when a message could start (pushed, or due if that is later) to its start; immediate retries are not counted |
//! | `sawmill_open_seconds` | histogram | | how long it took to open a store |
//! | `sawmill_slots` | gauge | `group` | slots of the workers of this process |
//! | `sawmill_busy` | gauge | `group` | slots that run a handler |
//!
//! The following metrics describe the store, not the process. A server of them (`sawmill serve` is one) reads
//! the store at each request.
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | `sawmill_waiting` | gauge | `topic`, `group` | messages that are due and not claimed |
//! | `sawmill_oldest_seconds` | gauge | `topic`, `group` | the age of the oldest waiting message; 0 if there is none |
//! | `sawmill_scheduled` | gauge | `topic`, `group` | messages that are not due yet |
//! | `sawmill_claimed` | gauge | `topic`, `group` | messages held by workers |
//! | `sawmill_retrying` | gauge | `topic`, `group` | messages that failed and are to be retried |
//! | `sawmill_dead` | gauge | `topic`, `group` | dead letters |
//! | `sawmill_paused` | gauge | `topic`, `group` | 1 if the group is paused |
//! | `sawmill_workers` | gauge | `topic`, `group` | workers of the group on this topic |
//!
//! The outcomes `done`, `dead`, `dropped` and `cancelled` are counted once the ledger has them. Their sums
//! over all workers are exactly the numbers of [`status`](crate::admin::Admin::status): a worker that dies or
//! loses its claim does not count messages that another one handles again. `retried` and `snoozed` count
//! attempts, when the handler ends.
//!
//! # In the process
//!
//! [`Sawmill::events`](crate::Sawmill::events) is a stream of [`Event`]s.

mod events;
#[cfg(feature = "otel")]
pub mod otel;
mod trace;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Label, Unit};
use sawmill_engine::model::{GroupName, MessageId, Topic, TopicName, WorkerId};
use sawmill_engine::storage::EntryKey;

pub(crate) use events::EventBus;
pub use events::{Event, Events};
pub(crate) use trace::{HandleSpan, PushSpan};

/// The target of all spans and events.
pub const TARGET: &str = "sawmill";

/// Names of spans.
pub mod span {
    /// Around each run of a handler.
    pub const HANDLE: &str = "sawmill.handle";
}

/// Names of events.
pub mod event {
    /// Messages were pushed.
    pub const PUSH: &str = "sawmill.push";
    /// A block was claimed.
    pub const CLAIM: &str = "sawmill.claim";
    /// An attempt failed, and another one follows.
    pub const RETRY: &str = "sawmill.retry";
    /// A handler asked for its message to come again later.
    pub const SNOOZE: &str = "sawmill.snooze";
    /// A message became a dead letter.
    pub const DEAD: &str = "sawmill.dead";
    /// A message was given up in a group that only logs that.
    pub const DROP: &str = "sawmill.drop";
    /// The claims of a shard were given back.
    pub const GIVE_BACK: &str = "sawmill.give_back";
    /// A worker joined its group.
    pub const JOIN: &str = "sawmill.join";
    /// A worker left its group.
    pub const LEAVE: &str = "sawmill.leave";
    /// A worker found itself declared dead.
    pub const EVICTED: &str = "sawmill.evicted";
    /// A worker declared another one dead.
    pub const DECLARED_DEAD: &str = "sawmill.declared_dead";
    /// Claims without a worker were taken over.
    pub const ADOPT: &str = "sawmill.adopt";
    /// The set of workers has changed.
    pub const REBALANCE: &str = "sawmill.rebalance";
    /// Messages have become due.
    pub const PROMOTE: &str = "sawmill.promote";
    /// Messages that no group needs were dropped.
    pub const TRIM: &str = "sawmill.trim";
    /// An operator paused a group.
    pub const PAUSE: &str = "sawmill.pause";
    /// An operator resumed a group.
    pub const RESUME: &str = "sawmill.resume";
    /// An operator moved a group to another place: a [replay](crate::admin::Admin::replay).
    pub const REPLAY: &str = "sawmill.replay";
    /// A message was cancelled.
    pub const CANCEL: &str = "sawmill.cancel";
    /// A handler stopped its worker.
    pub const STOP: &str = "sawmill.stop";
    /// The store cannot be used.
    pub const TROUBLE: &str = "sawmill.trouble";
    /// The store can be used again.
    pub const RECOVERED: &str = "sawmill.recovered";
}

/// Names of metrics.
pub mod metric {
    /// Messages that were pushed.
    pub const PUSHED: &str = "sawmill_pushed_total";
    /// Handlers that were started.
    pub const STARTED: &str = "sawmill_started_total";
    /// What became of messages.
    pub const FINISHED: &str = "sawmill_finished_total";
    /// Claims taken over from workers that died or left.
    pub const ADOPTED: &str = "sawmill_adopted_total";
    /// Commits that lost to another worker's commit.
    pub const CONFLICTS: &str = "sawmill_conflicts_total";
    /// Changes of the set of workers.
    pub const REBALANCES: &str = "sawmill_rebalances_total";
    /// Commits to the ledger that were sent.
    pub const COMMITS: &str = "sawmill_commits_total";
    /// Reads of the log that were sent.
    pub const READS: &str = "sawmill_reads_total";
    /// How long handlers ran.
    pub const HANDLER_SECONDS: &str = "sawmill_handler_seconds";
    /// How long messages waited for their start.
    pub const WAIT_SECONDS: &str = "sawmill_wait_seconds";
    /// How long it took to open a store.
    pub const OPEN_SECONDS: &str = "sawmill_open_seconds";
    /// Slots of the workers of this process.
    pub const SLOTS: &str = "sawmill_slots";
    /// Slots that run a handler.
    pub const BUSY: &str = "sawmill_busy";
    /// Messages that are due and not claimed.
    pub const WAITING: &str = "sawmill_waiting";
    /// The age of the oldest waiting message.
    pub const OLDEST_SECONDS: &str = "sawmill_oldest_seconds";
    /// Messages that are not due yet.
    pub const SCHEDULED: &str = "sawmill_scheduled";
    /// Messages held by workers.
    pub const CLAIMED: &str = "sawmill_claimed";
    /// Messages that failed and are to be retried.
    pub const RETRYING: &str = "sawmill_retrying";
    /// Dead letters.
    pub const DEAD: &str = "sawmill_dead";
    /// True if a group is paused.
    pub const PAUSED: &str = "sawmill_paused";
    /// Workers of a group on a topic.
    pub const WORKERS: &str = "sawmill_workers";
}

/// Values of the field and the label `outcome`.
pub mod outcome {
    /// The message is done.
    pub const DONE: &str = "done";
    /// The attempt failed, and the message is retried.
    pub const RETRIED: &str = "retried";
    /// The handler asked for the message to come again later.
    pub const SNOOZED: &str = "snoozed";
    /// The message became a dead letter.
    pub const DEAD: &str = "dead";
    /// The message was given up, in a group that only logs that.
    pub const DROPPED: &str = "dropped";
    /// The message was cancelled.
    pub const CANCELLED: &str = "cancelled";
    /// The worker was stopped, and the message is left to others. Not counted, because the message has no
    /// outcome yet.
    pub const UNTOUCHED: &str = "untouched";
}

/// Describes each metric to the recorder. Each worker calls this when it starts.
pub(crate) fn describe() {
    use metric::*;
    for (name, what) in [
        (PUSHED, "Messages that were pushed."),
        (STARTED, "Handlers that were started."),
        (FINISHED, "What became of messages: done, retried, snoozed, dead, dropped, cancelled."),
        (ADOPTED, "Claims taken over from workers that died or left."),
        (CONFLICTS, "Commits that lost against another worker's."),
        (REBALANCES, "Changes of the set of workers, as each worker saw them."),
        (COMMITS, "Commits to the ledger that were sent."),
        (READS, "Reads of the log that were sent."),
    ] {
        metrics::describe_counter!(name, Unit::Count, what);
    }
    metrics::describe_histogram!(HANDLER_SECONDS, Unit::Seconds, "How long handlers ran.");
    metrics::describe_histogram!(
        WAIT_SECONDS,
        Unit::Seconds,
        "From when a message could start to its start."
    );
    metrics::describe_histogram!(OPEN_SECONDS, Unit::Seconds, "How long it took to open a store.");
    metrics::describe_gauge!(SLOTS, Unit::Count, "Slots of the workers of this process.");
    metrics::describe_gauge!(BUSY, Unit::Count, "Slots that run a handler.");
}

/// The metrics of a worker for one of its topics.
pub(crate) struct TopicMeters {
    pub(crate) started: Counter,
    pub(crate) done: Counter,
    pub(crate) retried: Counter,
    pub(crate) snoozed: Counter,
    pub(crate) dead: Counter,
    pub(crate) dropped: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) handler_seconds: Histogram,
    pub(crate) wait_seconds: Histogram,
}

impl TopicMeters {
    pub(crate) fn new(topic: &TopicName, group: &GroupName) -> Self {
        let labels =
            vec![Label::new("topic", topic.base().to_owned()), Label::new("group", group.to_string())];
        let finished = |outcome: &'static str| {
            let mut labels = labels.clone();
            labels.push(Label::new("outcome", outcome));
            metrics::counter!(metric::FINISHED, labels)
        };
        Self {
            started: metrics::counter!(metric::STARTED, labels.clone()),
            done: finished(outcome::DONE),
            retried: finished(outcome::RETRIED),
            snoozed: finished(outcome::SNOOZED),
            dead: finished(outcome::DEAD),
            dropped: finished(outcome::DROPPED),
            cancelled: finished(outcome::CANCELLED),
            handler_seconds: metrics::histogram!(metric::HANDLER_SECONDS, labels.clone()),
            wait_seconds: metrics::histogram!(metric::WAIT_SECONDS, labels.clone()),
        }
    }
}

/// The metrics of a worker for all its topics together.
pub(crate) struct GroupMeters {
    pub(crate) adopted: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) rebalances: Counter,
    pub(crate) commits: Counter,
    pub(crate) reads: Counter,
    pub(crate) slots: Gauge,
    pub(crate) busy: Gauge,
}

impl GroupMeters {
    pub(crate) fn new(group: &GroupName) -> Self {
        let labels = || vec![Label::new("group", group.to_string())];
        let meters = Self {
            adopted: metrics::counter!(metric::ADOPTED, labels()),
            conflicts: metrics::counter!(metric::CONFLICTS, labels()),
            rebalances: metrics::counter!(metric::REBALANCES, labels()),
            commits: metrics::counter!(metric::COMMITS, labels()),
            reads: metrics::counter!(metric::READS, labels()),
            slots: metrics::gauge!(metric::SLOTS, labels()),
            busy: metrics::gauge!(metric::BUSY, labels()),
        };
        // So that both are there from the start, though nothing has changed yet.
        meters.slots.increment(0.0);
        meters.busy.increment(0.0);
        meters
    }
}

/// Records how long it took to open a store.
pub(crate) fn opened(took: std::time::Duration) {
    metrics::histogram!(metric::OPEN_SECONDS).record(took.as_secs_f64());
}

/// The events and counters of an open store.
#[derive(Default)]
pub(crate) struct StoreTelemetry {
    pub(crate) events: Arc<EventBus>,
    pushed: Mutex<BTreeMap<String, Counter>>,
}

impl StoreTelemetry {
    /// Records that messages with these ids are in the log.
    pub(crate) fn pushed(&self, topic: &TopicName, ids: &[MessageId]) {
        let (Some(id), count) = (ids.first(), ids.len()) else { return };
        {
            let mut pushed = self.pushed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            match pushed.get(topic.base()) {
                Some(counter) => counter.increment(count as u64),
                None => {
                    let name = topic.base().to_owned();
                    let counter = metrics::counter!(metric::PUSHED, "topic" => name.clone());
                    counter.increment(count as u64);
                    pushed.insert(name, counter);
                }
            }
        }
        tracing::debug!(name: event::PUSH, target: TARGET, %topic, %id, count, "pushed");
        self.events.publish(|| Event::Pushed { topic: topic.clone(), id: *id, count });
    }
}

/// Records that a member's entry was removed because the member was silent for a full TTL.
pub(crate) fn declared_dead(events: &EventBus, member: &EntryKey) {
    let (group, worker) = (member.group_of_member().unwrap_or_default(), member.last());
    tracing::warn!(name: event::DECLARED_DEAD, target: TARGET, %group, %worker, "a worker was silent for a full TTL and is declared dead; others take over what it held");
    events.publish(|| {
        let group = member.group_of_member()?.parse().ok()?;
        Some(Event::DeclaredDead { group, worker: WorkerId::new(member.last()) })
    });
}

/// Records that messages of a topic have become due.
pub(crate) fn promoted(topic: &Topic, count: usize) {
    if count > 0 {
        tracing::debug!(name: event::PROMOTE, target: TARGET, topic = %topic.name, count, "due");
    }
}

/// Records that messages were dropped that no group needs.
pub(crate) fn trimmed(topic: &Topic, shard: usize, count: u64) {
    if count > 0 {
        tracing::debug!(name: event::TRIM, target: TARGET, topic = %topic.name, shard, count, "trimmed");
    }
}
