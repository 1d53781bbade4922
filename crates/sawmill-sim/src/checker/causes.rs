//! Why a message may be given up: a dead letter needs a cause.

use sawmill::{Message, MessageId};

use super::book::{Book, How};
use super::invariant::Invariant;

/// After so many deaths of the workers that held a message it is given up: it is likely to be what killed them.
const MOST_DEATHS: u32 = 10;

impl Book {
    /// Invariant 17, for a dead letter that has just come into the log.
    pub(super) fn died_for_a_cause(&mut self, group: usize, message: &Message) {
        let origin = message.origin();
        let cause = self.has_a_cause(group, origin);
        self.check(Invariant::GivenUp, cause, |book| {
            let rules = &book.rules.groups[group];
            let ends: Vec<Option<How>> = book.ends_of(group, origin).collect();
            let what = format!(
                "{origin} is a dead letter of {}, which allows {} retries; its runs ended: {ends:?}; {:?}",
                rules.name,
                rules.retries,
                message.dead_reason()
            );
            (what, vec![origin.to_string(), message.id.to_string()])
        });
    }

    fn has_a_cause(&self, group: usize, origin: MessageId) -> bool {
        let rules = &self.rules.groups[group];
        let gave_up = self.ends_of(group, origin).any(|how| how == Some(How::GaveUp));
        let failures = self.ends_of(group, origin).filter(|how| *how == Some(How::Failed)).count();
        let started = self.ends_of(group, origin).any(|how| how != Some(How::Done));
        let deaths = self.deaths(group, origin);
        let once = rules.once && (started || deaths > 0);
        gave_up || failures > rules.retries as usize || once || deaths >= MOST_DEATHS
    }

    /// How the runs of a message ended, in the order of their starts.
    fn ends_of(&self, group: usize, origin: MessageId) -> impl Iterator<Item = Option<How>> + '_ {
        let runs = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.runs);
        runs.iter().map(|run| self.runs[run.0].how)
    }

    /// How often a claim on this message, or on a copy of it, was taken from its owner: the most for one place.
    fn deaths(&self, group: usize, origin: MessageId) -> u32 {
        let mirrors = self.mirrors.values().filter(|mirror| mirror.group == group);
        let deaths = mirrors.flat_map(|mirror| {
            let of_it = |number: &u64| {
                let lying = self.places.get(&(mirror.topic, mirror.shard, *number));
                lying.is_some_and(|lying| lying.origin == origin)
            };
            mirror.superseded.iter().filter(move |(number, _)| of_it(number)).map(|(_, times)| *times)
        });
        deaths.max().unwrap_or(0)
    }
}
