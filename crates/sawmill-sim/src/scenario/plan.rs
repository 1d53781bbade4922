//! The plan of a history: everything that the seed decides in advance.
//!
//! Not every seed has every fault, because faults mask each other: a store that never answers hides a missing
//! fence. Each seed has a style: some only crash workers, some only have unknown outcomes, some have
//! everything.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Headers;

use super::deletes::DeletePlan;
use super::extras::{Extras, Setting};
use super::incidents::{IncidentPlan, StoreFaults};
use crate::checker::{GroupRules, Rulebook};
use crate::faults::Chance;
use crate::rng::Seeded;

/// How long a snooze takes.
pub(super) const SNOOZE: Duration = Duration::from_millis(700);
/// A retention that outlasts every history.
pub(super) const FOR_EVER: Duration = Duration::from_secs(86_400);
/// The random stream that decides whether a worker dies when all is calm.
const CALM_STREAM: u64 = 1_000;

/// The plan of a history.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topics.
    pub topics: Vec<TopicPlan>,
    /// The groups; each works all topics.
    pub groups: Vec<GroupPlan>,
    /// The workers at the beginning.
    pub workers: Vec<WorkerPlan>,
    /// The TTL of workers.
    pub ttl: Duration,
    /// The poll interval of workers.
    pub poll: Duration,
    /// The messages, by number.
    pub messages: Vec<MessagePlan>,
    /// The pushes of each pusher.
    pub pushers: Vec<Vec<PushPlan>>,
    /// The faults of the store.
    pub store_faults: StoreFaults,
    /// The incidents of workers and store.
    pub incidents: IncidentPlan,
    /// The actions of users meanwhile.
    pub user_tasks: Vec<UserTask>,
    /// The engine detects duplicate messages.
    pub idempotent: bool,
    /// When a schedule of the first topic has its only tick, after the beginning.
    pub tick: Option<Duration>,
    /// Further user activities.
    pub extras: Extras,
    /// The death of a worker when everything is done, if it has one.
    pub calm_death: Option<CalmDeath>,
}

/// How a worker dies while nothing else is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalmDeath {
    /// Its process crashes.
    Crash,
    /// It is frozen.
    Freeze,
}

/// The plan of a topic.
#[derive(Debug, Clone)]
pub struct TopicPlan {
    /// Its name.
    pub name: String,
    /// The number of shards.
    pub shards: u16,
    /// The retention of its messages.
    pub retention: Duration,
}

/// The plan of a group.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// Strict order per key.
    pub ordered: bool,
    /// At-most-once.
    pub once: bool,
    /// The number of retries, and how many of them are immediate.
    pub retries: (u32, u32),
    /// The first and the longest backoff.
    pub backoff: (Duration, Duration),
    /// Messages out of attempts are only logged.
    pub logs_failures: bool,
    /// The maximum number of messages that a worker claims.
    pub max_in_flight: Option<usize>,
    /// The maximum number of messages of a topic that run at once.
    pub limit: Option<u32>,
    /// The maximum number of starts per second.
    pub rate: Option<u32>,
}

/// The plan of a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerPlan {
    /// Its group.
    pub group: usize,
    /// How many messages it runs at once.
    pub slots: usize,
}

/// The plan of a message.
#[derive(Debug, Clone)]
pub struct MessagePlan {
    /// Its topic.
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
    /// Its unique name.
    pub unique: Option<String>,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It succeeds.
    Done,
    /// It fails this often, then succeeds.
    Fails(u32),
    /// It panics this often, then succeeds.
    Panics(u32),
    /// It snoozes once, then succeeds.
    Snoozes,
    /// It returns dead.
    Dead,
    /// It stops its worker, once.
    Stops,
    /// It crashes its worker's process.
    Kills,
}

/// One push call with these messages, after a pause.
#[derive(Debug, Clone)]
pub struct PushPlan {
    /// How long to wait first.
    pub pause: Duration,
    /// The messages.
    pub messages: Vec<usize>,
}

/// A user action after a pause.
#[derive(Debug, Clone, Copy)]
pub struct UserTask {
    /// How long to wait first.
    pub pause: Duration,
    /// The action.
    pub task: UserAction,
}

/// A user action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAction {
    /// Cancels one of the pushed messages.
    Cancel(u64),
    /// Pauses a group of a topic, and resumes it after a while.
    Pause {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// How long the pause lasts.
        time: Duration,
    },
    /// Moves a group to another position in a topic.
    Seek {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// The target.
        place: SeekPlace,
    },
}

/// The target of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekPlace {
    /// The start.
    Start,
    /// The end.
    Now,
    /// One of the pushed messages.
    Message(u64),
    /// The time of a pushed message.
    Time(u64),
}

/// The random stream of plans.
const STREAM: u32 = 1;

impl Plan {
    /// Draws the plan of this seed.
    pub fn of(seed: u64) -> Self {
        let rng = &mut Seeded::new(seed, 1 + u64::from(STREAM));
        let idempotent = rng.below(3) > 0;
        let ttl = Duration::from_millis([1_000, 2_000, 2_000, 3_000, 5_000, 8_000][rng.below(6) as usize]);
        let poll = Duration::from_millis([100, 250, 500, 1_000][rng.below(4) as usize]);
        let store_faults = StoreFaults::draw(rng, idempotent);
        let incidents = IncidentPlan::draw(rng, ttl, &store_faults);
        let mut topics = topics(rng);
        let mut groups = groups(rng);
        let workers = workers(rng, groups.len());
        let mut messages = messages(rng, topics.len(), &groups);
        let pushers = pushers(rng, messages.len(), incidents.time);
        let user_tasks = user_tasks(rng, incidents.time, ttl, &groups, &mut topics);
        for group in &mut groups {
            match rng.below(10) {
                0..2 => group.limit = Some(1 + rng.below(4) as u32),
                2 => group.rate = Some([5, 20][rng.below(2) as usize]),
                _ => {}
            }
        }
        let seeks = user_tasks.iter().any(|user_task| matches!(user_task.task, UserAction::Seek { .. }));
        // An engine without duplicate detection, or one that has forgotten a message, may add it twice.
        let can_tell = idempotent && topics.iter().all(|topic| !topic.retention.is_zero());
        // A seek frees names.
        if can_tell && !seeks && rng.below(2) == 0 {
            name(rng, &mut messages);
        }
        let tick = (can_tell && rng.below(2) == 0).then(|| Duration::from_secs(2 + rng.below(10)));
        let setting =
            Setting { time: incidents.time, ttl, groups: &groups, topics: topics.len(), can_tell, seeks };
        let extras = Extras::draw(seed, &setting);
        if let Some(killer) = extras.killer {
            let nth = (killer % messages.len() as u64) as usize;
            messages[nth].manner = Manner::Kills;
        }
        let mut store_faults = store_faults;
        extras.log_faults(&mut store_faults.faults, idempotent);
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
            store_faults,
            incidents,
            user_tasks,
            idempotent,
            tick,
            extras,
            calm_death: [None, Some(CalmDeath::Crash), Some(CalmDeath::Freeze)]
                [Seeded::new(seed, CALM_STREAM).below(3) as usize],
        }
    }

    /// Returns the rules that the history is checked against.
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
            max_in_flight: group.max_in_flight,
        };
        Rulebook {
            ttl: self.longest_ttl(),
            fastest: self.extras.paces.iter().max().copied().unwrap_or(1000).max(1000),
            skew: self.incidents.skew,
            snooze: SNOOZE,
            groups: (0..self.all_groups()).map(|number| (number, self.group(number))).map(rules).collect(),
        }
    }

    /// Returns the number of groups. The last is the one of the deleted topic, if there is one.
    pub fn all_groups(&self) -> usize {
        self.groups.len() + usize::from(self.extras.deletes.is_some())
    }

    /// Returns the group with this number.
    pub fn group(&self, number: usize) -> &GroupPlan {
        match (&self.extras.deletes, self.groups.get(number)) {
            (Some(deletes), None) => &deletes.group,
            _ => &self.groups[number],
        }
    }

    /// Returns the names of the topics that a group works.
    pub fn topics_of(&self, group: usize) -> Vec<String> {
        match &self.extras.deletes {
            Some(deletes) if group >= self.groups.len() => vec![deletes.topic.name.clone()],
            _ => self.topics.iter().map(|topic| topic.name.clone()).collect(),
        }
    }

    /// Returns the longest TTL of a worker, in the world's time.
    pub fn longest_ttl(&self) -> Duration {
        let longest = self.extras.ttls.iter().copied().max().unwrap_or(self.ttl);
        self.extras.at_most(longest.max(self.ttl))
    }

    /// Returns how soon after a death, with nothing else wrong, this worker's messages run again.
    pub fn takeover_limit(&self, worker: usize) -> Duration {
        self.extras.at_most(self.extras.ttl(worker).unwrap_or(self.ttl)) + Duration::from_secs(5)
    }

    /// Returns true if the log detects duplicates for as long as the history lasts.
    pub fn can_tell(&self) -> bool {
        self.idempotent && self.topics.iter().all(|topic| topic.retention == FOR_EVER)
    }

    /// Returns how often groups seek.
    pub fn seeks(&self) -> u32 {
        let seek = |user_task: &&UserTask| matches!(user_task.task, UserAction::Seek { .. });
        self.user_tasks.iter().filter(seek).count() as u32
    }

    /// Returns the time limit for draining after the faults end, enough for a single slot.
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
            // The messages of one key belong to one worker, whose share of the rate may be one per second.
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

fn user_tasks(
    rng: &mut Seeded,
    time: Duration,
    ttl: Duration,
    groups: &[GroupPlan],
    topics: &mut [TopicPlan],
) -> Vec<UserTask> {
    let (cancels, mut seeks) = match rng.below(10) {
        0..5 => (0, 0),
        5..7 => (1 + rng.below(10), 0),
        7..9 => (0, 1 + rng.below(3)),
        _ => (rng.below(5), rng.below(3)),
    };
    // With log-only failures, it is unknown which pass over the log gave a message up.
    if groups.iter().any(|group| group.logs_failures) {
        seeks = 0;
    }
    if seeks > 0 {
        // Trimmed messages cannot be read again.
        topics.iter_mut().for_each(|topic| topic.retention = FOR_EVER);
    }
    let pauses = [0, 0, 0, 1, 3][rng.below(5) as usize];
    let count = cancels + seeks + pauses;
    let task = |nth: u64| {
        if nth < cancels {
            return UserAction::Cancel(rng.below(u64::MAX));
        }
        let (group, topic) =
            (rng.below(groups.len() as u64) as usize, rng.below(topics.len() as u64) as usize);
        if nth < cancels + pauses {
            return UserAction::Pause { group, topic, time: ttl * (50 + rng.below(400) as u32) / 100 };
        }
        let place = match rng.below(4) {
            0 => SeekPlace::Start,
            1 => SeekPlace::Now,
            2 => SeekPlace::Message(rng.below(u64::MAX)),
            _ => SeekPlace::Time(rng.below(u64::MAX)),
        };
        UserAction::Seek { group, topic, place }
    };
    let tasks: Vec<UserAction> = (0..count).map(task).collect();
    let between = time / (count as u32 + 1).max(1);
    let user_task = |task| UserTask { pause: between * rng.below(200) as u32 / 100, task };
    let mut user_tasks: Vec<UserTask> = tasks.into_iter().map(user_task).collect();
    for nth in (1..user_tasks.len()).rev() {
        user_tasks.swap(nth, rng.below(nth as u64 + 1) as usize);
    }
    user_tasks
}

fn topics(rng: &mut Seeded) -> Vec<TopicPlan> {
    let count = if rng.below(5) == 0 { 2 } else { 1 };
    let topic = |number| TopicPlan {
        name: format!("topic{number}"),
        shards: [1, 1, 2, 3, 4, 8][rng.below(6) as usize],
        retention: match rng.below(8) {
            0 | 1 => Duration::ZERO,
            2 => Duration::from_secs(5),
            3 => Duration::from_secs(30),
            _ => FOR_EVER,
        },
    };
    (0..count).map(topic).collect()
}

fn groups(rng: &mut Seeded) -> Vec<GroupPlan> {
    let count = if rng.below(5) == 0 { 2 } else { 1 };
    let group = |number| {
        let first = Duration::from_millis([5, 50, 300, 1_000][rng.below(4) as usize]);
        GroupPlan {
            name: format!("group{number}"),
            ordered: rng.below(5) < 2,
            once: rng.below(4) == 0,
            retries: (rng.below(5) as u32, rng.below(3) as u32),
            backoff: (first, first * 4),
            logs_failures: rng.below(10) == 0,
            max_in_flight: [None, None, Some(1), Some(2), Some(5), Some(20)][rng.below(6) as usize],
            limit: None,
            rate: None,
        }
    };
    (0..count).map(group).collect()
}

fn workers(rng: &mut Seeded, groups: usize) -> Vec<WorkerPlan> {
    let count = 2 + rng.below(5) as usize;
    let worker = |number| WorkerPlan { group: number % groups, slots: 1 + rng.below(4) as usize };
    (0..count.max(2 * groups)).map(worker).collect()
}

fn messages(rng: &mut Seeded, topics: usize, groups: &[GroupPlan]) -> Vec<MessagePlan> {
    // Long handlers and many messages together would take too long.
    let pace = rng.below(5);
    let (most, longest) = [(200, 2), (200, 50), (120, 300), (60, 1_500), (40, 4_000)][pace as usize];
    let count = 30 + rng.below(most - 29);
    let keys = [0, 1, 2, 5, 50][rng.below(5) as usize];
    let keyless = Chance::percent([0, 30, 100][rng.below(3) as usize]);
    let delayed = Chance::percent([0, 10, 50][rng.below(3) as usize]);
    let failing = Chance::percent([0, 10, 40][rng.below(3) as usize]);
    let even = rng.below(2) == 0;
    let retries = groups.iter().map(|group| group.retries.0).max().unwrap_or(0);
    let message = |number| {
        let key = (keys > 0 && (!rng.hits(keyless) || groups[0].ordered))
            .then(|| Bytes::from(format!("key {}", rng.below(keys))));
        let headers = (0..rng.below(3)).map(|nth| (format!("h{nth}"), format!("value {number}"))).collect();
        let fails = rng.hits(failing);
        let manner = match rng.below(20) {
            0..10 if fails => Manner::Fails(1 + rng.below(u64::from(retries) + 2) as u32),
            10..13 if fails => Manner::Panics(1 + rng.below(2) as u32),
            13..17 if fails => Manner::Snoozes,
            17..19 if fails => Manner::Dead,
            19 if fails && rng.below(3) == 0 => Manner::Stops,
            _ => Manner::Done,
        };
        let micros =
            if even { longest * 500 + rng.below(longest * 500) } else { spread(rng, longest * 1_000) };
        MessagePlan {
            topic: rng.below(topics as u64) as usize,
            key,
            headers,
            delay: rng.hits(delayed).then(|| Duration::from_millis(rng.below(10_000))),
            takes: Duration::from_micros(micros.max(1)),
            manner,
            unique: None,
        }
    };
    (0..count).map(message).collect()
}

/// Makes some messages unique by giving them names.
fn name(rng: &mut Seeded, messages: &mut [MessagePlan]) {
    let names = [1, 2, 5, 20][rng.below(4) as usize];
    for message in messages {
        message.unique = (rng.below(2) == 0).then(|| format!("name {}", rng.below(names)));
    }
}

/// Returns a number up to `most`, usually a small one.
fn spread(rng: &mut Seeded, most: u64) -> u64 {
    let bound = most >> rng.below(12);
    1 + rng.below(bound.max(1))
}

fn pushers(rng: &mut Seeded, messages: usize, time: Duration) -> Vec<Vec<PushPlan>> {
    let count = 1 + rng.below(3) as usize;
    let mut pushers = vec![Vec::new(); count];
    let largest = [1, 1, 5, 30][rng.below(4) as usize];
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut next = 0;
    while next < messages {
        let batch = (1 + rng.below(largest) as usize).min(messages - next);
        all.push((next..next + batch).collect());
        next += batch;
    }
    // Some pushers push everything early, others all the time.
    let share = [10, 100, 100][rng.below(3) as usize];
    let between = time * share / 100 * count as u32 / (all.len() as u32).max(1);
    for (nth, messages) in all.into_iter().enumerate() {
        let pause = between * rng.below(200) as u32 / 100;
        pushers[nth % count].push(PushPlan { pause, messages });
    }
    pushers
}
