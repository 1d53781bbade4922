//! Settling: messages move to their lanes, are cancelled, or become dead letters without being started.

use sawmill_engine::model::Fate;

use super::InFlight;
use super::message::{HeldMessage, LaneCopy, Settling, Stage, Ticket};
use crate::store::cancel::CancelledMessages;

impl InFlight {
    /// Settles a message whose report is all that remains to be written.
    pub(super) fn settle(&mut self, held: HeldMessage, fate: Fate) {
        self.done += u64::from(fate == Fate::Done);
        self.note_settled(&held, fate);
        self.leave_queue(held.queue_key);
    }

    fn note_settled(&mut self, held: &HeldMessage, fate: Fate) {
        if let Some(claim) = self.claims.get_mut(&held.ticket) {
            match claim.is_noted(held.index) {
                // Only a planted bug notes it earlier.
                true => claim.mark_dirty(),
                false => claim.note(held.index, fate),
            }
        }
        self.advance(held, Stage::Settled);
    }

    /// Settles a message once a copy of it is appended, or its name given back.
    pub(super) fn begin_settling(&mut self, held: HeldMessage, source: usize, copy: LaneCopy) {
        self.advance(&held, Stage::Settling);
        self.add_settling(held, source, copy);
    }

    fn add_settling(&mut self, held: HeldMessage, source: usize, copy: LaneCopy) {
        self.settling.insert((held.ticket, held.index), Settling { held, source, copy });
    }

    /// Settles a cancelled unique message once its name is given back.
    pub(super) fn give_name_back(&mut self, held: HeldMessage, source: usize) {
        self.add_settling(held, source, LaneCopy::None { fate: Fate::Cancelled });
    }

    /// Returns the messages whose copies must be appended or names given back. Each stays until
    /// [`settled_on_lane`](InFlight::settled_on_lane) is called for it. Those of lost claims are dropped.
    pub(crate) fn settling(&mut self) -> Vec<Settling> {
        let claims = &self.claims;
        let lost: Vec<Settling> = self
            .settling
            .extract_if(.., |(ticket, _), _| !claims.contains_key(ticket))
            .map(|(_, settling)| settling)
            .collect();
        for settling in lost {
            self.leave_queue(settling.held.queue_key);
        }
        self.settling.values().cloned().collect()
    }

    /// Notes that the copy of a message is in the log, and that its name is given back.
    pub(crate) fn settled_on_lane(&mut self, settling: Settling, fate: Fate) {
        let held = settling.held;
        self.settling.remove(&(held.ticket, held.index));
        self.settle(held, fate);
    }

    /// Settles messages in hand that a person has cancelled. Running ones are cancelled elsewhere, through
    /// their handlers.
    pub(crate) fn cancel(&mut self, cancelled: &CancelledMessages) {
        let wanted = |held: &HeldMessage| cancelled.contains(&held.message);
        let behind = self.key_queues.extract(wanted);
        // A message that waits behind others holds no queue.
        let behind = behind.into_iter().map(|held| HeldMessage { queue_key: None, ..held });
        let first = self.extract_startable(wanted);
        for held in behind.chain(first).collect::<Vec<_>>() {
            let source = self.claims.get(&held.ticket).map(|claim| claim.source);
            match source.filter(|_| held.message.unique_name().is_some()) {
                Some(source) => self.begin_settling(held, source, LaneCopy::None { fate: Fate::Cancelled }),
                None => self.settle(held, Fate::Cancelled),
            }
        }
    }

    /// Makes open messages of a claim dead letters without starting them. The queues of their keys wait for
    /// that.
    pub(crate) fn bury(&mut self, ticket: Ticket, doomed: impl Fn(u32) -> bool, reason: &str) {
        let Some(source) = self.claims.get(&ticket).map(|claim| claim.source) else { return };
        let wanted = |held: &HeldMessage| held.ticket == ticket && doomed(held.index);
        let mut buried = self.extract_startable(wanted);
        buried.extend(self.key_queues.extract_as_holders(wanted));
        for held in buried {
            self.begin_settling(held, source, LaneCopy::Dead { reason: reason.to_owned() });
        }
    }

    pub(crate) fn has_settling(&self) -> bool {
        !self.settling.is_empty()
    }
}
