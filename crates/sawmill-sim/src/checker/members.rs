//! Checks member entries: only their own worker renews them, others delete them only after a full TTL of
//! silence, and a deleted entry is not used again. For all entries: versions only grow.

use std::time::Duration;

use sawmill::engine::model::Member;

use super::book::{Book, MemberRecord};
use super::invariant::Invariant;
use super::shards::Written;

impl Book {
    /// Checks that versions only grow, and that every change follows the one before it.
    pub(super) fn version_grows(&mut self, written: &Written<'_>) {
        let key = written.key.as_str();
        let known = self.versions.get(key).copied();
        let before = written.old.map(|entry| entry.version.0);
        let now = written.version.0;
        let deleted = written.value.is_none();
        let grows = known == before && before.is_none_or(|before| now > before || (deleted && now == before));
        self.check(Invariant::StaleWriter, grows, |_| {
            let what = format!("{key} was at version {known:?}, and a write on {before:?} made it {now}");
            (what, vec![key.to_owned()])
        });
        if deleted {
            self.versions.remove(key);
        } else {
            self.versions.insert(key.to_owned(), now);
        }
    }

    /// Checks a write to a member entry.
    pub(super) fn member_written(&mut self, written: &Written<'_>) {
        let Written { at, node, key, .. } = *written;
        let text = key.as_str().to_owned();
        let about = vec![text.clone()];
        if written.old.is_none() && written.value.is_none() {
            // Deleting a missing entry changes nothing.
            return;
        }
        let Some(seen) = self.members.get(&text) else {
            self.members.insert(text, MemberRecord { node, renewed: at, there: true });
            return;
        };
        let (owner, renewed, there) = (seen.node, seen.renewed, seen.there);
        if !there {
            return self.wrong(
                Invariant::StaleWriter,
                format!("{text} was deleted, and is there again"),
                about,
            );
        }
        let deleted = written.value.is_none();
        self.keep_renewal(&text, renewed);
        if deleted && self.is_next_life(node, owner) {
            // The owner of the journal knows that its previous incarnation has ended.
        } else if deleted && node != owner {
            let silent = at - renewed;
            // A member is judged by its own TTL, on the clock of the judging node.
            let own = written.old.and_then(|old| Member::decode(&old.key, &old.value).ok());
            let ttl = own.map_or(self.rules.ttl, |member| Duration::from_millis(member.ttl_ms));
            let ttl = ttl * 1000 / self.rules.fastest;
            self.check(Invariant::Drains, silent >= ttl, |_| {
                let what = format!(
                    "{text} was declared dead by {node} after {silent:?} of silence; the TTL is {ttl:?}"
                );
                (what, about)
            });
        } else {
            self.check(Invariant::StaleWriter, node == owner, |_| {
                (format!("{text} belongs to {owner}, and {node} renewed it"), about)
            });
        }
        if let Some(seen) = self.members.get_mut(&text) {
            seen.there = !deleted;
            seen.renewed = at;
        }
    }
}
