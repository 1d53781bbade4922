//! Checks that each dead letter has a cause.

use sawmill::{Message, MessageId};

use super::book::{Book, How, Mirror};
use super::deaths::MAX_DEATHS;
use super::invariant::Invariant;

impl Book {
    /// Invariant 17, for a dead letter that has just arrived in the log.
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
        let taken = self.max_at_a_place(group, origin, |mirror| {
            mirror.superseded.iter().map(|(number, times)| (*number, *times)).collect()
        });
        let deaths = self.max_at_a_place(group, origin, |mirror| {
            mirror.deaths.iter().map(|((_, number), times)| (*number, *times)).collect()
        });
        let once = rules.once && (started || taken > 0);
        gave_up || failures > rules.retries as usize || once || deaths >= MAX_DEATHS
    }

    /// Returns how the runs of a message ended, in order of their starts. Runs before its last resend are
    /// left out where they can be identified.
    fn ends_of(&self, group: usize, origin: MessageId) -> impl Iterator<Item = Option<How>> + '_ {
        let handling = self.handled.get(&(group, origin));
        let runs = handling.map_or(&[][..], |handling| &handling.runs);
        let topic = self.origins.get(&origin).map(|number| self.pushed[*number].intent.topic.as_str());
        let repeated = self.doubled.contains(&origin)
            || self.undoable.is_needed
            || topic.is_none_or(|topic| self.was_sent_elsewhere(topic, group));
        let life = handling.filter(|_| !repeated).and_then(|handling| {
            let (begins, _) = handling.lives.last()?;
            handling.retries.get(begins - 1..)
        });
        let runs = runs.iter().map(|run| &self.runs[run.0]);
        runs.filter(move |run| life.is_none_or(|copies| copies.contains(&run.id))).map(|run| run.how)
    }

    /// Returns the largest count among the places of a message and its copies.
    fn max_at_a_place(
        &self,
        group: usize,
        origin: MessageId,
        counts: impl Fn(&Mirror) -> Vec<(u64, u32)>,
    ) -> u32 {
        let mirrors = self.mirrors.values().filter(|mirror| mirror.group == group);
        let found = mirrors.flat_map(|mirror| {
            let of_it = |(number, _): &(u64, u32)| {
                let logged = self.places.get(&(mirror.topic, mirror.shard, *number));
                logged.is_some_and(|logged| logged.origin == origin)
            };
            counts(mirror).into_iter().filter(of_it).map(|(_, times)| times).collect::<Vec<_>>()
        });
        found.max().unwrap_or(0)
    }
}
