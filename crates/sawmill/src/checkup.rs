//! A check-up: what is wrong with a store that nobody says by themselves, and what to do about it.
//!
//! It looks twice, a TTL apart: who has not beaten in between is silent, and what the silent or the gone hold is stuck if it is still
//! held when it is looked at once more. A store where all is well has nothing to report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{join, try_join};
use serde::Serialize;

use crate::claim::{Claim, WorkerId};
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::ledger::{EntryKey, Version};
use crate::member::Member;
use crate::message::MessageId;
use crate::mill::Sawmill;
use crate::topic::{GroupName, Lane, Topic};
use crate::words;

/// How often a message that waits in place has failed when its key is said to be blocked.
const BLOCKED_AFTER: u32 = 3;
/// How far clocks may be apart: by as much, due times are wrong.
const SKEW: Duration = Duration::from_secs(2);
const KEEP_TIME: &str = "have both machines keep the time (NTP): messages are started too early or too late";
/// A key is hot if half of so many messages have it: they are worked one after another, whatever the number of workers.
const HOT_AMONG: usize = 200;
/// How long to look where nobody says how long they may be silent.
const USUAL_TTL: Duration = Duration::from_secs(10);
/// How long the others of a group may take, after its TTL is over, until they work what a dead one held.
const TAKEOVER: Duration = Duration::from_secs(5);
/// The check of what could not be checked.
const NOT_CHECKED: &str = "not-checked";

/// Something that is wrong, or that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked: `stuck-claim`, `blocked-key`, `hot-key`, `clock-skew`, `held-back-trim`; or, by the engine, `durability`,
    /// `held-transaction`, `rights`, `no-hints`. And `not-checked` for what could not be.
    pub check: &'static str,
    /// The topic, if it is about one.
    pub topic: Option<String>,
    /// The group, if it is about one.
    pub group: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub what_to_do: String,
    /// What it is said of, if the words may be others the next time.
    #[serde(skip)]
    subject: Option<String>,
}

impl Finding {
    /// Something that is wrong with the store as such. Log and ledger may be at one place, and each is asked: said of the same thing
    /// twice, the words must be the same.
    pub fn new(check: &'static str, what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self {
            check,
            topic: None,
            group: None,
            what: what.into(),
            what_to_do: what_to_do.into(),
            subject: None,
        }
    }

    /// Something that could not be looked at, and what to do to have it looked at. Nobody knows that anything is wrong.
    pub fn not_checked(what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(NOT_CHECKED, what, what_to_do)
    }

    /// True if something is wrong; false if that could not be found out.
    ///
    /// ```
    /// use sawmill::Finding;
    ///
    /// assert!(Finding::new("durability", "the disk is full of holes", "buy another").is_problem());
    /// assert!(!Finding::not_checked("nobody may look at the disk", "allow it").is_problem());
    /// ```
    pub fn is_problem(&self) -> bool {
        self.check != NOT_CHECKED
    }

    /// What is wrong with a store's clock, which was read between these two times of this machine's, if anything is.
    pub fn of_clock(store: &str, clock: Timestamp, (before, after): (Timestamp, Timestamp)) -> Option<Self> {
        let (apart, which) = apart(clock, (before, after));
        (apart > SKEW).then(|| {
            let what = format!("the clock of {store} is {} {which} this machine's", words::span(apart));
            Self { subject: Some(store.to_owned()), ..Self::new("clock-skew", what, KEEP_TIME) }
        })
    }

    /// True if both say the same, be it in other words.
    fn repeats(&self, other: &Self) -> bool {
        let place = |finding: &Self| (finding.check, finding.topic.clone(), finding.group.clone());
        let is_one = match (&self.subject, &other.subject) {
            (Some(one), Some(two)) => one == two,
            _ => self.what == other.what,
        };
        is_one && place(self) == place(other)
    }
}

/// How far a time is from the span of two others, and on which side.
fn apart(time: Timestamp, (before, after): (Timestamp, Timestamp)) -> (Duration, &'static str) {
    let (ahead, behind) = (time.since(after), before.since(time));
    if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") }
}

/// Who is there and what they hold, at one moment.
struct Glance {
    at: Timestamp,
    members: BTreeMap<WorkerId, Seen>,
    held: Vec<Held>,
}

/// A member as it was seen.
struct Seen {
    version: Version,
    /// Where it stands in the ledger, which tells its group.
    key: EntryKey,
    member: Member,
}

/// A claim, and where it is.
struct Held {
    topic: Topic,
    /// The topic whose workers have it: of a lane, the one that it belongs to.
    worked: String,
    group: GroupName,
    shard: u16,
    claim: Claim,
}

impl Held {
    fn is_the_same(&self, other: &Held) -> bool {
        (&self.topic.uid, &self.group, self.shard) == (&other.topic.uid, &other.group, other.shard)
            && (self.claim.token, &self.claim.owner) == (other.claim.token, &other.claim.owner)
    }

    /// True if another member that is alive could take this over.
    fn has_others(&self, first: &Glance, second: &Glance) -> bool {
        let group = EntryKey::members(&self.group);
        second.members.iter().any(|(worker, seen)| {
            Some(worker) != self.claim.owner.as_ref()
                && seen.key.as_str().starts_with(group.as_str())
                && seen.member.topics.contains(&self.worked)
                && first.members.get(worker).is_none_or(|before| before.version != seen.version)
        })
    }
}

impl Glance {
    /// True if this was held before by the same worker, which has been silent since then, for so long, or is gone.
    fn is_left(&self, held: &Held, first: &Glance, waited: Duration) -> bool {
        let Some(owner) = &held.claim.owner else { return false };
        let is_silent = match (first.members.get(owner), self.members.get(owner)) {
            (_, None) => true,
            (Some(before), Some(now)) => {
                before.version == now.version && Duration::from_millis(before.member.ttl_ms) <= waited
            }
            (None, Some(_)) => false,
        };
        is_silent && first.has(held)
    }

    fn has(&self, held: &Held) -> bool {
        self.held.iter().any(|other| other.is_the_same(held))
    }
}

impl Sawmill {
    /// Looks for what is wrong with the store: claims that nobody works, keys that a failing message blocks or that most messages
    /// have, clocks that are wrong, groups that keep a topic from being trimmed; and what the engine knows of: settings under which
    /// a crash loses messages, transactions that somebody holds open, rights that are missing. It takes as long as the workers may be silent, and
    /// five seconds more if others might still take over what the silent hold, but no longer than this; who may be silent for longer
    /// is taken to be alive.
    ///
    /// What could not be looked at is told, too, and is [no problem](Finding::is_problem).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// assert!(mill.check_up(Duration::from_secs(15)).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        // What is both is asked once: there may be much to look at.
        let is_one_store = std::ptr::addr_eq(self.log(), self.ledger());
        let of_ledger =
            async { if is_one_store { Ok(Vec::new()) } else { self.ledger().check_up(patience).await } };
        // All look at the same time, since each may take as long as it may.
        let of_engines = try_join(self.log().check_up(patience), of_ledger);
        let (of_engines, of_use) = join(of_engines, self.troubles_of_use(patience)).await;
        let (mut findings, of_ledger) = of_engines?;
        for finding in of_ledger {
            if !findings.iter().any(|other| other.repeats(&finding)) {
                findings.push(finding);
            }
        }
        // Who has no rights here, or whose store is damaged, is to hear of that, and not of what comes of it.
        let has = |check: &str| findings.iter().any(|finding| finding.check == check);
        match of_use {
            Ok(more) => findings.extend(more),
            Err(_) if has("rights") => {}
            Err(error) if error.kind() == ErrorKind::Corrupt && has("durability") => {}
            Err(error) => return Err(error),
        }
        Ok(findings)
    }

    /// What shows by what is in the store, whatever the engine.
    async fn troubles_of_use(&self, patience: Duration) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let first = self.glance().await?;
        let ttls = first.members.values().map(|seen| Duration::from_millis(seen.member.ttl_ms));
        let longest = match ttls.max() {
            None if first.held.is_empty() => Duration::ZERO,
            longest => longest.unwrap_or(USUAL_TTL),
        };
        // Otherwise nobody is there, and nothing is held.
        if !longest.min(patience).is_zero() {
            self.env().sleep(longest.min(patience)).await;
            let second = self.glance().await?;
            findings.extend(self.stuck_claims(&first, &second, longest, patience).await?);
            findings.extend(skewed_clocks(&first, &second));
            findings.extend(self.blocked_keys(&second).await?);
            findings.extend(self.hot_keys(&second).await?);
        }
        findings.extend(self.held_back_trims().await?);
        Ok(findings)
    }

    /// Claims that were there at both looks, and are at a third, and whose owner is gone or did not beat in between.
    async fn stuck_claims(
        &self,
        first: &Glance,
        second: &Glance,
        longest: Duration,
        patience: Duration,
    ) -> Result<Vec<Finding>> {
        let waited = longest.min(patience);
        let left: Vec<&Held> =
            second.held.iter().filter(|held| second.is_left(held, first, waited)).collect();
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let has_others = |held: &Held| held.has_others(first, second);
        let needed = longest + TAKEOVER;
        if left.iter().any(|held| has_others(held)) {
            self.env().sleep(needed.min(patience).saturating_sub(waited)).await;
        }
        // Who left in good order while it was looked at has finished everything by now.
        let third = self.glance().await?;
        let is_stuck = |held: &&&Held| {
            third.has(held) && third.is_left(held, first, waited) && (needed <= patience || !has_others(held))
        };
        Ok(stuck(left.iter().filter(is_stuck).copied()))
    }

    async fn glance(&self) -> Result<Glance> {
        let mut held = Vec::new();
        for topic in self.topics().await? {
            let worked = topic.uid.clone();
            for group in self.groups_of(&topic).await? {
                let lane = self.log().topic(&topic.name.lane(&group, Lane::Retry)).await?;
                for topic in std::iter::once(&topic).chain(&lane) {
                    for (shard, state) in (0..).zip(self.shard_states(topic, &group).await?) {
                        held.extend(state.claims.into_iter().map(|claim| Held {
                            topic: topic.clone(),
                            worked: worked.clone(),
                            group: group.clone(),
                            shard,
                            claim,
                        }));
                    }
                }
            }
        }
        // After the claims: a worker joins before it claims, so an owner that is not there is gone.
        let mut members = BTreeMap::new();
        for entry in self.ledger().list(&EntryKey::all_members()).await? {
            let member = Member::decode(&entry)?;
            members.insert(
                WorkerId::new(entry.key.last()),
                Seen { version: entry.version, key: entry.key, member },
            );
        }
        Ok(Glance { at: self.env().wall(), members, held })
    }

    async fn blocked_keys(&self, glance: &Glance) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for held in &glance.held {
            let blocking: Vec<(u32, u32)> = held
                .claim
                .failures
                .iter()
                .filter(|(index, failed)| **failed >= BLOCKED_AFTER && !held.claim.done.contains(**index))
                .map(|(index, failed)| (*index, *failed))
                .collect();
            if blocking.is_empty() {
                continue;
            }
            let messages = match self.log().reread(&held.topic, held.shard, &held.claim.span).await {
                // Settled and trimmed, or deleted, since it was seen.
                Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::NotFound) => continue,
                messages => messages?,
            };
            for (index, failed) in blocking {
                let Some(message) = messages.get(index as usize) else { continue };
                let Some(key) = &message.key else { continue };
                findings.push(blocked(held, message.origin(), key, failed));
            }
        }
        Ok(findings)
    }

    /// Keys that most of what waits has, for groups that work in order.
    async fn hot_keys(&self, glance: &Glance) -> Result<Vec<Finding>> {
        let is_ordered = |owner: &WorkerId| glance.members.get(owner).is_some_and(|seen| seen.member.ordered);
        let of_ordered = |held: &&Held| held.claim.owner.as_ref().is_some_and(is_ordered);
        let places: BTreeSet<(&str, &GroupName)> =
            glance.held.iter().filter(of_ordered).map(|held| (held.topic.name.base(), &held.group)).collect();
        let mut findings = Vec::new();
        for (topic, group) in places {
            let waiting = self.peek(topic, &group.to_string(), HOT_AMONG).await?;
            let mut counts = BTreeMap::<&[u8], usize>::new();
            waiting.iter().filter_map(|message| message.key.as_deref()).for_each(|key| {
                *counts.entry(key).or_default() += 1;
            });
            let hottest = counts.into_iter().max_by_key(|(_, count)| *count);
            let Some((key, count)) = hottest.filter(|(_, count)| *count * 2 >= HOT_AMONG) else { continue };
            let key = String::from_utf8_lossy(key);
            findings.push(Finding {
                topic: Some(topic.to_owned()),
                group: Some(group.to_string()),
                ..Finding::new(
                    "hot-key",
                    format!(
                        "{count} of the next {} messages have the key {key:?}, and are worked one after another",
                        waiting.len()
                    ),
                    "more workers do not help: use finer keys, make each message quicker, or work without order",
                )
            });
        }
        Ok(findings)
    }

    async fn held_back_trims(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let now = self.env().wall();
        let topics = self.topics().await?;
        for look in self.look(None).await? {
            let Some(topic) = topics.iter().find(|topic| topic.name.base() == look.topic) else { continue };
            let (Some(group), Some(oldest)) = (look.group, look.status.oldest) else { continue };
            let (why, what_to_do) = match (look.status.paused, look.workers) {
                (true, _) => {
                    ("the group is paused", "resume the group, or have it skip what waits (replay from now)")
                }
                (false, 0) => (
                    "nobody works",
                    "start a worker for the group, or have it skip what waits (replay from now)",
                ),
                (false, _) => continue,
            };
            if !topic.drops_unread && now.since(oldest) > topic.retention {
                let what = format!(
                    "{} for it, the oldest for {}, and {why}: the topic keeps all since then",
                    words::counted(look.status.waiting, "message"),
                    words::span(now.since(oldest)),
                );
                findings.push(Finding {
                    topic: Some(look.topic),
                    group: Some(group),
                    ..Finding::new("held-back-trim", what, what_to_do)
                });
            }
        }
        Ok(findings)
    }
}

fn blocked(held: &Held, id: MessageId, key: &[u8], failed: u32) -> Finding {
    let key = String::from_utf8_lossy(key);
    let what =
        format!("message {id} has failed {failed} times, and all others with its key {key:?} wait for it");
    Finding {
        topic: Some(held.topic.name.base().to_owned()),
        group: Some(held.group.to_string()),
        ..Finding::new("blocked-key", what, "look at why it fails (show), mend that, or cancel the message")
    }
}

/// What is stuck, for each worker that has left it.
fn stuck<'a>(all: impl Iterator<Item = &'a Held>) -> Vec<Finding> {
    let mut stuck: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    for held in all {
        let Some(owner) = &held.claim.owner else { continue };
        let place = (held.topic.name.base().to_owned(), held.group.to_string(), owner.to_string());
        *stuck.entry(place).or_default() += held.claim.open();
    }
    let found = |((topic, group, owner), open): ((String, String, String), u64)| {
        let what = format!(
            "{} in the hands of worker {owner}, which is gone or silent, and no other takes over",
            words::counted(open, "message")
        );
        let what_to_do = "start a worker for the group: it takes over what the dead held";
        Finding { topic: Some(topic), group: Some(group), ..Finding::new("stuck-claim", what, what_to_do) }
    };
    stuck.into_iter().map(found).collect()
}

/// Workers that beat between the looks, at a time that was not between them.
fn skewed_clocks(first: &Glance, second: &Glance) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (worker, seen) in &second.members {
        let has_beaten = first.members.get(worker).is_some_and(|before| before.version != seen.version);
        let Some(beat) = seen.member.beat_at.filter(|_| has_beaten) else { continue };
        findings.extend(Finding::of_clock(&format!("worker {worker}"), beat, (first.at, second.at)));
    }
    findings
}

#[cfg(test)]
#[path = "checkup_tests.rs"]
mod tests;
