//! Checks takeovers: messages of a dead worker run again soon, when nothing else is wrong.

use std::time::Duration;

use sawmill::engine::model::Token;

use super::book::{Book, Place};
use super::invariant::Invariant;
use crate::control::NodeId;

/// A claim of a worker that died while nothing else was wrong.
pub(super) struct ClaimOfDeadWorker {
    key: String,
    token: Token,
    group: usize,
    /// Its unsettled messages.
    places: Vec<Place>,
    died: Duration,
}

impl Book {
    /// Records that a worker dies or freezes while nothing else is wrong.
    pub fn dies_in_calm(&mut self, node: NodeId) {
        let mut claims_of_dead = Vec::new();
        for (key, mirror) in &self.mirrors {
            for claim in &mirror.state.claims {
                let owner = claim.owner.as_ref();
                let member = owner.and_then(|owner| self.member(mirror.group, owner.as_str()));
                if member.is_none_or(|member| !member.there || member.node != node) {
                    continue;
                }
                let numbers = (0..).zip(mirror.numbers(self, claim));
                let open = numbers.filter(|(index, _)| !claim.done.contains(*index));
                let places = open.map(|(_, number)| (mirror.topic, mirror.shard, number)).collect();
                let (token, group, died) = (claim.token, mirror.group, self.now);
                claims_of_dead.push(ClaimOfDeadWorker { key: key.clone(), token, group, places, died });
            }
        }
        self.claims_of_dead.extend(claims_of_dead);
    }

    /// Invariant 11: after a TTL and five seconds, another worker has started a message of each claim that
    /// the dead worker held, or all its messages are settled. Under at-most-once they are dead letters
    /// instead. Returns the number of claims with a start.
    pub fn claims_of_dead_taken_over(&mut self) -> usize {
        let mut started = 0;
        for ClaimOfDeadWorker { key, token, group, places, died } in std::mem::take(&mut self.claims_of_dead)
        {
            let waits = |place: &&Place| {
                let settled = self.mirrors.get(&key).is_some_and(|mirror| mirror.settled.contains(&place.2));
                let mut runs = self.runs_at(group, **place);
                !(settled || runs.any(|run| run.at > died && run.token > token))
            };
            let starts =
                |place: &Place| self.runs_at(group, *place).any(|run| run.at > died && run.token > token);
            started += usize::from(places.iter().any(starts));
            let waiting = places.iter().filter(waits).count();
            let began = waiting < places.len() || places.is_empty();
            let since = self.now.saturating_sub(died);
            self.check(Invariant::Drains, began, |_| {
                let what =
                    format!("{key}: {since:?} after its worker died nothing of claim {token} runs again");
                (what, vec![key.clone()])
            });
        }
        started
    }
}
