//! Checks when a message counts as settled: its handler returned done, or a copy of it is on a lane.

use sawmill::MessageId;
use sawmill::engine::model::{Claim, Fate, Lane, TopicName};
use sawmill::engine::storage::Record;

use super::book::{Book, How, Mirror, Run};
use super::fates;
use super::invariant::Invariant;
use super::shards::Change;

/// Returns the records of a topic or lane that are in the log but not readable.
pub type Hidden<'a> = &'a dyn Fn(&TopicName) -> Vec<Record>;

impl Book {
    /// Invariants 1 and 8: a message counts as settled only if its handler returned done under this claim, if
    /// a copy of it is on a lane, or if the group only logs failures.
    pub(super) fn settled(
        &mut self,
        mirror: &Mirror,
        change: &Change<'_>,
        claim: &Claim,
        number: u64,
        hidden: Hidden<'_>,
    ) -> Vec<Fate> {
        let place = (mirror.topic, mirror.shard, number);
        let Some(logged) = self.places.get(&place) else { return fates::ALL.to_vec() };
        let (id, origin, group) = (logged.id, logged.origin, mirror.group);
        let doubled = self.is_doubled(mirror.topic, id);
        let runs = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.runs);
        let runs = runs.iter().map(|run| &self.runs[run.0]);
        // For a duplicated message, the run's place is unknown, so any of them counts.
        let here = |run: &&Run| {
            let speaks = run.token == claim.token && run.speaks_for(claim.owner.as_ref());
            speaks && (run.place == place || (doubled && run.id == id))
        };
        let runs: Vec<&Run> = runs.filter(here).collect();
        let last_run_undone = runs.last().is_some_and(|run| run.undone);
        let mut ends: Vec<Option<How>> = runs.iter().map(|run| run.how).collect();
        let last = ends.last().copied();
        if !doubled {
            ends = last.into_iter().collect();
        }
        let done = ends.contains(&Some(How::Done));
        let only_logged = ends.iter().any(|how| self.is_only_logged(group, origin, *how));
        // After an undo it is unknown whether the old run or a new one settled the message.
        let undone = last_run_undone;
        if done {
            self.handled.entry((group, origin)).or_default().done += 1;
            self.keep_end(group, origin, true);
        }
        let unwanted = self.unwanted.contains(&origin);
        let copied = !(done || only_logged || unwanted);
        let fine = !copied || !self.copies_of(group, id, origin, hidden).is_empty();
        if copied {
            self.keep_end(group, origin, false);
            self.copied(group, origin, hidden);
        }
        self.check(Invariant::NothingLost, fine, |_| {
            let what =
                format!("{origin} counts as settled, its last run: {last:?}, and no copy of it is on a lane");
            (
                format!("{}: {what}", change.key),
                vec![origin.to_string(), id.to_string(), change.key.to_owned()],
            )
        });
        let possible = match (doubled || undone, done) {
            // The place of the run is unknown.
            (true, _) => fates::ALL.to_vec(),
            (false, true) => vec![Fate::Done],
            (false, false) => {
                let mut possible = self.copies_of(group, id, origin, hidden);
                possible.extend(only_logged.then_some(Fate::Dropped));
                possible.extend(unwanted.then_some(Fate::Cancelled));
                possible
            }
        };
        let handling = self.handled.entry((group, origin)).or_default();
        // A resent message is no longer unique, so its end does not free the name.
        if !possible.contains(&Fate::Retried) && handling.lives.is_empty() {
            handling.over = Some(self.now);
        }
        possible
    }

    /// Invariant 1: each time a message counts as settled through a copy, it is a different copy.
    fn copied(&mut self, group: usize, origin: MessageId, hidden: Hidden<'_>) {
        let hides = [Lane::Retry, Lane::Dead].map(|lane| self.hidden_copies(group, origin, lane, hidden));
        // Both places of a duplicated message have the same copy.
        let doubled = self.doubled.contains(&origin);
        let handling = self.handled.entry((group, origin)).or_default();
        handling.copied += 1;
        let known = handling.retries.iter().chain(&handling.dead);
        let copies: std::collections::BTreeSet<&MessageId> = known.chain(hides.iter().flatten()).collect();
        let (copied, copies) = (handling.copied, copies.len().saturating_sub(handling.lives.len()));
        self.check(Invariant::NothingLost, doubled || copied <= copies, |_| {
            let what =
                format!("{origin} counts as settled by a copy {copied} times, and has {copies} copies");
            (what, vec![origin.to_string()])
        });
    }

    /// Returns which kinds of copies of this message, or of this copy, are in the log: a retry, a dead
    /// letter, or both if a worker made one and died, and the next made the other.
    fn copies_of(&self, group: usize, id: MessageId, origin: MessageId, hidden: Hidden<'_>) -> Vec<Fate> {
        let (retries, dead, lives) =
            self.handled.get(&(group, origin)).map_or((&[][..], &[][..], &[][..]), |handling| {
                (&handling.retries, &handling.dead, &handling.lives)
            });
        // Each copy is made from the previous one, so copies are numbered by arrival.
        let depth = retries.iter().position(|copy| *copy == id).map_or(0, |at| at + 1);
        // A dead letter from before the last resend does not count.
        let before = lives.iter().rfind(|(begins, _)| *begins <= depth).map_or(0, |(_, dead)| *dead);
        let hides = |lane, known: &[MessageId]| {
            self.hidden_copies(group, origin, lane, hidden).iter().any(|copy| !known.contains(copy))
        };
        let retried = retries.len() > depth || hides(Lane::Retry, retries);
        let dead = dead.len() > before || hides(Lane::Dead, dead);
        [(retried, Fate::Retried), (dead, Fate::Dead)]
            .into_iter()
            .filter_map(|(is, fate)| is.then_some(fate))
            .collect()
    }

    /// Returns true if the dead letter of this message is in the log.
    pub(super) fn is_dead(&self, group: usize, origin: MessageId, hidden: Hidden<'_>) -> bool {
        self.handled.get(&(group, origin)).is_some_and(|handling| !handling.dead.is_empty())
            || !self.hidden_copies(group, origin, Lane::Dead, hidden).is_empty()
    }

    /// Returns the copies of this message on a lane that are not readable yet.
    pub(super) fn hidden_copies(
        &self,
        group: usize,
        origin: MessageId,
        lane: Lane,
        hidden: Hidden<'_>,
    ) -> Vec<MessageId> {
        let number = self.origins.get(&origin);
        let topic = number.and_then(|number| self.pushed[*number].intent.topic.parse::<TopicName>().ok());
        let (Some(topic), Ok(name)) = (topic, self.rules.groups[group].name.parse()) else {
            return Vec::new();
        };
        let records = hidden(&topic.lane(&name, lane));
        let of_it = records.iter().filter(|record| record.message.origin() == origin);
        of_it.map(|record| record.message.id).collect()
    }
}
