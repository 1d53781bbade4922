//! Checks that the ledger's counts match how the messages ended.

use sawmill::engine::model::{Fate, Tally};

use super::book::Book;
use super::invariant::Invariant;
use super::shards::Change;
use crate::features::Feature;

pub(super) const ALL: [Fate; 5] = [Fate::Done, Fate::Retried, Fate::Dead, Fate::Dropped, Fate::Cancelled];

impl Book {
    /// Invariant 10: each count grows by the number of messages that ended that way. `ends` lists the
    /// possible fates of each message that this change settled: usually one, several where they cannot be
    /// told apart from outside.
    pub(super) fn counted_as_they_ended(&mut self, change: &Change<'_>, ends: &[Vec<Fate>]) {
        let (old, new) = (change.old.tally, change.new.tally);
        let total = new.total().saturating_sub(old.total()) == ends.len() as u64;
        let fits = ALL.iter().all(|fate| {
            let sure = ends.iter().filter(|possible| possible.as_slice() == [*fate]).count() as u64;
            let most = ends.iter().filter(|possible| possible.contains(fate)).count() as u64;
            let (before, now) = (count(&old, *fate), count(&new, *fate));
            now >= before + sure && now <= before + most
        });
        for (fate, feature) in [(Fate::Cancelled, Feature::Cancelled), (Fate::Dropped, Feature::OnlyLogged)] {
            if count(&new, fate) > count(&old, fate) {
                self.used.push(feature);
            }
        }
        self.check(Invariant::CountsConserve, total && fits, |_| {
            let what = format!("messages ended as {ends:?}, and the tally went from {old:?} to {new:?}");
            (format!("{}: {what}", change.key), change.about())
        });
    }
}

fn count(tally: &Tally, fate: Fate) -> u64 {
    match fate {
        Fate::Done => tally.done,
        Fate::Retried => tally.retried,
        Fate::Dead => tally.dead,
        Fate::Dropped => tally.dropped,
        Fate::Cancelled => tally.cancelled,
    }
}
