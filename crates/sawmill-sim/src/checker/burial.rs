//! Burial: a claim that ten workers died holding is not run again.

use super::book::{Book, Place, Started};
use super::invariant::Invariant;

/// After so many deaths a claim goes to the dead letters.
pub(super) const MOST_DEATHS: u32 = 10;

impl Book {
    /// Invariant 4, where a message kills its workers: there is no eleventh start. The deaths are those that the checker has seen, not
    /// those that the core counts. Under at-most-once the first death ends it; see invariant 3.
    pub(super) fn not_buried(&mut self, group: usize, started: &Started<'_>, place: Place) {
        if self.rules.groups[group].once {
            return;
        }
        let Some(mirror) = self.mirror(group, place) else { return };
        let pass = mirror
            .claims_of(self, place.2)
            .find(|(claim, _)| claim.token == started.token)
            .map(|(claim, _)| claim.pass);
        let deaths = pass.and_then(|pass| mirror.deaths.get(&(pass, place.2))).copied().unwrap_or(0);
        self.check(Invariant::AtLeastOnce, deaths < MOST_DEATHS, |_| {
            let what =
                format!("{} was started although {deaths} workers died while they held it", started.origin);
            (what, vec![started.origin.to_string()])
        });
    }
}
