//! The store that all nodes share: what it holds, who watches it, and what a scenario can do to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use sawmill::ledger::{Entry, EntryKey};
use sawmill::log::{Log, Record};
use sawmill::memory::Memory;
use sawmill::topic::{Topic, TopicName};
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
use crate::shelf::{Landed, Rules, Shelf};
use crate::tasks::lock;
use crate::trace::digest;

/// A bug that can be planted in the engines, to see that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineBug {
    /// Positions are given out when an append arrives, and reads go by `position >`: what becomes readable after a later
    /// position was read is lost.
    CursorById,
    /// Messages are promoted by a clock that is ahead.
    PromoteEarly,
}

impl EngineBug {
    /// All of them, each with what is wrong and the invariant that must find it.
    pub const ALL: &[(EngineBug, &str, Invariant)] = &[
        (EngineBug::CursorById, "Positions are given before messages are readable.", Invariant::Cursor),
        (EngineBug::PromoteEarly, "Messages are promoted by a clock that is ahead.", Invariant::DueTime),
    ];
}

/// What the store is like, for a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Appending a message whose id is there already changes nothing.
    pub idempotent_append: bool,
    /// A crash of the store undoes what was written lightly.
    pub undoes: bool,
    /// A planted bug.
    pub bug: Option<EngineBug>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { idempotent_append: true, undoes: false, bug: None }
    }
}

/// The one store of a run. Clones are the same store; each node reaches it through handles of its own.
#[derive(Clone)]
pub struct SimStore(Arc<Inside>);

pub(crate) struct Inside {
    pub(crate) control: Control,
    pub(crate) network: Arc<Network>,
    pub(crate) settings: Settings,
    /// The names of topics.
    pub(crate) memory: Memory,
    /// The ledger.
    pub(crate) entries: Mutex<Entries>,
    shelves: Mutex<BTreeMap<String, Shelf>>,
    observers: Mutex<Vec<Arc<dyn Observer>>>,
    listeners: Mutex<Vec<Listener>>,
    hints_underway: Mutex<[bool; 2]>,
}

struct Listener {
    node: NodeId,
    seam: Seam,
    bell: Weak<watch::Sender<()>>,
}

impl SimStore {
    /// An empty store in the world of this run.
    pub fn new(control: &Control, settings: Settings, faults: Faults) -> Self {
        Self(Arc::new(Inside {
            control: control.clone(),
            network: Arc::new(Network::new(control.clone(), faults)),
            settings,
            memory: Memory::new(),
            entries: Mutex::default(),
            shelves: Mutex::default(),
            observers: Mutex::default(),
            listeners: Mutex::default(),
            hints_underway: Mutex::default(),
        }))
    }

    /// The log, as this node reaches it.
    pub fn log(&self, node: NodeId) -> SimLog {
        SimLog { inside: self.0.clone(), node, bell: self.0.listen(node, Seam::Log) }
    }

    /// The ledger, as this node reaches it.
    pub fn ledger(&self, node: NodeId) -> SimLedger {
        SimLedger { inside: self.0.clone(), node, bell: self.0.listen(node, Seam::Ledger) }
    }

    /// Shows every effect to this observer from now on.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        lock(&self.0.observers).push(observer);
    }

    /// Shows effects to nobody any more: an observer may hold the store, and neither would ever be dropped.
    pub fn dismiss_observers(&self) {
        lock(&self.0.observers).clear();
    }

    /// Changes what may go wrong, from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.network.set_faults(faults);
    }

    /// Takes a half of the store out of service, or brings it back. It loses nothing.
    pub fn set_out(&self, seam: Seam, out: bool) {
        self.0.network.set_out(seam, out);
        self.0.control.note(NodeId::WORLD, "out", &[seam as u64, out.into()], || {
            format!("{seam:?} is {}", if out { "out" } else { "back" })
        });
    }

    /// Cuts a node off from the store, or lets it through again.
    pub fn set_cut_off(&self, node: NodeId, cut_off: bool) {
        self.0.network.set_cut_off(node, cut_off);
        self.0.control.note(node, "cut off", &[cut_off.into()], || {
            if cut_off { "cut off from the store" } else { "reaches the store again" }.to_owned()
        });
    }

    /// Lets the store crash and come back at once: what was written lightly and does not last yet is undone.
    pub fn crash(&self) {
        let undone = lock(&self.0.entries).crash();
        if !undone.is_empty() {
            self.0.control.strike(NodeId::WORLD, FaultKind::StoreCrash, || format!("{undone:?}"));
        }
        self.0.tell(&Event::StoreCrashed { undone: &undone });
        self.0.hint(Seam::Ledger);
    }

    /// The entries of the ledger at this moment, for a checker: without network, faults, or time passing.
    pub fn entries(&self, prefix: &EntryKey) -> Vec<Entry> {
        lock(&self.0.entries).list(prefix)
    }

    /// The topic or lane with this name at this moment, for a checker.
    pub fn topic(&self, name: &TopicName) -> Option<Topic> {
        at_once(self.0.memory.topic(name)).ok().flatten()
    }

    /// The readable messages of a topic at this moment, with shard and number, for a checker.
    pub fn messages(&self, topic: &Topic) -> Vec<(u16, u64, Message)> {
        lock(&self.0.shelves).get(&topic.uid).map(Shelf::readable).unwrap_or_default()
    }

    /// The topic with this name and its lanes at this moment, and how many messages each has, for a checker.
    pub fn contents(&self, name: &str) -> Vec<(String, usize)> {
        let topics = at_once(self.0.memory.topics()).unwrap_or_default();
        let of_it = topics.iter().filter(|topic| topic.name.base() == name);
        of_it
            .map(|topic| (topic.name.to_string(), self.messages(topic).len() + self.hidden(topic).len()))
            .collect()
    }

    /// What of a topic is kept aside or not yet readable at this moment, for a checker.
    pub fn hidden(&self, topic: &Topic) -> Vec<Record> {
        lock(&self.0.shelves).get(&topic.uid).map(Shelf::hidden).unwrap_or_default()
    }
}

impl Inside {
    /// Something was written durably, and all before it lasts with it.
    pub(crate) fn lasts(&self) {
        if lock(&self.entries).lasts() {
            self.tell(&Event::Lasting);
        }
    }

    /// A durable commit was made: it lasts, and all before it.
    pub(crate) fn lasts_with_this(&self) {
        if self.settings.undoes {
            lock(&self.entries).lasts();
            self.tell(&Event::Lasting);
        }
    }

    /// Makes room for the messages of a topic.
    pub(crate) fn add_shelf(&self, topic: &Topic) {
        let rules = Rules {
            tells_doubles: self.settings.idempotent_append,
            numbers_on_arrival: self.settings.bug == Some(EngineBug::CursorById),
        };
        let new = || Shelf::new(topic.clone(), rules);
        lock(&self.shelves).entry(topic.uid.clone()).or_insert_with(new);
    }

    pub(crate) fn remove_shelf(&self, topic: &Topic) {
        let removed = lock(&self.shelves).remove(&topic.uid);
        if removed.is_some() {
            self.tell(&Event::TopicDeleted { topic });
        }
    }

    /// Does something to the messages of a topic.
    pub(crate) fn shelf<T>(&self, topic: &Topic, work: impl FnOnce(&mut Shelf) -> Result<T>) -> Result<T> {
        let mut shelves = lock(&self.shelves);
        work(shelves.get_mut(&topic.uid).ok_or_else(|| topic.missing())?)
    }

    /// Lets everything of a topic land whose moment has come.
    pub(crate) fn land(self: &Arc<Self>, topic: &Topic) {
        let at = self.control.now();
        // A topic that was deleted meanwhile takes its messages along.
        if let Ok(landed) = self.shelf(topic, |shelf| shelf.land(at)) {
            self.announce(topic, &landed);
        }
    }

    /// Says that messages landed.
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
                    self.tell(&Event::Readable { topic, shard: *shard, number: *number, message });
                }
                Landed::Aside { shard, due, message } => {
                    let numbers = [u64::from(*shard), due.as_millis(), id_number(message)];
                    self.control.note(NodeId::WORLD, "aside", &numbers, || {
                        format!("{}/{shard} kept aside until {due}: {}", topic.name, message.id)
                    });
                    self.tell(&Event::KeptAside { topic, shard: *shard, due: *due, message });
                }
            }
        }
        if !landed.is_empty() {
            self.hint(Seam::Log);
        }
    }

    /// Shows an effect to the observers.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        let observers = lock(&self.observers).clone();
        let at = self.control.now();
        observers.iter().for_each(|observer| observer.saw(at, event));
    }

    fn listen(&self, node: NodeId, seam: Seam) -> Arc<watch::Sender<()>> {
        let bell = Arc::new(watch::Sender::new(()));
        lock(&self.listeners).push(Listener { node, seam, bell: Arc::downgrade(&bell) });
        bell
    }

    /// Sends a hint to every node, soon; some get lost. Hints that come close together are one.
    pub(crate) fn hint(self: &Arc<Self>, seam: Seam) {
        if std::mem::replace(&mut lock(&self.hints_underway)[seam as usize], true) {
            return;
        }
        let inside = self.clone();
        let travel: Duration = self.network.delay(|faults| faults.latency);
        self.network.world.spawn(async move {
            inside.network.world.sleep(travel).await;
            lock(&inside.hints_underway)[seam as usize] = false;
            inside.ring(seam);
        });
    }

    fn ring(&self, seam: Seam) {
        let mut bells = Vec::new();
        lock(&self.listeners).retain(|listener| {
            let Some(bell) = listener.bell.upgrade() else { return false };
            // Nobody hears it where nobody lives any more.
            let alive = self.control.is_alive(listener.node);
            if alive && listener.seam == seam {
                bells.push((listener.node, bell));
            }
            alive
        });
        for (node, bell) in bells {
            if self.network.obstacle(node, seam).is_some() || self.network.hits(|faults| faults.lost_hint) {
                self.control.strike(node, FaultKind::LostHint, String::new);
            } else {
                bell.send_replace(());
            }
        }
    }
}

fn id_number(message: &Message) -> u64 {
    digest(&message.id.as_u128().to_le_bytes())
}

/// The answer of the in-memory engine, which never waits.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("the in-memory engine answers without waiting")
}
