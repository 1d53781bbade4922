//! The doctor: finds problems of a store that show up nowhere else, and says what to do about them.
//!
//! It observes the store twice, a TTL apart. A worker without a heartbeat in between is silent. A claim of a
//! silent or missing worker is stuck if a third observation still finds it. A healthy store has no findings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{join, try_join};
use sawmill_engine::model::{Claim, GroupName, Lane, Member, MessageId, Topic, WorkerId};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{EntryKey, Finding, Version};
use sawmill_engine::{ErrorKind, Result, humanize};

use super::Admin;

/// A key is blocked if a message that waits in place has failed this often.
const BLOCKED_AFTER: u32 = 3;
/// A key is hot if half of this many waiting messages have it: one worker at a time handles them, however
/// many there are.
const HOT_KEY_SAMPLE: usize = 200;
/// How long to wait between the observations if there are no members, whose entries would give a TTL.
const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// How long other members may take, after a TTL is over, to take over the claims of a dead one.
const TAKEOVER: Duration = Duration::from_secs(5);

/// The members of all groups and the open claims, at one moment.
struct Observation {
    at: Timestamp,
    members: BTreeMap<WorkerId, SeenMember>,
    claims: Vec<OpenClaim>,
}

/// A member's entry as it was read.
struct SeenMember {
    version: Version,
    /// The key of the entry, which contains the group.
    key: EntryKey,
    member: Member,
}

/// A claim and its place.
struct OpenClaim {
    /// The topic or lane of the claimed messages.
    topic: Topic,
    /// The uid of the topic; for a lane, of the topic that it belongs to.
    base_uid: String,
    group: GroupName,
    shard: u16,
    claim: Claim,
}

impl OpenClaim {
    fn is_same(&self, other: &OpenClaim) -> bool {
        (&self.topic.uid, &self.group, self.shard) == (&other.topic.uid, &other.group, other.shard)
            && (self.claim.token, &self.claim.owner) == (other.claim.token, &other.claim.owner)
    }

    /// Returns true if another living member could take this claim over.
    fn has_others(&self, first: &Observation, second: &Observation) -> bool {
        let group = EntryKey::members(&self.group);
        second.members.iter().any(|(worker, seen)| {
            Some(worker) != self.claim.owner.as_ref()
                && seen.key.as_str().starts_with(group.as_str())
                && seen.member.topics.contains(&self.base_uid)
                && first.members.get(worker).is_none_or(|before| before.version != seen.version)
        })
    }
}

impl Observation {
    /// Returns true if the first observation has the same claim, and its owner has been silent since, for its
    /// TTL, or is gone.
    fn is_abandoned(&self, open: &OpenClaim, first: &Observation, waited: Duration) -> bool {
        let Some(owner) = &open.claim.owner else { return false };
        let is_silent = match (first.members.get(owner), self.members.get(owner)) {
            (_, None) => true,
            (Some(before), Some(now)) => {
                before.version == now.version && Duration::from_millis(before.member.ttl_ms) <= waited
            }
            (None, Some(_)) => false,
        };
        is_silent && first.has(open)
    }

    fn has(&self, open: &OpenClaim) -> bool {
        self.claims.iter().any(|other| other.is_same(open))
    }
}

impl Admin<'_> {
    /// Checks the store and returns what is wrong with it, each finding with what to do about it.
    ///
    /// It finds claims that nobody works, keys that a failing message blocks, keys that most messages share,
    /// wrong clocks, and groups that keep a topic from being trimmed. Engines add what they know: settings
    /// under which a crash loses messages, transactions held open, missing rights. Checks that could not be
    /// made are reported as findings that are [no problem](Finding::is_problem).
    ///
    /// The call takes as long as the longest TTL of the workers, and five seconds more if other workers might
    /// still take over claims of silent ones, but at most `patience`. Workers with a longer TTL are taken to
    /// be alive.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// assert!(mill.admin().doctor(Duration::from_secs(15)).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn doctor(self, patience: Duration) -> Result<Vec<Finding>> {
        // A store that is both is checked once: a check may be expensive.
        let is_one_store = std::ptr::addr_eq(self.store.log(), self.store.ledger());
        let of_ledger = async {
            if is_one_store { Ok(Vec::new()) } else { self.store.ledger().diagnose(patience).await }
        };
        // All checks run at the same time: each of them may take all of `patience`.
        let of_engines = try_join(self.store.log().diagnose(patience), of_ledger);
        let (of_engines, of_store) = join(of_engines, self.engine_independent(patience)).await;
        let (mut findings, of_ledger) = of_engines?;
        for finding in of_ledger {
            if !findings.iter().any(|other| other.repeats(&finding)) {
                findings.push(finding);
            }
        }
        // Missing rights and a damaged store make the other checks fail: report the cause, not the
        // consequence.
        let has = |check: &str| findings.iter().any(|finding| finding.check == check);
        match of_store {
            Ok(more) => findings.extend(more),
            Err(_) if has("rights") => {}
            Err(error) if error.kind() == ErrorKind::Corrupt && has("durability") => {}
            Err(error) => return Err(error),
        }
        Ok(findings)
    }

    /// Makes the checks that read the log and the ledger alone, whatever the engine.
    async fn engine_independent(self, patience: Duration) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let first = self.observe().await?;
        let ttls = first.members.values().map(|seen| Duration::from_millis(seen.member.ttl_ms));
        let longest = match ttls.max() {
            None if first.claims.is_empty() => Duration::ZERO,
            longest => longest.unwrap_or(DEFAULT_TTL),
        };
        // With neither members nor claims there is nothing to wait for.
        if !longest.min(patience).is_zero() {
            self.store.env().sleep(longest.min(patience)).await;
            let second = self.observe().await?;
            findings.extend(self.stuck_claims(&first, &second, longest, patience).await?);
            findings.extend(skewed_clocks(&first, &second));
            findings.extend(self.blocked_keys(&second).await?);
            findings.extend(self.hot_keys(&second).await?);
        }
        findings.extend(self.held_back_trims().await?);
        Ok(findings)
    }

    /// Finds claims that are in both observations and in a third one, and whose owner is gone or sent no
    /// heartbeat meanwhile.
    async fn stuck_claims(
        self,
        first: &Observation,
        second: &Observation,
        longest: Duration,
        patience: Duration,
    ) -> Result<Vec<Finding>> {
        let waited = longest.min(patience);
        let abandoned: Vec<&OpenClaim> =
            second.claims.iter().filter(|open| second.is_abandoned(open, first, waited)).collect();
        if abandoned.is_empty() {
            return Ok(Vec::new());
        }
        let has_others = |open: &OpenClaim| open.has_others(first, second);
        let needed = longest + TAKEOVER;
        if abandoned.iter().any(|open| has_others(open)) {
            self.store.env().sleep(needed.min(patience).saturating_sub(waited)).await;
        }
        // A worker that was stopped during the observations has settled its claims by now.
        let third = self.observe().await?;
        let is_stuck = |open: &&&OpenClaim| {
            third.has(open)
                && third.is_abandoned(open, first, waited)
                && (needed <= patience || !has_others(open))
        };
        Ok(stuck(abandoned.iter().filter(is_stuck).copied()))
    }

    async fn observe(self) -> Result<Observation> {
        let mut claims = Vec::new();
        for topic in self.topics().await? {
            let base_uid = topic.uid.clone();
            for group in self.store.groups_of(&topic).await? {
                let lane = self.store.log().topic(&topic.name.lane(&group, Lane::Retry)).await?;
                for topic in std::iter::once(&topic).chain(&lane) {
                    for (shard, state) in (0..).zip(self.store.shard_states(topic, &group).await?) {
                        claims.extend(state.claims.into_iter().map(|claim| OpenClaim {
                            topic: topic.clone(),
                            base_uid: base_uid.clone(),
                            group: group.clone(),
                            shard,
                            claim,
                        }));
                    }
                }
            }
        }
        // Members are read after the claims: a worker joins before it claims, so an owner without an entry is
        // gone.
        let mut members = BTreeMap::new();
        for entry in self.store.ledger().list(&EntryKey::all_members()).await? {
            let member = Member::decode(&entry.key, &entry.value)?;
            members.insert(
                WorkerId::new(entry.key.last()),
                SeenMember { version: entry.version, key: entry.key, member },
            );
        }
        Ok(Observation { at: self.store.env().wall(), members, claims })
    }

    async fn blocked_keys(self, observed: &Observation) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for open in &observed.claims {
            let blocking: Vec<(u32, u32)> = open
                .claim
                .failures
                .iter()
                .filter(|(index, failed)| **failed >= BLOCKED_AFTER && !open.claim.done.contains(**index))
                .map(|(index, failed)| (*index, *failed))
                .collect();
            if blocking.is_empty() {
                continue;
            }
            let messages = match self.store.log().reread(&open.topic, open.shard, &open.claim.span).await {
                // Settled and trimmed, or deleted, since the observation.
                Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::NotFound) => continue,
                messages => messages?,
            };
            for (index, failed) in blocking {
                let Some(message) = messages.get(index as usize) else { continue };
                let Some(key) = &message.key else { continue };
                findings.push(blocked(open, message.origin(), key, failed));
            }
        }
        Ok(findings)
    }

    /// Finds keys that most of the waiting messages share, in ordered groups.
    async fn hot_keys(self, observed: &Observation) -> Result<Vec<Finding>> {
        let is_ordered =
            |owner: &WorkerId| observed.members.get(owner).is_some_and(|seen| seen.member.ordered);
        let of_ordered = |open: &&OpenClaim| open.claim.owner.as_ref().is_some_and(is_ordered);
        let ordered_claims = observed.claims.iter().filter(of_ordered);
        let places: BTreeSet<(&str, &GroupName)> =
            ordered_claims.map(|open| (open.topic.name.base(), &open.group)).collect();
        let mut findings = Vec::new();
        for (topic, group) in places {
            let waiting = self.peek(topic, &group.to_string(), HOT_KEY_SAMPLE).await?;
            let mut counts = BTreeMap::<&[u8], usize>::new();
            waiting.iter().filter_map(|message| message.key.as_deref()).for_each(|key| {
                *counts.entry(key).or_default() += 1;
            });
            let hottest = counts.into_iter().max_by_key(|(_, count)| *count);
            let Some((key, count)) = hottest.filter(|(_, count)| *count * 2 >= HOT_KEY_SAMPLE) else {
                continue;
            };
            let key = String::from_utf8_lossy(key);
            findings.push(Finding::new(
                    "hot-key",
                    format!(
                        "{count} of the next {} messages have the key {key:?}, and are worked one after another",
                        waiting.len()
                    ),
                    "more workers do not help: use finer keys, make each message quicker, or work without order",
                ).about(topic, &group.to_string()));
        }
        Ok(findings)
    }

    async fn held_back_trims(self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let now = self.store.env().wall();
        let topics = self.topics().await?;
        for snapshot in self.snapshot(None).await? {
            let Some(topic) = topics.iter().find(|topic| topic.name.base() == snapshot.topic) else {
                continue;
            };
            let (Some(group), Some(oldest)) = (snapshot.group, snapshot.status.oldest) else { continue };
            let (why, what_to_do) = match (snapshot.status.paused, snapshot.workers) {
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
                    humanize::counted(snapshot.status.waiting, "message"),
                    humanize::span(now.since(oldest)),
                );
                findings
                    .push(Finding::new("held-back-trim", what, what_to_do).about(&snapshot.topic, &group));
            }
        }
        Ok(findings)
    }
}

fn blocked(open: &OpenClaim, id: MessageId, key: &[u8], failed: u32) -> Finding {
    let key = String::from_utf8_lossy(key);
    let what =
        format!("message {id} has failed {failed} times, and all others with its key {key:?} wait for it");
    Finding::new("blocked-key", what, "look at why it fails (show), mend that, or cancel the message")
        .about(open.topic.name.base(), &open.group.to_string())
}

/// Returns a finding for each owner of stuck claims.
fn stuck<'a>(all: impl Iterator<Item = &'a OpenClaim>) -> Vec<Finding> {
    let mut stuck: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    for open in all {
        let Some(owner) = &open.claim.owner else { continue };
        let place = (open.topic.name.base().to_owned(), open.group.to_string(), owner.to_string());
        *stuck.entry(place).or_default() += open.claim.open();
    }
    let found = |((topic, group, owner), open): ((String, String, String), u64)| {
        let what = format!(
            "{} in the hands of worker {owner}, which is gone or silent, and no other takes over",
            humanize::counted(open, "message")
        );
        let what_to_do = "start a worker for the group: it takes over what the dead held";
        Finding::new("stuck-claim", what, what_to_do).about(&topic, &group)
    };
    stuck.into_iter().map(found).collect()
}

/// Finds workers that sent a heartbeat between the observations, but with a time that is not between them.
fn skewed_clocks(first: &Observation, second: &Observation) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (worker, seen) in &second.members {
        let has_beaten = first.members.get(worker).is_some_and(|before| before.version != seen.version);
        let Some(beat) = seen.member.beat_at.filter(|_| has_beaten) else { continue };
        findings.extend(Finding::of_clock(&format!("worker {worker}"), beat, (first.at, second.at)));
    }
    findings
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
