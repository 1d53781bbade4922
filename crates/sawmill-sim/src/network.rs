//! The way between a node and the store: calls travel, arrive late, get lost, and their answers too.
//!
//! A call's effect happens on the world node. So it happens also when the caller has crashed, is frozen, or no longer
//! waits; and reads and writes of all nodes take effect one at a time, each at one moment between call and answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::env::Env;
use sawmill::ledger::Commit;
use tokio::sync::oneshot;

use crate::control::{Control, NodeId};
use crate::dice::Seeded;
use crate::faults::{Chance, FaultKind, Faults};
use crate::tasks::lock;

/// One of the two halves of the store, which may be different servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seam {
    /// Where messages live.
    Log,
    /// Who has done what.
    Ledger,
}

/// A call, as the network sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) node: NodeId,
    pub(crate) seam: Seam,
    pub(crate) name: &'static str,
    pub(crate) kind: CallKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Read,
    Write,
    /// A write that may take effect in part.
    Append,
}

/// How a call came through, for its effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage {
    /// When it was sent.
    pub(crate) sent: Duration,
    pub(crate) fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    Unavailable,
    UnknownApplied,
    UnknownLost,
    UnknownLate,
    UnknownPartial,
}

/// What the caller is told.
pub(crate) enum Outcome<T> {
    Answer(T),
    Unavailable,
    Unknown,
}

/// Whether an effect changed anything, as far as its own answer says.
pub(crate) trait TookEffect {
    fn took_effect(&self) -> bool;
}

impl TookEffect for Commit {
    fn took_effect(&self) -> bool {
        matches!(self, Commit::Done(_))
    }
}

impl<T> TookEffect for sawmill::Result<T> {
    fn took_effect(&self) -> bool {
        self.is_ok()
    }
}

/// The network and what is wrong with it at the moment.
pub(crate) struct Network {
    pub(crate) control: Control,
    pub(crate) world: Env,
    weather: Mutex<Weather>,
}

struct Weather {
    dice: Seeded,
    faults: Faults,
    cut_off: BTreeSet<NodeId>,
    out: BTreeSet<Seam>,
}

/// The network's stream of the seed; scenarios count up from 0.
const STREAM: u32 = u32::MAX - 1;

impl Network {
    pub(crate) fn new(control: Control, faults: Faults) -> Self {
        let weather =
            Weather { dice: control.dice(STREAM), faults, cut_off: BTreeSet::new(), out: BTreeSet::new() };
        Self { world: control.env(NodeId::WORLD), control, weather: Mutex::new(weather) }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        lock(&self.weather).faults = faults;
    }

    pub(crate) fn set_out(&self, seam: Seam, out: bool) {
        let seams = &mut lock(&self.weather).out;
        if out {
            seams.insert(seam)
        } else {
            seams.remove(&seam)
        };
    }

    pub(crate) fn set_cut_off(&self, node: NodeId, cut_off: bool) {
        let nodes = &mut lock(&self.weather).cut_off;
        if cut_off {
            nodes.insert(node)
        } else {
            nodes.remove(&node)
        };
    }

    /// Rolls the network's dice for one of the chances.
    pub(crate) fn hits(&self, chance: impl FnOnce(&Faults) -> Chance) -> bool {
        let weather = &mut *lock(&self.weather);
        weather.dice.hits(chance(&weather.faults))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        lock(&self.weather).dice.below(bound)
    }

    /// One of the delays, as long as the dice say.
    pub(crate) fn delay(&self, delay: impl FnOnce(&Faults) -> crate::faults::Delay) -> Duration {
        let weather = &mut *lock(&self.weather);
        weather.dice.delay(delay(&weather.faults))
    }

    /// What stands between this node and this half of the store.
    pub(crate) fn obstacle(&self, node: NodeId, seam: Seam) -> Option<FaultKind> {
        let weather = lock(&self.weather);
        if weather.out.contains(&seam) {
            Some(FaultKind::StoreOutage)
        } else if weather.cut_off.contains(&node) {
            Some(FaultKind::Partition)
        } else {
            None
        }
    }

    /// Sends a call and waits for what the caller is told. The effect happens whether or not the caller still waits.
    pub(crate) async fn call<T, F>(
        self: &Arc<Self>,
        call: Call,
        effect: impl FnOnce(Passage) -> F + Send + 'static,
    ) -> Outcome<T>
    where
        T: TookEffect + Send + 'static,
        F: Future<Output = T> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let network = self.clone();
        let sent = self.control.now();
        self.world.spawn(async move { network.carry(call, sent, effect, answer).await });
        match answered.await {
            Ok(outcome) => outcome,
            // The world has ended, and with it the answer.
            Err(_) => std::future::pending().await,
        }
    }

    async fn carry<T, F>(
        &self,
        call: Call,
        sent: Duration,
        effect: impl FnOnce(Passage) -> F + Send,
        answer: oneshot::Sender<Outcome<T>>,
    ) where
        T: TookEffect,
        F: Future<Output = T> + Send,
    {
        self.travel(call).await;
        if let Some(obstacle) = self.obstacle(call.node, call.seam) {
            self.struck(call, obstacle);
            // Some networks refuse at once, others swallow the call and leave its sender guessing.
            let swallowed = self.below(2) == 0;
            if swallowed {
                self.time_out().await;
            }
            let unsure = swallowed && call.kind != CallKind::Read;
            let _ = answer.send(if unsure { Outcome::Unknown } else { Outcome::Unavailable });
            return;
        }
        let fate = self.fate(call);
        let passage = Passage { sent, fate };
        match fate {
            Fate::Answered => {
                let outcome = effect(passage).await;
                self.travel(call).await;
                let outcome = match self.obstacle(call.node, call.seam) {
                    None => Outcome::Answer(outcome),
                    Some(obstacle) => {
                        self.struck(call, obstacle);
                        self.time_out().await;
                        if call.kind == CallKind::Read { Outcome::Unavailable } else { Outcome::Unknown }
                    }
                };
                let _ = answer.send(outcome);
            }
            Fate::Unavailable => {
                self.struck(call, FaultKind::Unavailable);
                self.travel(call).await;
                let _ = answer.send(Outcome::Unavailable);
            }
            Fate::UnknownApplied | Fate::UnknownPartial => {
                if effect(passage).await.took_effect() {
                    // What took effect in part is counted where it is known that a part was left out.
                    if fate == Fate::UnknownApplied {
                        self.struck(call, FaultKind::UnknownApplied);
                    }
                }
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
            }
            Fate::UnknownLost => {
                self.struck(call, FaultKind::UnknownLost);
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
            }
            Fate::UnknownLate => {
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
                self.world.sleep(self.delay(|faults| faults.late_by)).await;
                if let Some(obstacle) = self.obstacle(NodeId::WORLD, call.seam) {
                    return self.struck(call, obstacle);
                }
                let took = effect(passage).await.took_effect();
                self.struck(call, if took { FaultKind::UnknownLate } else { FaultKind::UnknownLateRefused });
            }
        }
    }

    /// One way between a node and the store.
    async fn travel(&self, call: Call) {
        let mut time = self.delay(|faults| faults.latency);
        if self.hits(|faults| faults.slow) {
            time += self.delay(|faults| faults.slow_by);
            self.struck(call, FaultKind::Delay);
        }
        self.world.sleep(time).await;
    }

    async fn time_out(&self) {
        self.world.sleep(self.delay(|faults| faults.timeout)).await;
    }

    fn struck(&self, call: Call, kind: FaultKind) {
        self.control.strike(call.node, kind, || format!("on {}", call.name));
    }

    fn fate(&self, call: Call) -> Fate {
        let weather = &mut *lock(&self.weather);
        let faults = &weather.faults;
        let fates = [
            (Fate::Unavailable, faults.unavailable, true),
            (Fate::UnknownApplied, faults.unknown_applied, call.kind != CallKind::Read),
            (Fate::UnknownLost, faults.unknown_lost, call.kind != CallKind::Read),
            (Fate::UnknownLate, faults.unknown_late, call.kind != CallKind::Read),
            (Fate::UnknownPartial, faults.unknown_partial, call.kind == CallKind::Append),
        ];
        let mut roll = weather.dice.below(Chance::ALL);
        for (fate, chance, possible) in fates {
            if possible && roll < chance.parts() {
                return fate;
            }
            roll = roll.saturating_sub(if possible { chance.parts() } else { 0 });
        }
        Fate::Answered
    }
}
