//! Burial: a claim that ten workers died holding is not run again.

use super::book::{Book, Place, Started};
use super::invariant::Invariant;

/// After so many deaths a claim goes to the dead letters.
const MOST_DEATHS: u32 = 10;

impl Book {
    /// Invariant 4, where a message kills its workers: there is no eleventh start.
    pub(super) fn not_buried(&mut self, group: usize, started: &Started<'_>, place: Place) {
        let Some(mirror) = self.mirror(group, place) else { return };
        let deaths = mirror
            .claims_of(self, place.2)
            .find(|(claim, _)| claim.token == started.token)
            .map_or(0, |(claim, _)| claim.deaths);
        self.check(Invariant::AtLeastOnce, deaths < MOST_DEATHS, |_| {
            let what =
                format!("{} was started although {deaths} workers died while they held it", started.origin);
            (what, vec![started.origin.to_string()])
        });
    }
}
