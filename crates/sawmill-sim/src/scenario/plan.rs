//! The plan of a history: everything that a seed decides beforehand.
//!
//! Not every seed has every fault. Faults mask each other (a store that never answers hides a forgotten fence), so each
//! seed takes a style: some only crash workers, some only leave outcomes unknown, some do all of it.

use std::time::Duration;

use bytes::Bytes;
use sawmill::message::Headers;

use super::deletes::DeletePlan;
use super::extras::{Extras, Setting};
use super::weather::{Trouble, Weather};
use crate::checker::{GroupRules, Rulebook};
use crate::dice::Seeded;
use crate::faults::Chance;

/// For how long a handler snoozes.
pub(super) const SNOOZE: Duration = Duration::from_millis(700);
/// A retention that outlasts every history.
pub(super) const FOR_EVER: Duration = Duration::from_secs(86_400);
/// The stream of the seed that decides whether somebody dies when all is calm.
const CALM_STREAM: u64 = 1_000;

/// A history to be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topics.
    pub topics: Vec<TopicPlan>,
    /// The groups; each works all topics.
    pub groups: Vec<GroupPlan>,
    /// The workers at the beginning.
    pub workers: Vec<WorkerPlan>,
    /// How long workers may be silent.
    pub ttl: Duration,
    /// How often they look.
    pub poll: Duration,
    /// The messages, by number.
    pub messages: Vec<MessagePlan>,
    /// What each pusher does.
    pub pushers: Vec<Vec<PushPlan>>,
    /// What may go wrong on the way to the store.
    pub weather: Weather,
    /// What happens to workers and store.
    pub trouble: Trouble,
    /// What people do meanwhile.
    pub errands: Vec<Errand>,
    /// The engine can tell whether it has a message already.
    pub idempotent: bool,
    /// How long after the beginning a schedule of the first topic has its one tick.
    pub tick: Option<Duration>,
    /// What users do beyond that.
    pub extras: Extras,
    /// Whether and how a worker dies when all is calm and everything is done.
    pub calm_death: Option<CalmDeath>,
}

/// How a worker dies in calm weather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalmDeath {
    /// Its process ends.
    Crash,
    /// It stands still.
    Freeze,
}

/// A topic to be.
#[derive(Debug, Clone)]
pub struct TopicPlan {
    /// Its name.
    pub name: String,
    /// How many shards.
    pub shards: u16,
    /// How long messages stay.
    pub retention: Duration,
}

/// A group to be.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// Strict order per key.
    pub ordered: bool,
    /// At-most-once.
    pub once: bool,
    /// Retries, and how many of them at once.
    pub retries: (u32, u32),
    /// The first wait and the longest.
    pub backoff: (Duration, Duration),
    /// Messages out of attempts are only logged.
    pub logs_failures: bool,
    /// The most messages that a worker may claim.
    pub most_claimed: Option<usize>,
    /// How many messages of a topic may run at once.
    pub limit: Option<u32>,
    /// How many may start in a second.
    pub rate: Option<u32>,
}

/// A worker to be.
#[derive(Debug, Clone, Copy)]
pub struct WorkerPlan {
    /// Of which group.
    pub group: usize,
    /// How many messages it runs at once.
    pub slots: usize,
}

/// A message to be.
#[derive(Debug, Clone)]
pub struct MessagePlan {
    /// To which topic.
    pub topic: usize,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
    /// How long after the push it is due.
    pub delay: Option<Duration>,
    /// How long its handler takes.
    pub takes: Duration,
    /// What its handler does.
    pub manner: Manner,
    /// The name under which it is unique.
    pub unique: Option<String>,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It succeeds.
    Done,
    /// It fails so many times, then succeeds.
    Fails(u32),
    /// It panics so many times, then succeeds.
    Panics(u32),
    /// It says not now once, then succeeds.
    Snoozes,
    /// It says that it can never succeed.
    Dead,
    /// It makes its worker stop, once.
    Stops,
    /// Its worker's process ends at once.
    Kills,
}

/// One push: after a pause, these messages in one call.
#[derive(Debug, Clone)]
pub struct PushPlan {
    /// How long to wait first.
    pub pause: Duration,
    /// Which messages.
    pub messages: Vec<usize>,
}

/// What a person does, after a pause.
#[derive(Debug, Clone, Copy)]
pub struct Errand {
    /// How long to wait first.
    pub pause: Duration,
    /// What to do.
    pub task: Task,
}

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Cancels one of the messages that were pushed.
    Cancel(u64),
    /// Pauses a group of a topic, and resumes it after a while.
    Pause {
        /// Which group.
        group: usize,
        /// Which topic.
        topic: usize,
        /// For how long.
        time: Duration,
    },
    /// Sends a group to another place of a topic.
    Seek {
        /// Which group.
        group: usize,
        /// Which topic.
        topic: usize,
        /// Where to.
        place: Place,
    },
}

/// Where a group may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The start.
    Start,
    /// The end.
    Now,
    /// One of the messages that were pushed.
    Message(u64),
    /// The time of one of them.
    Time(u64),
}

/// The stream of the seed from which plans are made.
const STREAM: u32 = 1;

impl Plan {
    /// The plan of this seed.
    pub fn of(seed: u64) -> Self {
        let dice = &mut Seeded::new(seed, 1 + u64::from(STREAM));
        let idempotent = dice.below(3) > 0;
        let ttl = Duration::from_millis([1_000, 2_000, 2_000, 3_000, 5_000, 8_000][dice.below(6) as usize]);
        let poll = Duration::from_millis([100, 250, 500, 1_000][dice.below(4) as usize]);
        let weather = Weather::roll(dice, idempotent);
        let trouble = Trouble::roll(dice, ttl, &weather);
        let mut topics = topics(dice);
        let mut groups = groups(dice);
        let workers = workers(dice, groups.len());
        let mut messages = messages(dice, topics.len(), &groups);
        let pushers = pushers(dice, messages.len(), trouble.time);
        let errands = errands(dice, trouble.time, ttl, &groups, &mut topics);
        for group in &mut groups {
            match dice.below(10) {
                0..2 => group.limit = Some(1 + dice.below(4) as u32),
                2 => group.rate = Some([5, 20][dice.below(2) as usize]),
                _ => {}
            }
        }
        let seeks = errands.iter().any(|errand| matches!(errand.task, Task::Seek { .. }));
        // An engine that cannot tell, or has forgotten, may add a second one: that is said of it.
        let can_tell = idempotent && topics.iter().all(|topic| !topic.retention.is_zero());
        // A seek gives names back.
        if can_tell && !seeks && dice.below(2) == 0 {
            name(dice, &mut messages);
        }
        let tick = (can_tell && dice.below(2) == 0).then(|| Duration::from_secs(2 + dice.below(10)));
        let setting =
            Setting { time: trouble.time, ttl, groups: &groups, topics: topics.len(), can_tell, seeks };
        let extras = Extras::roll(seed, &setting);
        if let Some(killer) = extras.killer {
            let nth = (killer % messages.len() as u64) as usize;
            messages[nth].manner = Manner::Kills;
        }
        let mut weather = weather;
        extras.log_faults(&mut weather.faults, idempotent);
        let mut workers = workers;
        for number in workers.len()..extras.crowd {
            workers.push(WorkerPlan { group: number % groups.len(), slots: 1 + number % 3 });
        }
        if extras.trims_passed && tick.is_none() && extras.ticks.is_none() {
            topics.iter_mut().for_each(|topic| topic.retention = Duration::ZERO);
        }
        Self {
            topics,
            groups,
            workers,
            ttl,
            poll,
            messages,
            pushers,
            weather,
            trouble,
            errands,
            idempotent,
            tick,
            extras,
            calm_death: [None, Some(CalmDeath::Crash), Some(CalmDeath::Freeze)]
                [Seeded::new(seed, CALM_STREAM).below(3) as usize],
        }
    }

    /// The rules that its history is held to.
    pub fn rules(&self) -> Rulebook {
        let rules = |(number, group): (usize, &GroupPlan)| GroupRules {
            name: group.name.clone(),
            topics: self.topics_of(number),
            ordered: group.ordered,
            once: group.once,
            logs_failures: group.logs_failures,
            limit: group.limit.map(|limit| limit as usize),
            rate: group.rate.map(|rate| rate as usize),
            per_key: self.extras.per_key.filter(|_| group.ordered).map(|rate| rate as usize),
            retries: if group.once { 0 } else { group.retries.0 },
            immediate: group.retries.1,
            backoff: group.backoff,
            most_claimed: group.most_claimed,
        };
        Rulebook {
            ttl: self.longest_ttl(),
            fastest: self.extras.paces.iter().max().copied().unwrap_or(1000).max(1000),
            skew: self.trouble.skew,
            snooze: SNOOZE,
            groups: (0..self.all_groups()).map(|number| (number, self.group(number))).map(rules).collect(),
        }
    }

    /// How many groups there are, with the one of the topic that is deleted, which is the last.
    pub fn all_groups(&self) -> usize {
        self.groups.len() + usize::from(self.extras.deletes.is_some())
    }

    /// The group with this number.
    pub fn group(&self, number: usize) -> &GroupPlan {
        match (&self.extras.deletes, self.groups.get(number)) {
            (Some(deletes), None) => &deletes.group,
            _ => &self.groups[number],
        }
    }

    /// The topics, by name, that a group works.
    pub fn topics_of(&self, group: usize) -> Vec<String> {
        match &self.extras.deletes {
            Some(deletes) if group >= self.groups.len() => vec![deletes.topic.name.clone()],
            _ => self.topics.iter().map(|topic| topic.name.clone()).collect(),
        }
    }

    /// The longest TTL of a worker, as it passes in the world.
    pub fn longest_ttl(&self) -> Duration {
        let longest = self.extras.ttls.iter().copied().max().unwrap_or(self.ttl);
        self.extras.at_most(longest.max(self.ttl))
    }

    /// How soon after its death in calm weather what this worker held runs again.
    pub fn relief(&self, worker: usize) -> Duration {
        self.extras.at_most(self.extras.ttl(worker).unwrap_or(self.ttl)) + Duration::from_secs(5)
    }

    /// True if the log can tell for as long as the history lasts whether it has a message already.
    pub fn can_tell(&self) -> bool {
        self.idempotent && self.topics.iter().all(|topic| topic.retention == FOR_EVER)
    }

    /// How often a group is sent elsewhere.
    pub fn seeks(&self) -> u32 {
        let seek = |errand: &&Errand| matches!(errand.task, Task::Seek { .. });
        self.errands.iter().filter(seek).count() as u32
    }

    /// In how much time after faults end all must be done, even if one slot had to do it alone.
    pub fn drain_limit(&self) -> Duration {
        let mut limit = Duration::from_secs(30) + 3 * self.longest_ttl();
        if self.extras.killer.is_some() {
            limit += 15 * (self.longest_ttl() + Duration::from_secs(6));
        }
        limit += self.extras.deletes.as_ref().map_or(Duration::ZERO, DeletePlan::takes);
        let lives = 1 + self.seeks() + self.extras.resends();
        for group in &self.groups {
            let starts = self.messages.len() as u32 * (1 + group.retries.0) * lives;
            let per_key = self.extras.per_key.filter(|_| group.ordered);
            // The messages of one key are one worker's, and its part of the rate may be one in a second.
            let rate = group.rate.map(|rate| if group.ordered { 1 } else { rate });
            for rate in rate.into_iter().chain(per_key) {
                limit += 2 * Duration::from_secs(1) * starts / rate;
            }
            for message in &self.messages {
                let attempts = match message.manner {
                    Manner::Done | Manner::Dead | Manner::Kills => 1,
                    Manner::Fails(times) | Manner::Panics(times) => 1 + times.min(group.retries.0),
                    Manner::Snoozes | Manner::Stops => 2,
                };
                let late = self.extras.timeout.is_some_and(|timeout| timeout <= message.takes);
                let attempts = if late { 1 + group.retries.0 } else { attempts };
                limit += lives * (attempts * message.takes + (attempts - 1) * group.backoff.1);
            }
        }
        limit
    }
}

fn errands(
    dice: &mut Seeded,
    time: Duration,
    ttl: Duration,
    groups: &[GroupPlan],
    topics: &mut [TopicPlan],
) -> Vec<Errand> {
    let (cancels, mut seeks) = match dice.below(10) {
        0..5 => (0, 0),
        5..7 => (1 + dice.below(10), 0),
        7..9 => (0, 1 + dice.below(3)),
        _ => (dice.below(5), dice.below(3)),
    };
    // Of what is only logged nobody could tell which of its readings gave it up.
    if groups.iter().any(|group| group.logs_failures) {
        seeks = 0;
    }
    if seeks > 0 {
        // What was trimmed does not come back.
        topics.iter_mut().for_each(|topic| topic.retention = FOR_EVER);
    }
    let pauses = [0, 0, 0, 1, 3][dice.below(5) as usize];
    let count = cancels + seeks + pauses;
    let task = |nth: u64| {
        if nth < cancels {
            return Task::Cancel(dice.below(u64::MAX));
        }
        let (group, topic) =
            (dice.below(groups.len() as u64) as usize, dice.below(topics.len() as u64) as usize);
        if nth < cancels + pauses {
            return Task::Pause { group, topic, time: ttl * (50 + dice.below(400) as u32) / 100 };
        }
        let place = match dice.below(4) {
            0 => Place::Start,
            1 => Place::Now,
            2 => Place::Message(dice.below(u64::MAX)),
            _ => Place::Time(dice.below(u64::MAX)),
        };
        Task::Seek { group, topic, place }
    };
    let tasks: Vec<Task> = (0..count).map(task).collect();
    let between = time / (count as u32 + 1).max(1);
    let errand = |task| Errand { pause: between * dice.below(200) as u32 / 100, task };
    let mut errands: Vec<Errand> = tasks.into_iter().map(errand).collect();
    for nth in (1..errands.len()).rev() {
        errands.swap(nth, dice.below(nth as u64 + 1) as usize);
    }
    errands
}

fn topics(dice: &mut Seeded) -> Vec<TopicPlan> {
    let count = if dice.below(5) == 0 { 2 } else { 1 };
    let topic = |number| TopicPlan {
        name: format!("topic{number}"),
        shards: [1, 1, 2, 3, 4, 8][dice.below(6) as usize],
        retention: match dice.below(8) {
            0 | 1 => Duration::ZERO,
            2 => Duration::from_secs(5),
            3 => Duration::from_secs(30),
            _ => FOR_EVER,
        },
    };
    (0..count).map(topic).collect()
}

fn groups(dice: &mut Seeded) -> Vec<GroupPlan> {
    let count = if dice.below(5) == 0 { 2 } else { 1 };
    let group = |number| {
        let first = Duration::from_millis([5, 50, 300, 1_000][dice.below(4) as usize]);
        GroupPlan {
            name: format!("group{number}"),
            ordered: dice.below(5) < 2,
            once: dice.below(4) == 0,
            retries: (dice.below(5) as u32, dice.below(3) as u32),
            backoff: (first, first * 4),
            logs_failures: dice.below(10) == 0,
            most_claimed: [None, None, Some(1), Some(2), Some(5), Some(20)][dice.below(6) as usize],
            limit: None,
            rate: None,
        }
    };
    (0..count).map(group).collect()
}

fn workers(dice: &mut Seeded, groups: usize) -> Vec<WorkerPlan> {
    let count = 2 + dice.below(5) as usize;
    let worker = |number| WorkerPlan { group: number % groups, slots: 1 + dice.below(4) as usize };
    (0..count.max(2 * groups)).map(worker).collect()
}

fn messages(dice: &mut Seeded, topics: usize, groups: &[GroupPlan]) -> Vec<MessagePlan> {
    // Long handlers and many messages together would take for ever.
    let pace = dice.below(5);
    let (most, longest) = [(200, 2), (200, 50), (120, 300), (60, 1_500), (40, 4_000)][pace as usize];
    let count = 30 + dice.below(most - 29);
    let keys = [0, 1, 2, 5, 50][dice.below(5) as usize];
    let keyless = Chance::percent([0, 30, 100][dice.below(3) as usize]);
    let delayed = Chance::percent([0, 10, 50][dice.below(3) as usize]);
    let failing = Chance::percent([0, 10, 40][dice.below(3) as usize]);
    let even = dice.below(2) == 0;
    let retries = groups.iter().map(|group| group.retries.0).max().unwrap_or(0);
    let message = |number| {
        let key = (keys > 0 && (!dice.hits(keyless) || groups[0].ordered))
            .then(|| Bytes::from(format!("key {}", dice.below(keys))));
        let headers = (0..dice.below(3)).map(|nth| (format!("h{nth}"), format!("value {number}"))).collect();
        let fails = dice.hits(failing);
        let manner = match dice.below(20) {
            0..10 if fails => Manner::Fails(1 + dice.below(u64::from(retries) + 2) as u32),
            10..13 if fails => Manner::Panics(1 + dice.below(2) as u32),
            13..17 if fails => Manner::Snoozes,
            17..19 if fails => Manner::Dead,
            19 if fails && dice.below(3) == 0 => Manner::Stops,
            _ => Manner::Done,
        };
        let micros =
            if even { longest * 500 + dice.below(longest * 500) } else { spread(dice, longest * 1_000) };
        MessagePlan {
            topic: dice.below(topics as u64) as usize,
            key,
            headers,
            delay: dice.hits(delayed).then(|| Duration::from_millis(dice.below(10_000))),
            takes: Duration::from_micros(micros.max(1)),
            manner,
            unique: None,
        }
    };
    (0..count).map(message).collect()
}

/// Gives names to some messages, so that they are unique.
fn name(dice: &mut Seeded, messages: &mut [MessagePlan]) {
    let names = [1, 2, 5, 20][dice.below(4) as usize];
    for message in messages {
        message.unique = (dice.below(2) == 0).then(|| format!("name {}", dice.below(names)));
    }
}

/// Mostly little, sometimes as much as `most`.
fn spread(dice: &mut Seeded, most: u64) -> u64 {
    let bound = most >> dice.below(12);
    1 + dice.below(bound.max(1))
}

fn pushers(dice: &mut Seeded, messages: usize, time: Duration) -> Vec<Vec<PushPlan>> {
    let count = 1 + dice.below(3) as usize;
    let mut pushers = vec![Vec::new(); count];
    let largest = [1, 1, 5, 30][dice.below(4) as usize];
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut next = 0;
    while next < messages {
        let batch = (1 + dice.below(largest) as usize).min(messages - next);
        all.push((next..next + batch).collect());
        next += batch;
    }
    // Some push everything at once, some all the time.
    let share = [10, 100, 100][dice.below(3) as usize];
    let between = time * share / 100 * count as u32 / (all.len() as u32).max(1);
    for (nth, messages) in all.into_iter().enumerate() {
        let pause = between * dice.below(200) as u32 / 100;
        pushers[nth % count].push(PushPlan { pause, messages });
    }
    pushers
}
