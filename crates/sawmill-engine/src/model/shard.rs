//! Shards: the placement of messages, and the state that a group keeps of each shard.
//!
//! A group's whole knowledge of a shard, its cursor and its claims, is one value in the ledger, which is
//! changed by one compare-and-set write. The changes are here, as pure functions on that value: claim, settle,
//! adopt, give back.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::claim::is_zero;
use super::format::{self, Format};
use super::{Claim, Progress, Token, WorkerId};
use super::{EntryKey, Position, Span};
use crate::fault;
use crate::{Error, ErrorKind, Result};

/// Computes a hash that is the same on every machine and in every version: FNV-1a over the parts, then mixed.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in *part {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // A separator between the parts, so that "ab" + "c" is not "a" + "bc".
        hash = (hash ^ 0xff).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Returns the shard of a key.
pub fn shard_of(key: &[u8], shards: u16) -> u16 {
    (hash(&[key]) % u64::from(shards.max(1))) as u16
}

/// The greatest valid token. No shard will ever issue as many.
const LAST_TOKEN: u64 = 1 << 62;

/// A group's knowledge of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardState {
    /// The format of the entry. The entry is never written in an older one.
    #[serde(skip)]
    pub format: Format,
    /// The position up to which messages have been claimed.
    pub cursor: Position,
    /// The last token that was issued.
    pub token: Token,
    /// The open claims, oldest first.
    pub claims: Vec<Claim>,
    /// The outcomes of the messages that were settled.
    pub tally: Tally,
    /// The number of times that a person has moved the cursor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pass: u32,
    /// The number of cancellations of messages that may be in this shard. A worker that sees it grow must
    /// find out which messages were cancelled before it takes a block or hands one out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cancels: u32,
    /// In [`Format::NEXT`]: the number of times that the entry was written in that format.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub writes: u32,
}

/// The value of an entry in a format after the first. A program that predates formats does not find the
/// fields of a state in it, and refuses it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrappedState<State> {
    format: Format,
    state: State,
}

/// The beginning of every value in a format after the first.
const WRAPPED_PREFIX: &[u8] = br#"{"format":"#;

/// The number of messages with each outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Messages whose handler reported them as done.
    pub done: u64,
    /// Messages that failed, and wait on the retry lane for their next attempt.
    pub retried: u64,
    /// Messages on the dead-letter lane.
    pub dead: u64,
    /// Messages that failed for good in a group that only logs this, or that were gone from the log.
    pub dropped: u64,
    /// Messages that a person has cancelled.
    #[serde(default)]
    pub cancelled: u64,
}

impl Tally {
    fn count(&mut self, fate: Fate, messages: u64) {
        let counter = match fate {
            Fate::Done => &mut self.done,
            Fate::Retried if fault!(CountsSwapped) => &mut self.dead,
            Fate::Cancelled if fault!(CancelledCountsAsDropped) => &mut self.dropped,
            Fate::Dead if fault!(DeadCountsAsDropped) => &mut self.dropped,
            Fate::Retried => &mut self.retried,
            Fate::Dead => &mut self.dead,
            Fate::Dropped => &mut self.dropped,
            Fate::Cancelled => &mut self.cancelled,
        };
        *counter = counter.saturating_add(messages);
    }

    /// Returns the number of all these messages.
    pub fn total(&self) -> u64 {
        self.done + self.retried + self.dead + self.dropped + self.cancelled
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.retried += other.retried;
        self.dead += other.dead;
        self.dropped += other.dropped;
        self.cancelled += other.cancelled;
    }
}

/// The outcome of one message of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// The handler reported it as done.
    Done,
    /// A copy waits on the retry lane.
    Retried,
    /// A copy is on the dead-letter lane.
    Dead,
    /// Given up. Only the program's log records it.
    Dropped,
    /// Cancelled by a person.
    Cancelled,
}

/// A worker's report on one of its claims. It is complete each time, so that a repeated report changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The token of the claim.
    pub token: Token,
    /// The outcomes of its messages, by index.
    pub fates: BTreeMap<Fate, Progress>,
    /// The number of failures of each message that waits in place, by index.
    pub failures: BTreeMap<u32, u32>,
}

/// The two settings of a group that affect claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// Only the worker that holds a shard's open claims may claim from it.
    pub ordered: bool,
    /// At-most-once: messages that a dead worker claimed are not run again.
    pub once: bool,
}

/// A block that was read and should be claimed.
#[derive(Debug, Clone)]
pub struct NewClaim {
    /// The span with which the log reads the block again.
    pub span: Span,
    /// The position after the block.
    pub end: Position,
    /// The number of messages in the block.
    pub count: u32,
}

/// The reason why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another worker holds the shard of an ordered group.
    HeldByAnother,
    /// The claim is no longer this worker's.
    Superseded,
}

impl ShardState {
    /// Decodes the state in an entry's value. It never panics, whatever is stored there.
    pub fn decode(key: &EntryKey, value: &[u8]) -> Result<Self> {
        let state = Self::parse(value).map_err(|error| undecodable(key, value, error))?;
        if state.format > Format::DECODED {
            return Err(too_new(key, state.format));
        }
        if state.token.0 > LAST_TOKEN {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("ledger entry {key}: token {} cannot be", state.token),
            ));
        }
        let is_sound =
            |claim: &Claim| claim.done.is_sound(claim.count) && claim.started.is_sound(claim.count);
        match state.claims.iter().find(|claim| !is_sound(claim)) {
            None => Ok(state),
            Some(claim) => Err(Error::new(
                ErrorKind::Corrupt,
                format!("ledger entry {key}: the progress of claim {} contradicts itself", claim.token),
            )),
        }
    }

    fn parse(value: &[u8]) -> serde_json::Result<Self> {
        if !value.starts_with(WRAPPED_PREFIX) {
            return serde_json::from_slice(value);
        }
        let WrappedState { format, state } = serde_json::from_slice::<WrappedState<Self>>(value)?;
        Ok(Self { format, ..state })
    }

    /// Encodes the value to store.
    pub fn encode(&self) -> Bytes {
        // The type has only string keys and plain values, so serialization cannot fail.
        let value = match self.format.is_first() {
            true => serde_json::to_vec(self),
            false => serde_json::to_vec(&WrappedState { format: self.format, state: self }),
        };
        value.unwrap_or_default().into()
    }

    /// Prepares the state to be written in this format, or in its own format if that is newer.
    pub fn raise(&mut self, format: Format) {
        self.format = self.format.max(format);
        #[cfg(any(test, feature = "next-format"))]
        if self.format >= Format::NEXT {
            self.writes = self.writes.saturating_add(1);
            for claim in &mut self.claims {
                claim.stamp.get_or_insert(claim.token);
            }
        }
    }

    /// Drops the fields of formats after the first, as a program does that ignores unknown fields.
    #[doc(hidden)]
    pub fn forget_formats(&mut self) {
        self.format = Format::FIRST;
        #[cfg(any(test, feature = "next-format"))]
        {
            self.writes = 0;
            self.claims.iter_mut().for_each(|claim| claim.stamp = None);
        }
    }

    /// Returns true if this worker may take the next block.
    pub fn may_claim(&self, worker: &WorkerId, rules: Rules) -> bool {
        let mine = |claim: &Claim| claim.owner.as_ref() == Some(worker);
        !rules.ordered || fault!(OrderedClaimsAnyway) || self.claims.iter().all(mine)
    }

    /// Opens a claim on the next block and moves the cursor past it.
    pub fn claim_block(&mut self, worker: &WorkerId, rules: Rules, new: &NewClaim) -> Result<Token, Refusal> {
        if !self.may_claim(worker, rules) {
            return Err(Refusal::HeldByAnother);
        }
        self.token.0 += 1;
        let from = std::mem::replace(&mut self.cursor, new.end.clone());
        self.claims.push(Claim {
            token: self.token,
            owner: Some(worker.clone()),
            from,
            span: new.span.clone(),
            count: new.count,
            done: Progress::default(),
            failures: BTreeMap::new(),
            pass: self.pass,
            deaths: 0,
            once: rules.once,
            lost: false,
            started: Progress::default(),
            #[cfg(any(test, feature = "next-format"))]
            stamp: None,
        });
        Ok(self.token)
    }

    /// Records a worker's report in its claim, and closes the claim when nothing is left to do. Returns true
    /// if it was closed.
    pub fn settle(&mut self, worker: &WorkerId, report: &Report) -> Result<bool, Refusal> {
        let owns = |claim: &Claim| claim.owner.as_ref() == Some(worker) || fault!(DroppedFence);
        let found = self.claims.iter().position(|claim| claim.token == report.token && owns(claim));
        let at = found.ok_or(Refusal::Superseded)?;
        let claim = &mut self.claims[at];
        for (fate, indexes) in &report.fates {
            self.tally.count(*fate, claim.done.absorb(indexes));
        }
        claim.failures.clone_from(&report.failures);
        let closed = claim.open() == 0;
        if closed {
            self.claims.remove(at);
        }
        Ok(closed)
    }

    /// Takes over the claims of owners that are gone, each under a new token, and returns them as they are
    /// now.
    ///
    /// In an ordered group, it takes over all claims or none: all if each of them belongs to this worker, to
    /// an owner that is gone, or to nobody. The adopter thereby becomes the shard's only holder.
    pub fn adopt(
        &mut self,
        worker: &WorkerId,
        rules: Rules,
        is_gone: impl Fn(&WorkerId) -> bool,
    ) -> Vec<Claim> {
        self.adopt_some(worker, rules, u64::MAX, |owner| owner.is_none_or(&is_gone))
    }

    /// Adopts claims like [`adopt`](ShardState::adopt), but stops once their messages that are not done reach
    /// `most`, and takes only claims whose owner, or lack of one, is `wanted`. In an ordered group, it takes
    /// over all claims or none.
    pub fn adopt_some(
        &mut self,
        worker: &WorkerId,
        rules: Rules,
        most: u64,
        wanted: impl Fn(Option<&WorkerId>) -> bool,
    ) -> Vec<Claim> {
        let is_orphan = |owner: Option<&WorkerId>| owner != Some(worker) && wanted(owner);
        self.take_over(worker, rules, most, is_orphan, |claim| {
            claim.deaths = claim.deaths.saturating_add(u32::from(!fault!(DeathsUncounted)));
            claim.lost |= claim.once && !fault!(LostRunsAgain);
        })
    }

    /// Takes over the claims of owners that are gone and whose started messages are known, each under a new
    /// token, and returns them as they are now. Messages that were started under at-most-once and not done
    /// are lost; the rest may run. Ordered groups have the same rule as in [`adopt`](ShardState::adopt).
    ///
    /// `started` returns the indexes of the messages that a claim's owner had started, done or not.
    pub fn recover(
        &mut self,
        worker: &WorkerId,
        rules: Rules,
        is_known: impl Fn(&WorkerId) -> bool,
        started: impl Fn(&Claim) -> Progress,
    ) -> Vec<Claim> {
        let is_orphan =
            |owner: Option<&WorkerId>| owner.is_none_or(|owner| owner != worker && is_known(owner));
        self.take_over(worker, rules, u64::MAX, is_orphan, |claim| {
            if claim.once {
                let open = started(claim).iter().filter(|index| !claim.done.contains(*index)).collect();
                claim.started.absorb(&open);
            } else {
                claim.deaths = claim.deaths.saturating_add(1);
            }
        })
    }

    /// Takes over claims whose owner makes them orphans, until `most` messages are reached. Claims that have
    /// an owner are marked first.
    fn take_over(
        &mut self,
        worker: &WorkerId,
        rules: Rules,
        most: u64,
        is_orphan: impl Fn(Option<&WorkerId>) -> bool,
        mark: impl Fn(&mut Claim),
    ) -> Vec<Claim> {
        let orphan = |claim: &Claim| is_orphan(claim.owner.as_ref());
        let holds = |claim: &Claim| claim.owner.as_ref() == Some(worker);
        if rules.ordered && !self.claims.iter().all(|claim| orphan(claim) || holds(claim)) {
            return Vec::new();
        }
        let (mut taken, mut open) = (Vec::new(), 0);
        for claim in &mut self.claims {
            if !orphan(claim) || (open >= most && !rules.ordered) {
                continue;
            }
            open += claim.open();
            if claim.owner.is_some() || fault!(GivenBackIsLost) {
                mark(claim);
            }
            if !fault!(DroppedFence) {
                self.token.0 += 1;
                claim.token = self.token;
            }
            claim.owner = Some(worker.clone());
            taken.push(claim.clone());
        }
        taken
    }

    /// Moves the cursor. Messages after the position are claimed from now on, even if they were claimed
    /// before. Open claims stay.
    pub fn seek(&mut self, to: Position) {
        self.cursor = to;
        self.pass = self.pass.saturating_add(1);
    }

    /// Gives a claim back, so that any worker can adopt it at once. None of its messages that are not done
    /// may have been started.
    pub fn give_back(&mut self, worker: &WorkerId, token: Token) -> Result<(), Refusal> {
        let fence = |claim: &&mut Claim| claim.token == token && claim.owner.as_ref() == Some(worker);
        self.claims.iter_mut().find(fence).ok_or(Refusal::Superseded)?.owner = None;
        Ok(())
    }

    /// Returns the number of messages that are claimed and not done.
    pub fn claimed(&self) -> u64 {
        self.claims.iter().map(Claim::open).sum()
    }

    /// Returns the positions before which this group needs nothing any more: its cursor, and the beginning of
    /// each open claim.
    pub fn needed_from(&self) -> impl Iterator<Item = &Position> {
        std::iter::once(&self.cursor).chain(self.claims.iter().map(|claim| &claim.from))
    }
}

fn too_new(key: &EntryKey, format: Format) -> Error {
    format::outdated(format_args!("ledger entry {key} has"), format, Format::NEWEST)
}

/// Makes the error for an entry whose value cannot be read. It names the format if that is too new.
fn undecodable(key: &EntryKey, value: &[u8], error: serde_json::Error) -> Error {
    #[derive(Deserialize)]
    struct Declared {
        #[serde(default)]
        format: Format,
    }
    let format = serde_json::from_slice(value).map_or(Format::FIRST, |Declared { format }| format);
    if format > Format::DECODED {
        return too_new(key, format);
    }
    let what = format!(
        "ledger entry {key} in format {format} cannot be decoded: this program (sawmill {}) understands formats up to {}; \
         upgrade the program if a newer version wrote the entry",
        env!("CARGO_PKG_VERSION"),
        Format::NEWEST
    );
    Error::new(ErrorKind::Corrupt, what).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: Rules = Rules { ordered: true, once: false };
    const UNORDERED: Rules = Rules { ordered: false, once: false };
    const ONCE: Rules = Rules { ordered: false, once: true };

    fn worker(name: &str) -> WorkerId {
        WorkerId::new(name)
    }

    fn block(end: u64, count: u32) -> NewClaim {
        let after = end - u64::from(count);
        NewClaim {
            span: Span::from_range(after, end, count as usize),
            end: Position::from_number(end),
            count,
        }
    }

    fn report(token: Token, done: &[u32]) -> Report {
        let fates = [(Fate::Done, done.iter().copied().collect())].into();
        Report { token, fates, failures: BTreeMap::new() }
    }

    #[test]
    fn a_key_has_one_shard_and_keys_spread() {
        let mut used = [0; 16];
        for i in 0..16_000 {
            used[usize::from(shard_of(format!("key {i}").as_bytes(), 16))] += 1;
        }
        assert!(used.iter().all(|count| (800..1200).contains(count)), "{used:?}");
        // Stored data depends on this: it must never change.
        assert_eq!(shard_of(b"alice", 16), 11);
    }

    #[test]
    fn f2_a_claim_moves_the_cursor_and_opens_a_claim_in_one_change() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), UNORDERED, &block(10, 10)).unwrap();
        assert_eq!(state.cursor, Position::from_number(10));
        assert_eq!((state.claims[0].token, state.claims[0].from.clone()), (token, Position::default()));
        assert_eq!(state.claimed(), 10);
    }

    #[test]
    fn tokens_only_grow() {
        let mut state = ShardState::default();
        let first = state.claim_block(&worker("a"), UNORDERED, &block(1, 1)).unwrap();
        state.settle(&worker("a"), &report(first, &[0])).unwrap();
        let second = state.claim_block(&worker("b"), UNORDERED, &block(2, 1)).unwrap();
        let adopted = state.adopt(&worker("c"), UNORDERED, |owner| owner == &worker("b"));
        assert!(first < second && second < adopted[0].token);
    }

    #[test]
    fn a_claim_is_closed_when_all_is_done_and_counted_once() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), UNORDERED, &block(3, 3)).unwrap();
        assert_eq!(state.settle(&worker("a"), &report(token, &[0, 2])), Ok(false));
        assert_eq!(state.settle(&worker("a"), &report(token, &[0, 2])), Ok(false));
        assert_eq!(state.tally.done, 2);
        assert_eq!(state.settle(&worker("a"), &report(token, &[0, 1, 2])), Ok(true));
        assert_eq!((state.tally.done, state.claimed()), (3, 0));
    }

    #[test]
    fn f14_a_superseded_worker_changes_nothing() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), UNORDERED, &block(3, 3)).unwrap();
        let adopted = state.adopt(&worker("b"), UNORDERED, |_| true);
        let before = state.clone();
        assert_eq!(state.settle(&worker("a"), &report(token, &[0])), Err(Refusal::Superseded));
        assert_eq!(state.settle(&worker("a"), &report(adopted[0].token, &[0])), Err(Refusal::Superseded));
        assert_eq!(state.give_back(&worker("a"), token), Err(Refusal::Superseded));
        assert_eq!(state, before);
    }

    #[test]
    fn an_ordered_shard_has_one_holder() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), ORDERED, &block(3, 3)).unwrap();
        assert_eq!(state.claim_block(&worker("b"), ORDERED, &block(6, 3)), Err(Refusal::HeldByAnother));
        assert!(state.claim_block(&worker("a"), ORDERED, &block(6, 3)).is_ok());
        assert!(state.adopt(&worker("b"), ORDERED, |_| false).is_empty());
        // One of the two is given back, but the shard is still held.
        state.give_back(&worker("a"), token).unwrap();
        assert!(state.adopt(&worker("b"), ORDERED, |_| false).is_empty());
        assert_eq!(state.claim_block(&worker("b"), ORDERED, &block(9, 3)), Err(Refusal::HeldByAnother));
        let adopted = state.adopt(&worker("b"), ORDERED, |_| true);
        assert_eq!(adopted.len(), 2, "all of them at once, oldest first");
        assert!(adopted[0].from == Position::default() && adopted[0].token < adopted[1].token);
    }

    #[test]
    fn a_dead_owners_claim_is_lost_under_at_most_once_and_stays_so() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), ONCE, &block(3, 3)).unwrap();
        state.settle(&worker("a"), &report(token, &[1])).unwrap();
        let adopted = state.adopt(&worker("b"), UNORDERED, |_| true);
        assert!(adopted[0].lost, "by the rule under which it was opened");
        state.give_back(&worker("b"), adopted[0].token).unwrap();
        assert!(state.adopt(&worker("c"), ONCE, |_| false)[0].lost);
    }

    #[test]
    fn g16_of_a_recovered_claim_only_what_was_started_and_not_done_is_lost() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), ONCE, &block(5, 5)).unwrap();
        state.claim_block(&worker("other"), ONCE, &block(8, 3)).unwrap();
        state.settle(&worker("a"), &report(token, &[0])).unwrap();
        let is_a = |owner: &WorkerId| owner == &worker("a");
        let recovered = state.recover(&worker("b"), ONCE, is_a, |_| [0, 1].into_iter().collect());
        assert_eq!(recovered.len(), 1, "claims of others are left alone");
        let claim = &state.claims[0];
        assert_eq!(claim, &recovered[0]);
        assert_eq!(claim.owner, Some(worker("b")));
        assert_eq!(claim.started.iter().collect::<Vec<_>>(), [1]);
        assert!(!claim.lost && claim.deaths == 0 && claim.token > state.claims[1].token);
        assert_eq!(state.settle(&worker("a"), &report(token, &[0, 1])), Err(Refusal::Superseded));

        // The next incarnation has started one more. Known starts stay known, even if the claim is given
        // back.
        let is_b = |owner: &WorkerId| owner == &worker("b");
        let again = state.recover(&worker("c"), ONCE, is_b, |_| [3].into_iter().collect());
        state.give_back(&worker("c"), again[0].token).unwrap();
        let adopted = state.adopt(&worker("d"), ONCE, |_| false);
        assert_eq!(adopted[0].started.iter().collect::<Vec<_>>(), [1, 3]);
        assert!(!adopted[0].lost);
        let key = EntryKey::raw("shards/t1/g/0000");
        assert_eq!(ShardState::decode(&key, &state.encode()).unwrap(), state);
    }

    #[test]
    fn g16_what_others_have_adopted_is_not_recovered_and_what_is_lost_stays_lost() {
        let mut state = ShardState::default();
        state.claim_block(&worker("a"), ONCE, &block(5, 5)).unwrap();
        let is_a = |owner: &WorkerId| owner == &worker("a");
        state.adopt(&worker("b"), ONCE, is_a);
        let before = state.clone();
        assert!(state.recover(&worker("c"), ONCE, is_a, |_| Progress::default()).is_empty());
        assert_eq!(state, before);
        let is_b = |owner: &WorkerId| owner == &worker("b");
        assert!(state.recover(&worker("c"), ONCE, is_b, |_| Progress::default())[0].lost);
    }

    #[test]
    fn g16_a_claim_of_an_at_least_once_group_is_run_again_whoever_takes_it_over() {
        let mut state = ShardState::default();
        state.claim_block(&worker("a"), UNORDERED, &block(5, 5)).unwrap();
        let recovered = state.recover(&worker("b"), ONCE, |_| true, |_| [0].into_iter().collect());
        assert!(recovered[0].started.is_empty() && recovered[0].deaths == 1);
    }

    #[test]
    fn g16_an_ordered_shard_is_recovered_as_a_whole_or_not_at_all() {
        let once = Rules { ordered: true, once: true };
        let mut state = ShardState::default();
        let first = state.claim_block(&worker("a"), once, &block(3, 3)).unwrap();
        state.claim_block(&worker("a"), once, &block(6, 3)).unwrap();
        state.give_back(&worker("a"), first).unwrap();
        assert!(state.recover(&worker("b"), once, |_| false, |_| Progress::default()).is_empty());
        let is_a = |owner: &WorkerId| owner == &worker("a");
        let recovered = state.recover(&worker("b"), once, is_a, |_| (0..3).collect());
        assert_eq!(recovered.len(), 2, "what was given back comes before what is newer");
        assert!(recovered[0].started.is_empty(), "of what was given back nothing was started");
        assert_eq!(recovered[1].started.len(), 3);
    }

    #[test]
    fn what_was_given_back_is_not_lost() {
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), ONCE, &block(3, 3)).unwrap();
        state.give_back(&worker("a"), token).unwrap();
        let adopted = state.adopt(&worker("b"), ONCE, |_| false);
        assert!(!adopted[0].lost && adopted[0].deaths == 0);
    }

    #[test]
    fn no_more_is_adopted_than_is_wanted() {
        let mut state = ShardState::default();
        for (owner, end) in [("a", 1), ("b", 2), ("c", 3), ("b", 4)] {
            state.claim_block(&worker(owner), UNORDERED, &block(end, 1)).unwrap();
        }
        let of_b = |owner: Option<&WorkerId>| owner == Some(&worker("b"));
        assert_eq!(state.adopt_some(&worker("x"), UNORDERED, 1, of_b).len(), 1);
        assert_eq!(state.adopt_some(&worker("x"), UNORDERED, 0, |_| true), []);
        assert_eq!(state.adopt_some(&worker("x"), UNORDERED, 9, |_| true).len(), 3, "its own it has already");
        let mut ordered = ShardState::default();
        for end in [1, 2] {
            ordered.claim_block(&worker("a"), ORDERED, &block(end, 1)).unwrap();
        }
        assert_eq!(ordered.adopt_some(&worker("x"), ORDERED, 1, |_| true).len(), 2, "all or none");
    }

    #[test]
    fn seeking_moves_the_cursor_and_leaves_claims_open() {
        let mut state = ShardState::default();
        state.claim_block(&worker("a"), UNORDERED, &block(3, 3)).unwrap();
        state.seek(Position::default());
        let again = state.claim_block(&worker("b"), UNORDERED, &block(3, 3)).unwrap();
        let passes: Vec<u32> = state.claims.iter().map(|claim| claim.pass).collect();
        assert_eq!((passes, state.claimed()), (vec![0, 1], 6));
        state.settle(&worker("b"), &report(again, &[0, 1, 2])).unwrap();
        assert_eq!((state.tally.done, state.cursor), (3, Position::from_number(3)));
    }

    #[test]
    fn a_state_is_read_back_and_nonsense_is_refused() {
        let key = EntryKey::raw("shards/t1/g/0000");
        let mut state = ShardState::default();
        let token = state.claim_block(&worker("a"), ONCE, &block(3, 3)).unwrap();
        state.settle(&worker("a"), &report(token, &[0, 2])).unwrap();
        assert_eq!(ShardState::decode(&key, &state.encode()).unwrap(), state);
        for value in ["", "{}", "null", r#"{"cursor":"x","token":1,"claims":[],"tally":{}}"#] {
            let error = ShardState::decode(&key, value.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("shards/t1/g/0000"), "{error}");
        }
        let broken = String::from_utf8(state.encode().to_vec()).unwrap().replace("[2,2]", "[2,9]");
        assert!(ShardState::decode(&key, broken.as_bytes()).is_err());
    }
}
