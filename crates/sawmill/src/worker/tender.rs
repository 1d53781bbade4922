//! The tender: what one worker does for all. It makes messages readable when they are due, pushes those of schedules, and
//! trims the log.
//!
//! Who does it for a topic is an entry in the ledger, taken by compare-and-set and free again when its holder is no longer a
//! member. The entry only spares work: all of it may be done by two at once without harm.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::news::News;
use crate::clock::{Moment, Timestamp};
use crate::error::Result;
use crate::ledger::{Commit, EntryKey, Write};
use crate::member::Sightings;
use crate::observe;
use crate::timetable::Timetable;
use crate::topic::{GroupName, Topic};

/// How many messages are made readable at a time.
pub(super) const PROMOTE_MOST: usize = 1000;
/// How often a topic is trimmed.
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds, however many hints come.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
struct Duty {
    group: GroupName,
    worker: String,
}

/// A topic that may need tending.
struct Tended {
    topic: Arc<Topic>,
    mine: bool,
    check_at: Moment,
    trim_at: Moment,
    /// There as long as the last trim goes on.
    trimming: Weak<()>,
    /// When there is something to do for which time itself is the reason.
    next_due: Option<Timestamp>,
    timetable: Timetable,
    /// What was seen of the one who has the duty.
    sightings: Sightings,
    /// Messages may be kept aside here until they are due: never on a lane of dead letters.
    keeps_aside: bool,
}

/// Tends the worker's topics until the worker leaves.
pub(super) async fn run(shared: Arc<Shared>) {
    let _done = shared.tender_done.clone().drop_guard();
    let env = shared.env().clone();
    let first_trim = env.now() + env.dice().jitter(TRIM_EVERY);
    let tended = |topic| Tended {
        topic,
        mine: false,
        check_at: Moment::default(),
        trim_at: first_trim,
        trimming: Weak::new(),
        next_due: None,
        timetable: Timetable::default(),
        sightings: Sightings::default(),
        keeps_aside: true,
    };
    let dead = shared.sources.iter().map(|source| &source.lanes.dead);
    let mut dead: Vec<Arc<Topic>> = dead.map(|topic| Arc::new(topic.clone())).collect();
    dead.dedup_by(|a, b| a.uid == b.uid);
    let mut topics: Vec<Tended> = shared.topics().into_iter().map(tended).collect();
    topics.extend(dead.into_iter().map(|topic| Tended { keeps_aside: false, ..tended(topic) }));
    let mut format = FormatCheck::default();
    let mut news = News::of(shared.builder.mill.log(), topics.iter().map(|tended| &*tended.topic));
    loop {
        // All at once: an idle worker wakes once for them.
        join_all(topics.iter_mut().map(|tended| tend_or_wait(&shared, tended))).await;
        for tended in topics.iter_mut().filter(|tended| tended.mine && env.now() >= tended.trim_at) {
            tended.trim_at = env.now() + env.dice().jitter(TRIM_EVERY);
            if tended.trimming.strong_count() == 0 {
                tended.trimming = begin_to_trim(&shared, &tended.topic);
            }
        }
        let holds_any = topics.iter().any(|tended| tended.mine);
        format.check(&shared, holds_any).await;
        let mut pause =
            next_of(&topics, |tended| Some(tended.check_at)).map_or(Duration::MAX, |at| at.since(env.now()));
        if holds_any {
            // News of a message that is kept aside may be lost.
            pause = pause.min(env.dice().jitter(shared.poll));
        }
        if let Some(due) = next_of(&topics, |tended| tended.next_due) {
            pause = pause.min(due.since(env.wall()));
        }
        tokio::select! {
            biased;
            () = shared.foreman_done.cancelled() => return,
            () = env.sleep(pause.max(Duration::from_millis(1))) => {}
            _ = news.next(), if holds_any => tokio::select! {
                biased;
                () = shared.foreman_done.cancelled() => return,
                () = env.sleep(SHORTEST_PAUSE.min(pause)) => {}
            },
            // One who has gone may have had the duty.
            () = shared.tend.notified() => topics.iter_mut().for_each(|tended| tended.check_at = Moment::default()),
        }
    }
}

/// The look at the store's format, now and then while it is older than this program understands.
#[derive(Default)]
struct FormatCheck {
    at: Moment,
    /// What was seen of the members that do not understand it.
    sightings: Sightings,
    /// The members that are in the way, as the log was told.
    told: Vec<EntryKey>,
}

impl FormatCheck {
    /// Learns the store's format. Who tends a topic also raises it when it can be raised.
    async fn check(&mut self, shared: &Shared, tends: bool) {
        let (mill, env, ttl) = (&shared.builder.mill, shared.env(), shared.builder.ttl);
        if mill.format() >= mill.understood() || env.now() < self.at {
            return;
        }
        self.at = env.now() + env.dice().jitter(ttl / 2);
        let checked = match tends {
            true => mill.raise_format(&mut self.sightings, ttl).await,
            false => mill.learn_format().await.map(|()| Vec::new()),
        };
        match checked {
            Ok(old) if old != self.told => {
                let (format, members) = (mill.format().number(), old.iter().map(EntryKey::as_str));
                let members = members.collect::<Vec<_>>().join(", ");
                if !old.is_empty() {
                    tracing::info!(
                        format,
                        members,
                        "the store keeps its format until these older workers have left"
                    );
                }
                self.told = old;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the store's format could not be looked at; it will be tried again");
            }
        }
    }
}

/// The first time of those that some topics have.
fn next_of<T: Ord>(topics: &[Tended], time: impl Fn(&Tended) -> Option<T>) -> Option<T> {
    topics.iter().filter_map(time).min()
}

async fn tend_or_wait(shared: &Shared, tended: &mut Tended) {
    if let Err(error) = tend(shared, tended).await {
        // What is due stays due: it waits for the usual pause.
        tended.next_due = None;
        tracing::debug!(%error, topic = %tended.topic.name, "tending failed; it will be tried again");
    }
}

async fn tend(shared: &Shared, tended: &mut Tended) -> Result<()> {
    let env = shared.env();
    let now = env.now();
    let ttl = shared.builder.ttl;
    // Duties that are held are confirmed together, a little early, rather than each at a time of its own.
    let early = if tended.mine { ttl / 2 } else { Duration::ZERO };
    if now + early >= tended.check_at {
        // If this fails, it is tried again sooner.
        tended.check_at = now + env.dice().jitter(shared.poll.min(ttl / 4));
        tended.mine = hold(shared, tended).await?;
        // One who has the duty and dies is noticed as soon as may be.
        let death = tended.sightings.first_death().filter(|_| !tended.mine);
        tended.check_at = death.unwrap_or(now + env.dice().jitter(ttl)).max(now + SHORTEST_PAUSE);
    }
    if !tended.mine {
        (tended.next_due, tended.timetable) = (None, Timetable::default());
        return Ok(());
    }
    let log = shared.builder.mill.log();
    while tended.keeps_aside {
        let promoted = log.promote(&tended.topic, env.wall(), PROMOTE_MOST).await?;
        observe::promoted(&tended.topic, promoted.moved);
        tended.next_due = promoted.next_due;
        if promoted.moved < PROMOTE_MOST {
            break;
        }
    }
    if tended.topic.name.as_lane().is_none() {
        let tick = tended.timetable.tend(&shared.builder.mill, &tended.topic).await?;
        tended.next_due = [tended.next_due, tick].into_iter().flatten().min();
    }
    Ok(())
}

/// Trims a topic in a task of its own: after a long time there may be a lot to drop, and what is due does not wait for that. What is
/// returned is gone when that has ended.
fn begin_to_trim(shared: &Arc<Shared>, topic: &Arc<Topic>) -> Weak<()> {
    let (shared, topic, trimming) = (shared.clone(), topic.clone(), Arc::new(()));
    let is_trimming = Arc::downgrade(&trimming);
    shared.env().clone().spawn(async move {
        let mill = &shared.builder.mill;
        let trim = async {
            mill.trim_one(&topic).await?;
            mill.forget_cancels(&topic).await
        };
        tokio::select! {
            biased;
            () = shared.foreman_done.cancelled() => {}
            trimmed = trim => if let Err(error) = trimmed {
                tracing::debug!(%error, topic = %topic.name, "trimming failed; it will be tried again");
            },
        }
        drop(trimming);
    });
    is_trimming
}

/// True if the duty is this worker's, taking it if nobody living has it.
async fn hold(shared: &Shared, tended: &mut Tended) -> Result<bool> {
    let ledger = shared.builder.mill.ledger();
    let Some(me) = shared.bench().me().cloned() else { return Ok(false) };
    let key = EntryKey::duty(&tended.topic);
    let entry = ledger.get(&key).await?;
    if let Some(entry) = &entry
        && let Ok(duty) = serde_json::from_slice::<Duty>(&entry.value)
    {
        if duty.group == shared.group && duty.worker == me.as_str() {
            return Ok(true);
        }
        let holder = ledger.get(&EntryKey::member(&duty.group, &duty.worker)).await?;
        if let Some(holder) = holder {
            // Nobody of its own group may be left to notice that it died.
            let silent = tended.sightings.look(&[holder], shared.env().now(), shared.builder.ttl).pop();
            let Some(silent) = silent else { return Ok(false) };
            let write = Write { key: silent.key.clone(), expect: Some(silent.version), value: None };
            if !matches!(ledger.commit(write).await?, Commit::Done(_)) {
                return Ok(false);
            }
            observe::declared_dead(&silent.key);
        }
    }
    let duty = Duty { group: shared.group.clone(), worker: me.as_str().to_owned() };
    let value = serde_json::to_vec(&duty).unwrap_or_default().into();
    let write = Write { key, expect: entry.map(|entry| entry.version), value: Some(value) };
    Ok(matches!(ledger.commit(write).await?, Commit::Done(_)))
}
