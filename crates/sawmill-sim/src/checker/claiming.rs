//! Checks how many messages a worker has claimed.

use sawmill::engine::model::Claim;

use super::book::{Book, Mirror};
use super::invariant::Invariant;
use super::shards::Change;

impl Book {
    /// Invariant 15: a worker's claimed and unsettled messages stay within its limit. Claims that it took
    /// over from other workers do not count, because taking them over is not its choice.
    pub(super) fn not_too_many(&mut self, mirror: &Mirror, change: &Change<'_>, opened: &[&Claim]) {
        let Some(most) = self.rules.groups[mirror.group].max_in_flight else { return };
        // Claims that a crash of the store restored count extra until their worker sees them.
        if self.undoable.is_needed {
            return;
        }
        let Some(owner) = opened.first().and_then(|claim| claim.owner.clone()) else { return };
        let others = self.mirrors.values().filter(|other| other.group == mirror.group);
        let open = |mirror: &Mirror| -> u64 {
            let its_own =
                |claim: &&Claim| claim.owner.as_ref() == Some(&owner) && mirror.opened.contains(&claim.token);
            mirror.state.claims.iter().filter(its_own).map(Claim::open).sum()
        };
        let claimed = open(mirror) + others.map(open).sum::<u64>();
        self.check(Invariant::Limited, claimed <= most as u64, |_| {
            let what =
                format!("{}: {owner:?} has claimed {claimed} messages, and may claim {most}", change.key);
            (what, change.about())
        });
    }
}
