//! Checks what may not start although slots are free: messages of a paused group, or of a group at its limit.

use std::time::Duration;

use sawmill::engine::model::Token;

use super::book::{Book, Place, Run, Started};
use super::invariant::Invariant;

impl Book {
    /// Records that a pause was acknowledged. A worker that has not noticed it stops by itself, at most a TTL
    /// after its last refresh.
    pub fn paused(&mut self, group: usize, topic: &str, at: Duration) {
        let from = at + self.rules.ttl;
        self.held_up.insert((group, topic.to_owned()));
        self.paused.entry((group, topic.to_owned())).or_insert(from);
    }

    /// Records that the group is about to be resumed.
    pub fn resumed(&mut self, group: usize, topic: &str) {
        self.paused.remove(&(group, topic.to_owned()));
    }

    /// Invariant 14.
    pub(super) fn not_paused(&mut self, group: usize, started: &Started<'_>) {
        let from = self.paused.get(&(group, started.topic.to_owned())).copied();
        let Some(from) = from else { return };
        self.check(Invariant::Paused, started.at <= from, |_| {
            let late = started.at.saturating_sub(from);
            let what = format!(
                "{} was started {late:?} after every worker must have known that {} is paused",
                started.origin, started.topic
            );
            (what, vec![started.origin.to_string()])
        });
    }

    /// Returns the worker whose claim a message is started under.
    pub(super) fn worker_of(&self, group: usize, place: Place, token: Token) -> Option<String> {
        let claims = &self.mirror(group, place)?.state.claims;
        let claim = claims.iter().find(|claim| claim.token == token)?;
        claim.owner.as_ref().map(|owner| owner.as_str().to_owned())
    }

    /// Invariant 15. Runs of a worker that was declared dead do not count.
    pub(super) fn within_limits(&mut self, group: usize, started: &Started<'_>) {
        let limit = self.rules.groups[group].limit;
        if let Some(limit) = limit {
            let running =
                self.runs.iter().filter(|run| run.how.is_none() && self.counts(group, started, run));
            let running = running.count();
            self.check(Invariant::Limited, running <= limit, |_| {
                let what = format!("{running} messages of {} run at once, and {limit} may", started.topic);
                (what, vec![started.origin.to_string()])
            });
        }
        // Also checks longer windows, in which saved-up starts cannot hide a rate that is too high.
        for seconds in [1, 5, 20] {
            self.within_rate(group, started, seconds);
        }
    }

    fn within_rate(&mut self, group: usize, started: &Started<'_>, seconds: usize) {
        let Some(rate) = self.rules.groups[group].rate else { return };
        let since = started.at.saturating_sub(Duration::from_secs(seconds as u64));
        let lately = self.runs.iter().rev().take_while(|run| run.at > since);
        let lately = lately.filter(|run| self.counts(group, started, run)).count();
        // Each worker that shares the rate may have saved up one start, or a tenth of a second's worth.
        let most = rate * seconds + rate / 5 + 8;
        self.check(Invariant::Limited, lately <= most, |_| {
            let what = format!(
                "{lately} messages of {} started within {seconds} s, and {rate} may in each second",
                started.topic
            );
            (what, vec![started.origin.to_string()])
        });
    }

    /// Returns true if this run is of the same topic, and its worker is a member of the group.
    fn counts(&self, group: usize, started: &Started<'_>, run: &Run) -> bool {
        let number = self.origins.get(&run.origin);
        let same = number.is_some_and(|number| self.pushed[*number].intent.topic == started.topic);
        same && self.member(group, &run.worker).is_some_and(|member| member.there)
    }
}
