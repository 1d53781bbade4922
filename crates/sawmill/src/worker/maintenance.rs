//! Maintenance: work that one worker does for a topic on behalf of all. It makes messages readable when they
//! are due, pushes those of schedules, and trims the log.
//!
//! An entry in the ledger, the topic's duty, names the worker that does this. It is taken by compare-and-set,
//! and free again when its holder is no longer a member. The entry only saves work: two workers may maintain
//! a topic at once without harm.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Topic};
use sawmill_engine::runtime::{Moment, Timestamp};
use sawmill_engine::storage::{Commit, EntryKey, Write};
use serde::{Deserialize, Serialize};

use crate::store::cancel::forget_cancellations;
use crate::store::schedules::Timetable;
use crate::store::trim::trim_one;
use crate::store::{LivenessTracker, remove_silent};
use crate::telemetry;
use crate::worker::Shared;
use crate::worker::topic_notifications::TopicNotifications;

/// The most messages that one call makes readable.
pub(super) const PROMOTE_MOST: usize = 1000;
/// How often a topic is trimmed.
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds, however many notifications come.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
struct Duty {
    group: GroupName,
    worker: String,
}

/// A topic that this worker may have to maintain.
struct MaintainedTopic {
    topic: Arc<Topic>,
    /// This worker has the duty.
    mine: bool,
    check_at: Moment,
    trim_at: Moment,
    /// Alive as long as the last trim runs.
    trimming: Weak<()>,
    /// When the next message or schedule is due.
    next_due: Option<Timestamp>,
    timetable: Timetable,
    /// Tracks whether the holder of the duty is alive.
    liveness: LivenessTracker,
    /// Messages may wait here until they are due. They never do on a dead-letter lane.
    keeps_aside: bool,
}

/// Maintains the worker's topics until the worker leaves.
pub(super) async fn run(shared: Arc<Shared>) {
    let _done = shared.maintenance_done.clone().drop_guard();
    let env = shared.env().clone();
    let first_trim = env.now() + env.rng().jitter(TRIM_EVERY);
    let maintained = |topic| MaintainedTopic {
        topic,
        mine: false,
        check_at: Moment::default(),
        trim_at: first_trim,
        trimming: Weak::new(),
        next_due: None,
        timetable: Timetable::default(),
        liveness: LivenessTracker::default(),
        keeps_aside: true,
    };
    let mut dead: Vec<Arc<Topic>> = shared.sources.iter().map(|source| source.lanes.dead.clone()).collect();
    dead.dedup_by(|a, b| a.uid == b.uid);
    let mut topics: Vec<MaintainedTopic> = shared.topics().into_iter().map(maintained).collect();
    topics.extend(dead.into_iter().map(|topic| MaintainedTopic { keeps_aside: false, ..maintained(topic) }));
    let mut format = FormatCheck::default();
    let mut notifications = TopicNotifications::of(
        shared.builder.store.log(),
        topics.iter().map(|maintained| &*maintained.topic),
    );
    loop {
        // All at once, so that an idle worker wakes once for all topics.
        join_all(topics.iter_mut().map(|maintained| maintain_or_wait(&shared, maintained))).await;
        for maintained in
            topics.iter_mut().filter(|maintained| maintained.mine && env.now() >= maintained.trim_at)
        {
            maintained.trim_at = env.now() + env.rng().jitter(TRIM_EVERY);
            if maintained.trimming.strong_count() == 0 {
                maintained.trimming = spawn_trim(&shared, &maintained.topic);
            }
        }
        let holds_any = topics.iter().any(|maintained| maintained.mine);
        format.check(&shared, holds_any).await;
        let mut pause = next_of(&topics, |maintained| Some(maintained.check_at))
            .map_or(Duration::MAX, |at| at.since(env.now()));
        if holds_any {
            // The notification of a message that waits until it is due may be lost.
            pause = pause.min(env.rng().jitter(shared.poll));
        }
        if let Some(due) = next_of(&topics, |maintained| maintained.next_due) {
            pause = pause.min(due.since(env.wall()));
        }
        tokio::select! {
            biased;
            () = shared.coordinator_done.cancelled() => return,
            () = env.sleep(pause.max(Duration::from_millis(1))) => {}
            _ = notifications.next(), if holds_any => tokio::select! {
                biased;
                () = shared.coordinator_done.cancelled() => return,
                () = env.sleep(SHORTEST_PAUSE.min(pause)) => {}
            },
            // A worker that has gone may have had the duty.
            () = shared.check_duties.notified() => topics.iter_mut().for_each(|maintained| maintained.check_at = Moment::default()),
        }
    }
}

/// Checks the store's format now and then, while it is older than the newest that this program understands.
#[derive(Default)]
struct FormatCheck {
    at: Moment,
    /// Tracks the members that do not understand a newer format.
    liveness: LivenessTracker,
    /// The members in the way that were last logged.
    logged: Vec<EntryKey>,
}

impl FormatCheck {
    /// Learns the store's format. A worker that maintains a topic also raises it when possible.
    async fn check(&mut self, shared: &Shared, maintains: bool) {
        let (store, env, ttl) = (&shared.builder.store, shared.env(), shared.builder.ttl);
        if store.format() >= store.understood_format() || env.now() < self.at {
            return;
        }
        self.at = env.now() + env.rng().jitter(ttl / 2);
        let checked = match maintains {
            true => store.raise_format(&mut self.liveness, ttl).await,
            false => store.learn_format().await.map(|()| Vec::new()),
        };
        match checked {
            Ok(old) if old != self.logged => {
                let (format, members) = (store.format().number(), old.iter().map(EntryKey::as_str));
                let members = members.collect::<Vec<_>>().join(", ");
                if !old.is_empty() {
                    tracing::info!(
                        format,
                        members,
                        "the store keeps its format until these older workers have left"
                    );
                }
                self.logged = old;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the store's format could not be checked; it will be tried again");
            }
        }
    }
}

/// Returns the earliest of the topics' times.
fn next_of<T: Ord>(topics: &[MaintainedTopic], time: impl Fn(&MaintainedTopic) -> Option<T>) -> Option<T> {
    topics.iter().filter_map(time).min()
}

async fn maintain_or_wait(shared: &Shared, maintained: &mut MaintainedTopic) {
    if let Err(error) = maintain(shared, maintained).await {
        // What is due stays due: it waits for the usual pause.
        maintained.next_due = None;
        tracing::debug!(%error, topic = %maintained.topic.name, "maintenance failed; it will be tried again");
    }
}

async fn maintain(shared: &Shared, maintained: &mut MaintainedTopic) -> Result<()> {
    let env = shared.env();
    let now = env.now();
    let ttl = shared.builder.ttl;
    // Duties that are held are confirmed together, a little early, rather than each at its own time.
    let early = if maintained.mine { ttl / 2 } else { Duration::ZERO };
    if now + early >= maintained.check_at {
        // If taking the duty fails, it is tried again sooner.
        maintained.check_at = now + env.rng().jitter(shared.poll.min(ttl / 4));
        maintained.mine = hold(shared, maintained).await?;
        // The death of the holder is noticed as soon as possible.
        let death = maintained.liveness.first_death().filter(|_| !maintained.mine);
        maintained.check_at = death.unwrap_or(now + env.rng().jitter(ttl)).max(now + SHORTEST_PAUSE);
    }
    if !maintained.mine {
        (maintained.next_due, maintained.timetable) = (None, Timetable::default());
        return Ok(());
    }
    let log = shared.builder.store.log();
    while maintained.keeps_aside {
        let promoted = log.promote(&maintained.topic, env.wall(), PROMOTE_MOST).await?;
        telemetry::promoted(&maintained.topic, promoted.moved);
        maintained.next_due = promoted.next_due;
        if promoted.moved < PROMOTE_MOST {
            break;
        }
    }
    if maintained.topic.name.as_lane().is_none() {
        let tick = maintained.timetable.push_due_ticks(&shared.builder.store, &maintained.topic).await?;
        maintained.next_due = [maintained.next_due, tick].into_iter().flatten().min();
    }
    Ok(())
}

/// Trims a topic in a task of its own: there may be a lot to drop, and due messages must not wait for it. The
/// returned reference is dead when the task has ended.
fn spawn_trim(shared: &Arc<Shared>, topic: &Arc<Topic>) -> Weak<()> {
    let (shared, topic, trimming) = (shared.clone(), topic.clone(), Arc::new(()));
    let is_trimming = Arc::downgrade(&trimming);
    shared.env().clone().spawn(async move {
        let store = &shared.builder.store;
        let trim = async {
            trim_one(store, &topic).await?;
            forget_cancellations(store, &topic).await
        };
        tokio::select! {
            biased;
            () = shared.coordinator_done.cancelled() => {}
            trimmed = trim => if let Err(error) = trimmed {
                tracing::debug!(%error, topic = %topic.name, "trimming failed; it will be tried again");
            },
        }
        drop(trimming);
    });
    is_trimming
}

/// Takes the duty if no living worker has it. True if it is this worker's.
async fn hold(shared: &Shared, maintained: &mut MaintainedTopic) -> Result<bool> {
    let ledger = shared.builder.store.ledger();
    let Some(me) = shared.inflight().me().cloned() else { return Ok(false) };
    let key = EntryKey::duty(&maintained.topic);
    let entry = ledger.get(&key).await?;
    if let Some(entry) = &entry
        && let Ok(duty) = serde_json::from_slice::<Duty>(&entry.value)
    {
        if duty.group == shared.group && duty.worker == me.as_str() {
            return Ok(true);
        }
        let holder = ledger.get(&EntryKey::member(&duty.group, &duty.worker)).await?;
        if let Some(holder) = holder {
            // No worker of the holder's own group may be left to notice that it died.
            let store = &shared.builder.store;
            if remove_silent(store, &mut maintained.liveness, &[holder], shared.builder.ttl).await?.is_empty()
            {
                return Ok(false);
            }
        }
    }
    let duty = Duty { group: shared.group.clone(), worker: me.as_str().to_owned() };
    let value = serde_json::to_vec(&duty).unwrap_or_default().into();
    let write = Write { key, expect: entry.map(|entry| entry.version), value: Some(value) };
    Ok(matches!(ledger.commit(write).await?, Commit::Done(_)))
}
