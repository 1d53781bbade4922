//! Workers that say that they have nothing to do.

use super::book::Book;
use super::invariant::Invariant;
use crate::control::NodeId;

impl Book {
    /// Somebody is about to pause a group. What nobody may start does not count as something to do, as long as workers believe so.
    pub fn may_be_paused(&mut self, group: usize, topic: &str) {
        self.held_up.insert((group, topic.to_owned()));
    }

    /// Invariant 11: the worker on this node says that it has nothing to do, so that nothing that it has claimed is open, and no
    /// handler of its runs. `tells_ends` if its handlers tell at once that they have ended.
    pub fn says_drained(&mut self, node: NodeId, tells_ends: bool) {
        // It cannot know yet of a claim that a crash of the store has brought back.
        if self.lasting.is_needed {
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

    /// The entry in which a worker of this node has a claim with messages that are not settled. What is paused or limited does not
    /// count: others may have all of the limit.
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
