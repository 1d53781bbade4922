//! Checks pushes and the log: nothing is invented, and nothing that is still needed is dropped.

use bytes::Bytes;
use sawmill::engine::model::{Headers, Lane, Topic};
use sawmill::{Message, MessageId, Timestamp};

use super::book::{Book, LogEntry};
use super::invariant::Invariant;

/// A message that is going to be pushed. Its payload contains its number.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The name of its topic.
    pub topic: String,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
    /// Its due time.
    pub due: Option<Timestamp>,
}

/// A message that was going to be pushed, and what is known about it.
pub(super) struct Pushed {
    pub(super) intent: Intent,
    /// Its id in the log.
    pub(super) id: Option<MessageId>,
    /// The id that its pusher got.
    pub(super) acknowledged: Option<MessageId>,
    /// Its topic is deleted or being deleted.
    pub(super) is_deleted: bool,
}

pub(super) fn number_of(payload: &Bytes) -> Option<usize> {
    std::str::from_utf8(payload).ok()?.strip_prefix("message ")?.parse().ok()
}

impl Intent {
    /// Returns the payload of the message with this number.
    pub fn payload(number: usize) -> Bytes {
        format!("message {number}").into()
    }
}

impl Book {
    /// Records a message that is going to be pushed, and returns its number.
    pub fn intended(&mut self, intent: Intent) -> usize {
        self.pushed.push(Pushed { intent, id: None, acknowledged: None, is_deleted: false });
        self.pushed.len() - 1
    }

    /// Sets the due time of a message, which is known only at its push.
    pub fn due_at(&mut self, number: usize, due: Timestamp) {
        self.pushed[number].intent.due = Some(due);
    }

    /// Records that this message may be pushed several times but may be in the log only once.
    pub fn comes_once(&mut self, number: usize) {
        self.once_in_the_log.insert(number);
    }

    /// Records an acknowledged push: the messages with these numbers have these ids.
    pub fn acknowledged(&mut self, numbers: &[usize], ids: &[MessageId]) {
        for (number, id) in numbers.iter().zip(ids) {
            self.pushed[*number].acknowledged = Some(*id);
            let known = self.pushed[*number].id;
            let as_told = known.is_none_or(|known| known == *id);
            self.check(Invariant::NothingInvented, as_told, |_| {
                (format!("the push of message {number} was told {id}, and the log has {known:?}"), vec![])
            });
        }
    }

    /// Records that a message became readable.
    pub fn readable(&mut self, topic: &Topic, shard: u16, number: u64, message: &Message) {
        if self.is_of_a_deleted_topic(topic, message) {
            return;
        }
        self.in_the_log(topic, message);
        self.in_its_shard(topic, shard, message);
        let index = self.topic(topic);
        let behind = self.mirrors.iter().find(|(_, mirror)| {
            let cursor = mirror.state.cursor.number().unwrap_or(0);
            mirror.topic == index && mirror.shard == shard && number <= cursor
        });
        let behind = behind.map(|(key, _)| key.clone());
        self.check(Invariant::Cursor, behind.is_none(), |_| {
            let key = behind.unwrap_or_default();
            let what =
                format!("{} became readable as number {number}, behind the cursor of {key}", message.id);
            (what, vec![message.id.to_string(), key])
        });
        let logged = LogEntry {
            id: message.id,
            origin: message.origin(),
            key: message.key.clone(),
            created: message.created,
        };
        self.places.insert((index, shard, number), logged);
        let places = self.by_id.entry((index, message.id)).or_default();
        places.push((shard, number));
        if places.len() > 1 {
            self.doubled.insert(message.origin());
            let once = self.origins.get(&message.id).is_some_and(|of| self.once_in_the_log.contains(of));
            self.check(Invariant::NothingInvented, !once, |_| {
                (
                    format!("{} was pushed again, and the log has it twice", message.id),
                    vec![message.id.to_string()],
                )
            });
        }
    }

    /// Records a message that is in the log but not readable yet.
    pub fn kept_aside(&mut self, topic: &Topic, shard: u16, message: &Message) {
        if self.is_of_a_deleted_topic(topic, message) {
            return;
        }
        self.in_the_log(topic, message);
        self.in_its_shard(topic, shard, message);
    }

    /// Checks a message that arrived in the log: it must be as pushed, or a copy with a cause.
    fn in_the_log(&mut self, topic: &Topic, message: &Message) {
        let origin = message.origin();
        let about = || vec![origin.to_string(), message.id.to_string()];
        let number = number_of(&message.payload).filter(|number| *number < self.pushed.len());
        let Some(number) = number else {
            let what = format!("{origin} in {} has a payload that nobody pushed", topic.name);
            return self.wrong(Invariant::NothingInvented, what, about());
        };
        let pushed = &self.pushed[number];
        let intent = &pushed.intent;
        let same = intent.topic == topic.name.base()
            && intent.key == message.key
            && intent.headers == message.own_headers()
            && (pushed.id.is_none_or(|id| id == origin) || self.is_ticking(number))
            && pushed.acknowledged.is_none_or(|id| id == origin);
        self.check(Invariant::NothingInvented, same, |book| {
            let what = format!("{origin} in {} is not as it was pushed: {message:?}", topic.name);
            (format!("{what}; pushed was {:?}", book.pushed[number].intent), about())
        });
        let index = self.topic(topic);
        match self.topics[index].lane {
            None => {
                let same_due = self.pushed[number].intent.due == message.due;
                self.check(Invariant::NothingInvented, same_due, |_| {
                    (format!("{origin} came with another due time: {:?}", message.due), about())
                });
                self.pushed[number].id = Some(origin);
                self.origins.insert(origin, number);
                self.ticked(number, message);
            }
            Some((group, lane)) => self.on_a_lane(group, lane, message),
        }
    }

    /// Checks a copy on a lane: each needs a failed run, and a dead letter needs a cause.
    fn on_a_lane(&mut self, group: usize, lane: Lane, message: &Message) {
        let origin = message.origin();
        let known = self.origins.contains_key(&origin);
        self.check(Invariant::NothingInvented, known, |_| {
            (
                format!("a copy of {origin} is on a lane, and {origin} itself never was in the log"),
                vec![origin.to_string()],
            )
        });
        let handling = self.handled.entry((group, origin)).or_default();
        match lane {
            Lane::Dead => {
                if !handling.dead.contains(&message.id) {
                    handling.dead.push(message.id);
                    self.died_for_a_cause(group, message);
                }
            }
            Lane::Retry => {
                let is_new = !handling.retries.contains(&message.id);
                if is_new {
                    handling.retries.push(message.id);
                    if crate::scenario::is_resent(message) {
                        handling.lives.push((handling.retries.len(), handling.dead.len()));
                    }
                }
                let (copies, dead) = (handling.retries.len() - handling.lives.len(), handling.dead.len());
                let lives = handling.lives.len();
                self.check(Invariant::NothingInvented, lives <= dead, |_| {
                    let what =
                        format!("{origin} came back {lives} times, and was a dead letter {dead} times");
                    (what, vec![origin.to_string()])
                });
                let failed = |run: &&super::RunId| {
                    use super::How::{Failed, Snoozed};
                    matches!(self.runs[run.0].how, Some(Failed | Snoozed))
                };
                let failures = self.handled[&(group, origin)].runs.iter().filter(failed).count();
                self.check(Invariant::AtLeastOnce, copies <= failures, |_| {
                    let what =
                        format!("{origin} has {copies} retries, and only {failures} runs of it failed");
                    (what, vec![origin.to_string()])
                });
                if is_new {
                    self.due_as_planned(group, message);
                }
            }
        }
    }
}
