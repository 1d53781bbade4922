//! What was pushed and where it lies: nothing is invented, nothing is dropped that somebody needs.

use bytes::Bytes;
use sawmill::clock::Timestamp;
use sawmill::message::Headers;
use sawmill::topic::{Lane, Topic};
use sawmill::{Message, MessageId};

use super::book::{Book, Lying};
use super::invariant::Invariant;

/// A message that somebody is going to push. Its payload says its number.
#[derive(Debug, Clone)]
pub struct Intent {
    /// To which topic, by name.
    pub topic: String,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
    /// Its due time.
    pub due: Option<Timestamp>,
}

/// A message that somebody was going to push, and what is known of it.
pub(super) struct Pushed {
    pub(super) intent: Intent,
    /// The id that the log has for it.
    pub(super) id: Option<MessageId>,
    /// The id that its pusher was told.
    pub(super) acknowledged: Option<MessageId>,
    /// Its topic is deleted, or being deleted.
    pub(super) is_deleted: bool,
}

pub(super) fn number_of(payload: &Bytes) -> Option<usize> {
    std::str::from_utf8(payload).ok()?.strip_prefix("message ")?.parse().ok()
}

impl Intent {
    /// The payload of the message with this number.
    pub fn payload(number: usize) -> Bytes {
        format!("message {number}").into()
    }
}

impl Book {
    /// Somebody is going to push this; says its number.
    pub fn intended(&mut self, intent: Intent) -> usize {
        self.pushed.push(Pushed { intent, id: None, acknowledged: None, is_deleted: false });
        self.pushed.len() - 1
    }

    /// The due time of a message that is going to be pushed is known only now.
    pub fn due_at(&mut self, number: usize, due: Timestamp) {
        self.pushed[number].intent.due = Some(due);
    }

    /// The message with this number may be pushed several times, and comes into the log once.
    pub fn comes_once(&mut self, number: usize) {
        self.once_in_the_log.insert(number);
    }

    /// A push was acknowledged: these messages, by their numbers, have these ids.
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

    /// A message became readable.
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
        let lying = Lying {
            id: message.id,
            origin: message.origin(),
            key: message.key.clone(),
            created: message.created,
        };
        self.places.insert((index, shard, number), lying);
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

    /// A message is in the log, and not readable yet.
    pub fn aside(&mut self, topic: &Topic, shard: u16, message: &Message) {
        if self.is_of_a_deleted_topic(topic, message) {
            return;
        }
        self.in_the_log(topic, message);
        self.in_its_shard(topic, shard, message);
    }

    /// A message has come into the log: it must be what was pushed, or a copy of it with a reason to be there.
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

    /// A copy on a lane: there must have been a failure for each of them, or, for a dead letter, a death.
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
