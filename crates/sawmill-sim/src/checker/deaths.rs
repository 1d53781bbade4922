//! Death limit: a message whose workers died ten times is not run again.

use super::book::{Book, Place, Started};
use super::invariant::Invariant;

/// After this many deaths a message becomes a dead letter.
pub(super) const MAX_DEATHS: u32 = 10;

impl Book {
    /// Invariant 4, for a message that kills its workers: there is no eleventh start. Uses the deaths that
    /// the checker observed, not the core's count. Under at-most-once the first death ends the message; see
    /// invariant 3.
    pub(super) fn within_death_limit(&mut self, group: usize, started: &Started<'_>, place: Place) {
        if self.rules.groups[group].once {
            return;
        }
        let Some(mirror) = self.mirror(group, place) else { return };
        let pass = mirror
            .claims_of(self, place.2)
            .find(|(claim, _)| claim.token == started.token)
            .map(|(claim, _)| claim.pass);
        let deaths = pass.and_then(|pass| mirror.deaths.get(&(pass, place.2))).copied().unwrap_or(0);
        self.check(Invariant::AtLeastOnce, deaths < MAX_DEATHS, |_| {
            let what =
                format!("{} was started although {deaths} workers died while they held it", started.origin);
            (what, vec![started.origin.to_string()])
        });
    }
}
