//! Checks workers that report that they are drained.

use super::book::Book;
use super::invariant::Invariant;
use crate::control::NodeId;

impl Book {
    /// Records that a group is about to be paused. Messages that may not start do not count as work, as long
    /// as workers know of the pause.
    pub fn may_be_paused(&mut self, group: usize, topic: &str) {
        self.held_up.insert((group, topic.to_owned()));
    }

    /// Invariant 11: when the worker on this node reports that it is drained, none of its claims is open and
    /// none of its handlers runs. `tells_ends`: its handlers report their end at once.
    pub fn says_drained(&mut self, node: NodeId, tells_ends: bool) {
        // The worker cannot know yet of a claim that a crash of the store restored.
        if self.undoable.is_needed {
            return;
        }
        let open = self.open_claim_of(node);
        self.check(Invariant::Drains, open.is_none(), |_| {
            let key = open.clone().unwrap_or_default();
            (format!("{node} says that it is drained, and has an open claim in {key}"), vec![key])
        });
        let runs = self.runs.iter().find(|run| tells_ends && run.node == node && run.how.is_none());
        let runs = runs.map(|run| run.origin);
        self.check(Invariant::Drains, runs.is_none(), |_| {
            let what = format!("{node} says that it is drained, and runs {runs:?}");
            (what, runs.iter().map(ToString::to_string).collect())
        });
    }

    /// Returns the entry of a claim of this node with unsettled messages. Paused and limited groups do not
    /// count: other workers may hold the whole limit.
    fn open_claim_of(&self, node: NodeId) -> Option<String> {
        let counts = |group: usize, topic: usize| {
            let (rules, name) = (&self.rules.groups[group], self.topics[topic].topic.name.base());
            rules.limit.or(rules.rate).is_none() && !self.held_up.contains(&(group, name.to_owned()))
        };
        let mut mirrors = self.mirrors.iter().filter(|(_, mirror)| counts(mirror.group, mirror.topic));
        let open = mirrors.find(|(_, mirror)| {
            mirror.state.claims.iter().filter(|claim| claim.open() > 0).any(|claim| {
                let owner = claim.owner.as_ref();
                let member = owner.and_then(|owner| self.member(mirror.group, owner.as_str()));
                member.is_some_and(|member| member.there && member.node == node)
            })
        });
        open.map(|(key, _)| key.clone())
    }
}
