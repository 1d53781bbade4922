//! The network between nodes and store: calls and answers are delayed or lost.
//!
//! The effect of a call runs on the world node. It therefore happens even if the caller has crashed, is
//! frozen, or no longer waits. Effects of all nodes happen one at a time, each at one moment between call and
//! answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::engine::storage::Commit;
use tokio::sync::oneshot;

use crate::control::{Control, NodeId};
use crate::faults::{Chance, FaultKind, Faults};
use crate::rng::Seeded;
use crate::tasks::lock;

/// One half of the store. The halves may be different servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seam {
    /// The log.
    Log,
    /// The ledger.
    Ledger,
}

/// A call over the network.
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

/// How a call arrived, for its effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallInfo {
    /// When it was sent.
    pub(crate) sent: Duration,
    pub(crate) fate: CallFate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFate {
    Answered,
    Unavailable,
    UnknownApplied,
    UnknownLost,
    UnknownLate,
    UnknownPartial,
}

/// The outcome for the caller.
pub(crate) enum Outcome<T> {
    Answer(T),
    Unavailable,
    Unknown,
}

/// Returns whether an effect changed anything, judged by its own answer.
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

/// The network and its current faults.
pub(crate) struct Network {
    pub(crate) control: Control,
    pub(crate) world: Env,
    conditions: Mutex<Conditions>,
}

struct Conditions {
    rng: Seeded,
    faults: Faults,
    cut_off: BTreeSet<NodeId>,
    out: BTreeSet<Seam>,
}

/// The network's random stream; scenarios count up from 0.
const STREAM: u32 = u32::MAX - 1;

impl Network {
    pub(crate) fn new(control: Control, faults: Faults) -> Self {
        let conditions =
            Conditions { rng: control.rng(STREAM), faults, cut_off: BTreeSet::new(), out: BTreeSet::new() };
        Self { world: control.env(NodeId::WORLD), control, conditions: Mutex::new(conditions) }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        lock(&self.conditions).faults = faults;
    }

    pub(crate) fn set_out(&self, seam: Seam, out: bool) {
        let seams = &mut lock(&self.conditions).out;
        if out {
            seams.insert(seam)
        } else {
            seams.remove(&seam)
        };
    }

    pub(crate) fn set_cut_off(&self, node: NodeId, cut_off: bool) {
        let nodes = &mut lock(&self.conditions).cut_off;
        if cut_off {
            nodes.insert(node)
        } else {
            nodes.remove(&node)
        };
    }

    /// Decides one of the probabilities at random.
    pub(crate) fn hits(&self, chance: impl FnOnce(&Faults) -> Chance) -> bool {
        let conditions = &mut *lock(&self.conditions);
        conditions.rng.hits(chance(&conditions.faults))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        lock(&self.conditions).rng.below(bound)
    }

    /// Draws one of the delays at random.
    pub(crate) fn delay(&self, delay: impl FnOnce(&Faults) -> crate::faults::Delay) -> Duration {
        let conditions = &mut *lock(&self.conditions);
        conditions.rng.delay(delay(&conditions.faults))
    }

    /// Returns the fault that separates this node from this half of the store, if there is one.
    pub(crate) fn obstacle(&self, node: NodeId, seam: Seam) -> Option<FaultKind> {
        let conditions = lock(&self.conditions);
        if conditions.out.contains(&seam) {
            Some(FaultKind::StoreOutage)
        } else if conditions.cut_off.contains(&node) {
            Some(FaultKind::Partition)
        } else {
            None
        }
    }

    /// Sends a call and waits for its outcome. The effect happens whether or not the caller still waits.
    pub(crate) async fn call<T, F>(
        self: &Arc<Self>,
        call: Call,
        effect: impl FnOnce(CallInfo) -> F + Send + 'static,
    ) -> Outcome<T>
    where
        T: TookEffect + Send + 'static,
        F: Future<Output = T> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let network = self.clone();
        let sent = self.control.now();
        self.world.spawn(async move { network.deliver(call, sent, effect, answer).await });
        match answered.await {
            Ok(outcome) => outcome,
            // The world has ended, so there is no answer.
            Err(_) => std::future::pending().await,
        }
    }

    async fn deliver<T, F>(
        &self,
        call: Call,
        sent: Duration,
        effect: impl FnOnce(CallInfo) -> F + Send,
        answer: oneshot::Sender<Outcome<T>>,
    ) where
        T: TookEffect,
        F: Future<Output = T> + Send,
    {
        self.travel(call).await;
        if let Some(obstacle) = self.obstacle(call.node, call.seam) {
            self.count_fault(call, obstacle);
            // Some networks refuse at once, others lose the call.
            let swallowed = self.below(2) == 0;
            if swallowed {
                self.time_out().await;
            }
            let unsure = swallowed && call.kind != CallKind::Read;
            let _ = answer.send(if unsure { Outcome::Unknown } else { Outcome::Unavailable });
            return;
        }
        let fate = self.fate(call);
        let info = CallInfo { sent, fate };
        match fate {
            CallFate::Answered => {
                let outcome = effect(info).await;
                self.travel(call).await;
                let outcome = match self.obstacle(call.node, call.seam) {
                    None => Outcome::Answer(outcome),
                    Some(obstacle) => {
                        self.count_fault(call, obstacle);
                        self.time_out().await;
                        if call.kind == CallKind::Read { Outcome::Unavailable } else { Outcome::Unknown }
                    }
                };
                let _ = answer.send(outcome);
            }
            CallFate::Unavailable => {
                self.count_fault(call, FaultKind::Unavailable);
                self.travel(call).await;
                let _ = answer.send(Outcome::Unavailable);
            }
            CallFate::UnknownApplied | CallFate::UnknownPartial => {
                if effect(info).await.took_effect() {
                    // A partial effect is counted where messages are left out.
                    if fate == CallFate::UnknownApplied {
                        self.count_fault(call, FaultKind::UnknownApplied);
                    }
                }
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
            }
            CallFate::UnknownLost => {
                self.count_fault(call, FaultKind::UnknownLost);
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
            }
            CallFate::UnknownLate => {
                self.time_out().await;
                let _ = answer.send(Outcome::Unknown);
                self.world.sleep(self.delay(|faults| faults.late_by)).await;
                if let Some(obstacle) = self.obstacle(NodeId::WORLD, call.seam) {
                    return self.count_fault(call, obstacle);
                }
                let took = effect(info).await.took_effect();
                self.count_fault(
                    call,
                    if took { FaultKind::UnknownLate } else { FaultKind::UnknownLateRefused },
                );
            }
        }
    }

    /// Travels one way between a node and the store.
    async fn travel(&self, call: Call) {
        let mut time = self.delay(|faults| faults.latency);
        if self.hits(|faults| faults.slow) {
            time += self.delay(|faults| faults.slow_by);
            self.count_fault(call, FaultKind::Delay);
        }
        self.world.sleep(time).await;
    }

    async fn time_out(&self) {
        self.world.sleep(self.delay(|faults| faults.timeout)).await;
    }

    fn count_fault(&self, call: Call, kind: FaultKind) {
        self.control.strike(call.node, kind, || format!("on {}", call.name));
    }

    fn fate(&self, call: Call) -> CallFate {
        let conditions = &mut *lock(&self.conditions);
        let faults = &conditions.faults;
        let fates = [
            (CallFate::Unavailable, faults.unavailable, true),
            (CallFate::UnknownApplied, faults.unknown_applied, call.kind != CallKind::Read),
            (CallFate::UnknownLost, faults.unknown_lost, call.kind != CallKind::Read),
            (CallFate::UnknownLate, faults.unknown_late, call.kind != CallKind::Read),
            (CallFate::UnknownPartial, faults.unknown_partial, call.kind == CallKind::Append),
        ];
        let mut roll = conditions.rng.below(Chance::ALL);
        for (fate, chance, possible) in fates {
            if possible && roll < chance.parts() {
                return fate;
            }
            roll = roll.saturating_sub(if possible { chance.parts() } else { 0 });
        }
        CallFate::Answered
    }
}
