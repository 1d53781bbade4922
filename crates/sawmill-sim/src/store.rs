//! The store that all nodes share: its contents, its observers, and what a scenario can do to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use sawmill::engine::model::{Topic, TopicName};
use sawmill::engine::storage::{Entry, EntryKey, Log, Memory, Record};
use sawmill::{Message, Result};
use tokio::sync::watch;

use crate::checker::Invariant;
use crate::control::{Control, NodeId};
use crate::entries::Entries;
use crate::faults::{FaultKind, Faults};
use crate::ledger::SimLedger;
use crate::log::SimLog;
use crate::network::{Network, Seam};
use crate::observer::{Event, Observer};
use crate::tasks::lock;
use crate::topic_messages::{Landed, LogRules, TopicMessages};
use crate::trace::digest;

/// A bug that can be planted in the engines, to check that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineBug {
    /// Positions are given when an append arrives, and reads use `position >`. A message that becomes
    /// readable after a later position was read is lost.
    CursorById,
    /// Messages are promoted by a clock that is ahead.
    PromoteEarly,
}

impl EngineBug {
    /// All bugs, each with a description and the invariant that must find it.
    pub const ALL: &[(EngineBug, &str, Invariant)] = &[
        (EngineBug::CursorById, "Positions are given before messages are readable.", Invariant::Cursor),
        (EngineBug::PromoteEarly, "Messages are promoted by a clock that is ahead.", Invariant::DueTime),
    ];
}

/// The properties of the store for a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Appending a message whose id already exists changes nothing.
    pub idempotent_append: bool,
    /// A crash of the store undoes light writes.
    pub undoes: bool,
    /// A planted bug.
    pub bug: Option<EngineBug>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { idempotent_append: true, undoes: false, bug: None }
    }
}

/// The store of a run. Clones share it; each node has its own handles.
#[derive(Clone)]
pub struct SimStore(Arc<Inside>);

pub(crate) struct Inside {
    pub(crate) control: Control,
    pub(crate) network: Arc<Network>,
    pub(crate) settings: Settings,
    /// Holds the names of topics.
    pub(crate) memory: Memory,
    /// The ledger.
    pub(crate) entries: Mutex<Entries>,
    topics: Mutex<BTreeMap<String, TopicMessages>>,
    observers: Mutex<Vec<Arc<dyn Observer>>>,
    subscribers: Mutex<Vec<Subscriber>>,
    notifications_underway: Mutex<[bool; 2]>,
}

struct Subscriber {
    node: NodeId,
    seam: Seam,
    notifier: Weak<watch::Sender<()>>,
}

impl SimStore {
    /// Creates an empty store in the world of this run.
    pub fn new(control: &Control, settings: Settings, faults: Faults) -> Self {
        Self(Arc::new(Inside {
            control: control.clone(),
            network: Arc::new(Network::new(control.clone(), faults)),
            settings,
            memory: Memory::new(),
            entries: Mutex::default(),
            topics: Mutex::default(),
            observers: Mutex::default(),
            subscribers: Mutex::default(),
            notifications_underway: Mutex::default(),
        }))
    }

    /// Returns this node's handle of the log.
    pub fn log(&self, node: NodeId) -> SimLog {
        SimLog { inside: self.0.clone(), node, notifier: self.0.subscribe(node, Seam::Log) }
    }

    /// Returns this node's handle of the ledger.
    pub fn ledger(&self, node: NodeId) -> SimLedger {
        SimLedger { inside: self.0.clone(), node, notifier: self.0.subscribe(node, Seam::Ledger) }
    }

    /// Registers an observer.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        lock(&self.0.observers).push(observer);
    }

    /// Removes all observers. An observer may hold the store, and such a cycle would never be freed.
    pub fn dismiss_observers(&self) {
        lock(&self.0.observers).clear();
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.network.set_faults(faults);
    }

    /// Takes a half of the store out of service, or brings it back. No data is lost.
    pub fn set_out(&self, seam: Seam, out: bool) {
        self.0.network.set_out(seam, out);
        self.0.control.note(NodeId::WORLD, "out", &[seam as u64, out.into()], || {
            format!("{seam:?} is {}", if out { "out" } else { "back" })
        });
    }

    /// Cuts a node off from the store, or reconnects it.
    pub fn set_cut_off(&self, node: NodeId, cut_off: bool) {
        self.0.network.set_cut_off(node, cut_off);
        self.0.control.note(node, "cut off", &[cut_off.into()], || {
            if cut_off { "cut off from the store" } else { "reaches the store again" }.to_owned()
        });
    }

    /// Crashes and restarts the store: light writes that are not durable are undone.
    pub fn crash(&self) {
        let undone = lock(&self.0.entries).crash();
        if !undone.is_empty() {
            self.0.control.strike(NodeId::WORLD, FaultKind::StoreCrash, || format!("{undone:?}"));
        }
        self.0.emit(&Event::StoreCrashed { undone: &undone });
        self.0.notify(Seam::Ledger);
    }

    /// Returns the current entries of the ledger, without network, faults, or time passing. For checkers.
    pub fn entries(&self, prefix: &EntryKey) -> Vec<Entry> {
        lock(&self.0.entries).list(prefix)
    }

    /// Returns the topic or lane with this name. For checkers.
    pub fn topic(&self, name: &TopicName) -> Option<Topic> {
        at_once(self.0.memory.topic(name)).ok().flatten()
    }

    /// Returns the readable messages of a topic, with shard and number. For checkers.
    pub fn messages(&self, topic: &Topic) -> Vec<(u16, u64, Message)> {
        lock(&self.0.topics).get(&topic.uid).map(TopicMessages::readable).unwrap_or_default()
    }

    /// Returns the topic with this name and its lanes, with their message counts. For checkers.
    pub fn contents(&self, name: &str) -> Vec<(String, usize)> {
        let topics = at_once(self.0.memory.topics()).unwrap_or_default();
        let of_it = topics.iter().filter(|topic| topic.name.base() == name);
        of_it
            .map(|topic| (topic.name.to_string(), self.messages(topic).len() + self.hidden(topic).len()))
            .collect()
    }

    /// Returns the messages of a topic that are kept aside or not yet readable. For checkers.
    pub fn hidden(&self, topic: &Topic) -> Vec<Record> {
        lock(&self.0.topics).get(&topic.uid).map(TopicMessages::hidden).unwrap_or_default()
    }
}

impl Inside {
    /// A durable write was made in the log: everything before it becomes durable.
    pub(crate) fn make_durable(&self) {
        if lock(&self.entries).make_durable() {
            self.emit(&Event::Durable);
        }
    }

    /// A durable commit was made: it and everything before it become durable.
    pub(crate) fn commit_made_durable(&self) {
        if self.settings.undoes {
            lock(&self.entries).make_durable();
            self.emit(&Event::Durable);
        }
    }

    /// Adds storage for the messages of a topic.
    pub(crate) fn add_topic(&self, topic: &Topic) {
        let rules = LogRules {
            detects_duplicates: self.settings.idempotent_append,
            numbers_on_arrival: self.settings.bug == Some(EngineBug::CursorById),
        };
        let new = || TopicMessages::new(topic.clone(), rules);
        lock(&self.topics).entry(topic.uid.clone()).or_insert_with(new);
    }

    pub(crate) fn remove_topic(&self, topic: &Topic) {
        let removed = lock(&self.topics).remove(&topic.uid);
        if removed.is_some() {
            self.emit(&Event::TopicDeleted { topic });
        }
    }

    /// Runs a closure on the messages of a topic.
    pub(crate) fn topic_messages<T>(
        &self,
        topic: &Topic,
        work: impl FnOnce(&mut TopicMessages) -> Result<T>,
    ) -> Result<T> {
        let mut topics = lock(&self.topics);
        work(topics.get_mut(&topic.uid).ok_or_else(|| topic.missing())?)
    }

    /// Lands all messages of a topic whose moment has come.
    pub(crate) fn land(self: &Arc<Self>, topic: &Topic) {
        let at = self.control.now();
        // The messages of a topic that was deleted meanwhile are gone.
        if let Ok(landed) = self.topic_messages(topic, |topic_messages| topic_messages.land(at)) {
            self.announce(topic, &landed);
        }
    }

    /// Records landed messages and notifies the nodes.
    pub(crate) fn announce(self: &Arc<Self>, topic: &Topic, landed: &[Landed]) {
        for landed in landed {
            match landed {
                Landed::Readable { shard, number, message, overtaken } => {
                    if *overtaken {
                        self.control
                            .strike(NodeId::WORLD, FaultKind::Overtaken, || format!("{}", message.id));
                    }
                    let numbers = [u64::from(*shard), *number, id_number(message)];
                    self.control.note(NodeId::WORLD, "readable", &numbers, || {
                        format!("{}/{shard} #{number} readable: {}", topic.name, message.id)
                    });
                    self.emit(&Event::Readable { topic, shard: *shard, number: *number, message });
                }
                Landed::Aside { shard, due, message } => {
                    let numbers = [u64::from(*shard), due.as_millis(), id_number(message)];
                    self.control.note(NodeId::WORLD, "aside", &numbers, || {
                        format!("{}/{shard} kept aside until {due}: {}", topic.name, message.id)
                    });
                    self.emit(&Event::KeptAside { topic, shard: *shard, due: *due, message });
                }
            }
        }
        if !landed.is_empty() {
            self.notify(Seam::Log);
        }
    }

    /// Passes an event to the observers.
    pub(crate) fn emit(&self, event: &Event<'_>) {
        let observers = lock(&self.observers).clone();
        let at = self.control.now();
        observers.iter().for_each(|observer| observer.saw(at, event));
    }

    fn subscribe(&self, node: NodeId, seam: Seam) -> Arc<watch::Sender<()>> {
        let notifier = Arc::new(watch::Sender::new(()));
        lock(&self.subscribers).push(Subscriber { node, seam, notifier: Arc::downgrade(&notifier) });
        notifier
    }

    /// Sends a notification to every node after a short time; some are lost. Notifications close together are
    /// merged.
    pub(crate) fn notify(self: &Arc<Self>, seam: Seam) {
        if std::mem::replace(&mut lock(&self.notifications_underway)[seam as usize], true) {
            return;
        }
        let inside = self.clone();
        let travel: Duration = self.network.delay(|faults| faults.latency);
        self.network.world.spawn(async move {
            inside.network.world.sleep(travel).await;
            lock(&inside.notifications_underway)[seam as usize] = false;
            inside.send_notifications(seam);
        });
    }

    fn send_notifications(&self, seam: Seam) {
        let mut receivers = Vec::new();
        lock(&self.subscribers).retain(|subscriber| {
            let Some(notifier) = subscriber.notifier.upgrade() else { return false };
            // A node that has crashed gets none.
            let alive = self.control.is_alive(subscriber.node);
            if alive && subscriber.seam == seam {
                receivers.push((subscriber.node, notifier));
            }
            alive
        });
        for (node, notifier) in receivers {
            if self.network.obstacle(node, seam).is_some()
                || self.network.hits(|faults| faults.lost_notification)
            {
                self.control.strike(node, FaultKind::LostNotification, String::new);
            } else {
                notifier.send_replace(());
            }
        }
    }
}

fn id_number(message: &Message) -> u64 {
    digest(&message.id.as_u128().to_le_bytes())
}

/// Returns the answer of the in-memory engine, which never waits.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("the in-memory engine answers without waiting")
}
