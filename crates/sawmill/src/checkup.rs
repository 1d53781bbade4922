//! A check-up: what is wrong with a store that nobody says by themselves, and what to do about it.
//!
//! It looks twice, a TTL apart: who has not beaten in between is silent, and what the silent or the gone still hold is stuck.
//! A store where all is well has nothing to report.

use std::collections::BTreeMap;
use std::time::Duration;

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
/// How long to look where nobody says how long they may be silent.
const USUAL_TTL: Duration = Duration::from_secs(10);

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked: `stuck-claim`, `blocked-key`, `clock-skew` or `held-back-trim`.
    pub check: &'static str,
    /// The topic, if it is about one.
    pub topic: Option<String>,
    /// The group, if it is about one.
    pub group: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub what_to_do: String,
}

/// Who is there and what they hold, at one moment.
struct Glance {
    at: Timestamp,
    members: BTreeMap<WorkerId, (Version, Member)>,
    held: Vec<Held>,
}

/// A claim, and where it is.
struct Held {
    topic: Topic,
    group: GroupName,
    shard: u16,
    claim: Claim,
}

impl Held {
    fn is_the_same(&self, other: &Held) -> bool {
        (&self.topic.uid, &self.group, self.shard) == (&other.topic.uid, &other.group, other.shard)
            && (self.claim.token, &self.claim.owner) == (other.claim.token, &other.claim.owner)
    }
}

impl Sawmill {
    /// Looks for what is wrong with the store: claims that nobody works, keys that a failing message blocks, workers whose
    /// clocks are wrong, groups that keep a topic from being trimmed. It takes as long as the workers may be silent, but no
    /// longer than this; who may be silent for longer is taken to be alive.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// assert!(mill.check_up(Duration::from_secs(15)).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        let first = self.glance().await?;
        let ttls = first.members.values().map(|(_, member)| Duration::from_millis(member.ttl_ms));
        let waited = match ttls.max() {
            None if first.held.is_empty() => Duration::ZERO,
            longest => longest.unwrap_or(USUAL_TTL).min(patience),
        };
        if waited.is_zero() {
            // Nobody is there, and nothing is held.
            return self.held_back_trims().await;
        }
        self.env().sleep(waited).await;
        let second = self.glance().await?;
        let mut findings = stuck_claims(&first, &second, waited);
        findings.extend(skewed_clocks(&first, &second));
        findings.extend(self.blocked_keys(&second).await?);
        findings.extend(self.held_back_trims().await?);
        Ok(findings)
    }

    async fn glance(&self) -> Result<Glance> {
        let mut held = Vec::new();
        for topic in self.topics().await? {
            for group in self.groups_of(&topic).await? {
                let lane = self.log().topic(&topic.name.lane(&group, Lane::Retry)).await?;
                for topic in std::iter::once(&topic).chain(&lane) {
                    for (shard, state) in (0..).zip(self.shard_states(topic, &group).await?) {
                        held.extend(state.claims.into_iter().map(|claim| Held {
                            topic: topic.clone(),
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
            members.insert(WorkerId::new(entry.key.last()), (entry.version, Member::decode(&entry)?));
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

    async fn held_back_trims(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let now = self.env().wall();
        let topics = self.topics().await?;
        for look in self.look(None).await? {
            let Some(topic) = topics.iter().find(|topic| topic.name.base() == look.topic) else { continue };
            let (Some(group), Some(oldest)) = (look.group, look.status.oldest) else { continue };
            let is_held = look.workers == 0 && !topic.drops_unread && now.since(oldest) > topic.retention;
            if is_held {
                findings.push(Finding {
                    check: "held-back-trim",
                    what: format!(
                        "{} for it, the oldest for {}, and nobody works: the topic keeps all since then",
                        words::counted(look.status.waiting, "message"),
                        words::span(now.since(oldest)),
                    ),
                    what_to_do: "start a worker for the group, or have it skip what waits (replay from now)"
                        .to_owned(),
                    topic: Some(look.topic),
                    group: Some(group),
                });
            }
        }
        Ok(findings)
    }
}

fn blocked(held: &Held, id: MessageId, key: &[u8], failed: u32) -> Finding {
    let key = String::from_utf8_lossy(key);
    Finding {
        check: "blocked-key",
        topic: Some(held.topic.name.base().to_owned()),
        group: Some(held.group.to_string()),
        what: format!(
            "message {id} has failed {failed} times, and all others with its key {key:?} wait for it"
        ),
        what_to_do: "look at why it fails (show), mend that, or cancel the message".to_owned(),
    }
}

/// Claims that were there at both looks, and whose owner is gone or did not beat in between.
fn stuck_claims(first: &Glance, second: &Glance, waited: Duration) -> Vec<Finding> {
    let is_silent = |worker: &WorkerId| match (first.members.get(worker), second.members.get(worker)) {
        (_, None) => true,
        (Some((before, member)), Some((now, _))) => {
            before == now && Duration::from_millis(member.ttl_ms) <= waited
        }
        (None, Some(_)) => false,
    };
    let mut stuck: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    for held in &second.held {
        let Some(owner) = &held.claim.owner else { continue };
        if is_silent(owner) && first.held.iter().any(|before| before.is_the_same(held)) {
            let place = (held.topic.name.base().to_owned(), held.group.to_string(), owner.to_string());
            *stuck.entry(place).or_default() += held.claim.open();
        }
    }
    stuck
        .into_iter()
        .map(|((topic, group, owner), open)| Finding {
            check: "stuck-claim",
            what: format!(
                "{} in the hands of worker {owner}, which is gone or silent, and no other takes over",
                words::counted(open, "message")
            ),
            what_to_do: "start a worker for the group: it takes over what the dead held".to_owned(),
            topic: Some(topic),
            group: Some(group),
        })
        .collect()
}

/// Workers that beat between the looks, at a time that was not between them.
fn skewed_clocks(first: &Glance, second: &Glance) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (worker, (version, member)) in &second.members {
        let has_beaten = first.members.get(worker).is_some_and(|(before, _)| before != version);
        let Some(beat) = member.beat_at.filter(|_| has_beaten) else { continue };
        let (ahead, behind) = (beat.since(second.at), first.at.since(beat));
        let (apart, which) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
        if apart > SKEW {
            findings.push(Finding {
                check: "clock-skew",
                topic: None,
                group: None,
                what: format!(
                    "the clock of worker {worker} is {} {which} this machine's",
                    words::span(apart)
                ),
                what_to_do:
                    "have both machines keep the time (NTP): messages are started too early or too late"
                        .to_owned(),
            });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Clock, Moment, SystemClock};
    use crate::env::Env;
    use crate::handler::Context;
    use crate::ledger::{Commit, Write};
    use crate::log::Want;
    use crate::memory::Memory;
    use crate::message::Push;
    use crate::outcome::Outcome;
    use crate::retry::RetryPolicy;
    use crate::shard::{Grab, Rules, ShardState};
    use crate::topic::TopicSpec;

    const PATIENCE: Duration = Duration::from_secs(2);
    const TTL: Duration = Duration::from_secs(1);

    /// A clock that is wrong.
    struct Ahead(Duration);

    impl Clock for Ahead {
        fn now(&self) -> Moment {
            SystemClock.now()
        }
        fn wall(&self) -> Timestamp {
            SystemClock.wall() + self.0
        }
        fn sleep(&self, duration: Duration) -> futures_util::future::BoxFuture<'static, ()> {
            SystemClock.sleep(duration)
        }
    }

    async fn furnished() -> Sawmill {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        mill
    }

    fn checks(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|finding| finding.check).collect()
    }

    #[tokio::test]
    async fn a_healthy_store_has_nothing_to_report() {
        let mill = furnished().await;
        assert_eq!(mill.check_up(PATIENCE).await.unwrap(), []);
        mill.push_many("orders", ["a", "b"]).await.unwrap();
        let busy = |_: Context| std::future::pending::<()>();
        let worker = mill.worker("orders").ttl(TTL).slots(2).start(busy).await.unwrap();
        assert_eq!(mill.check_up(PATIENCE).await.unwrap(), [], "a worker at work");
        worker.abort().await;
        assert_eq!(mill.check_up(PATIENCE).await.unwrap(), [], "what was given back waits for the next");
    }

    #[tokio::test]
    async fn what_a_dead_worker_holds_and_nobody_takes_is_stuck() {
        let mill = furnished().await;
        mill.worker("orders").ttl(TTL).pull().await.unwrap().worker().stop().await;
        let topic = mill.find_topic("orders").await.unwrap();
        mill.push("orders", Push::new("x").key("k")).await.unwrap();
        let shard = mill.log().shard_of(b"k", topic.shards);
        let want = Want { shard, after: Default::default(), limit: 9 };
        let block = mill.log().read(&topic, &[want]).await.unwrap().remove(0);
        let mut state = ShardState::default();
        let grab = Grab { span: block.span, end: block.end, count: 1 };
        state.grab(&WorkerId::new("ghost-1"), Rules::default(), &grab).unwrap();
        let key = EntryKey::shard(&topic, &"default".parse().unwrap(), shard);
        let expect = mill.ledger().get(&key).await.unwrap().map(|entry| entry.version);
        let write = Write { key, expect, value: Some(state.encode()) };
        assert!(matches!(mill.ledger().commit(write).await.unwrap(), Commit::Done(_)));
        let findings = mill.check_up(PATIENCE).await.unwrap();
        assert_eq!(checks(&findings), ["stuck-claim"], "{findings:?}");
        assert!(findings[0].what.contains("ghost-1") && findings[0].what.starts_with("1 message"));
        assert_eq!(findings[0].topic.as_deref(), Some("orders"));
    }

    #[tokio::test]
    async fn a_worker_whose_clock_is_wrong_is_named() {
        let memory = Arc::new(Memory::new());
        let skewed = Env::system().with_clock(Ahead(Duration::from_secs(3600)));
        let there = Sawmill::from_parts(memory.clone(), memory.clone(), skewed);
        let here = Sawmill::from_parts(memory.clone(), memory, Env::system());
        here.create_topic("orders").await.unwrap();
        let worker = there.worker("orders").name("late").ttl(TTL).start(|_: Context| async {}).await.unwrap();
        let findings = here.check_up(PATIENCE).await.unwrap();
        assert_eq!(checks(&findings), ["clock-skew"], "{findings:?}");
        assert!(
            findings[0].what.contains("worker late") && findings[0].what.contains("ahead"),
            "{findings:?}"
        );
        worker.stop().await;
    }

    #[tokio::test]
    async fn a_message_that_fails_again_and_again_blocks_its_key() {
        let mill = furnished().await;
        mill.push_many("orders", [Push::new("bad").key("k"), Push::new("behind it").key("k")]).await.unwrap();
        let policy = RetryPolicy::retries(1000).immediate(5).backoff(TTL * 60, TTL * 60);
        let fails = |_: Context| async { Outcome::retry("no") };
        let worker = mill.worker("orders").ordered().ttl(TTL).retry(policy).start(fails).await.unwrap();
        let mut findings = Vec::new();
        while findings.is_empty() {
            findings = mill.check_up(PATIENCE).await.unwrap();
        }
        assert_eq!(checks(&findings), ["blocked-key"], "{findings:?}");
        assert!(findings[0].what.contains("\"k\"") && findings[0].what_to_do.contains("cancel"));
        worker.abort().await;
    }

    #[tokio::test]
    async fn a_group_that_nobody_works_holds_back_the_trim() {
        let mill = Sawmill::open("memory:").await.unwrap();
        let spec = TopicSpec { retention: Duration::ZERO, ..TopicSpec::new("orders".parse().unwrap()) };
        mill.create_topic_with(&spec).await.unwrap();
        mill.worker("orders").ttl(TTL).pull().await.unwrap().worker().stop().await;
        mill.push("orders", "x").await.unwrap();
        mill.env().sleep(Duration::from_millis(5)).await;
        let findings = mill.check_up(PATIENCE).await.unwrap();
        assert_eq!(checks(&findings), ["held-back-trim"], "{findings:?}");
    }
}
