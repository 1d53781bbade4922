//! Records the events of a run with real processes, and finds violations of promises.
//!
//! Each process appends its events to a file, one per line, before or after the fact so that a crash in
//! between never hides a violation: *pushed* after the push was acknowledged, *started* before the handler
//! does anything, *finished* after its last effect, *killed* and *frozen* before the signal is sent.
//! Afterwards the lines of all files form one [`History`], and its checks describe each broken promise.
//!
//! A line is the time, the kind of event, and its details; `-` stands for no key:
//!
//! ```text
//! 1042 pushed 01J0000000000000000000000A alice
//! 1050 started 01J0000000000000000000000A alice w1 1
//! 1061 finished 01J0000000000000000000000A w1 ok
//! 1100 killed w1
//! 1180 declared-dead w1-7f
//! ```
//!
//! A history covers one topic and one group. All processes of the machine share its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use sawmill::MessageId;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A push of this message was acknowledged. Messages with the same key are recorded in the order of their
    /// pushes.
    Pushed {
        /// The message.
        id: MessageId,
        /// Its key.
        key: Option<String>,
    },
    /// A handler starts on this message.
    Started {
        /// The message.
        id: MessageId,
        /// Its key.
        key: Option<String>,
        /// The worker that runs the handler.
        worker: String,
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// A handler is done with this message.
    Finished {
        /// The message.
        id: MessageId,
        /// The worker that ran the handler.
        worker: String,
        /// True if the handler reported success.
        ok: bool,
    },
    /// The message is a dead letter.
    Dead {
        /// The message.
        id: MessageId,
    },
    /// A worker is killed without warning.
    WorkerKilled {
        /// The worker.
        worker: String,
    },
    /// A worker is suspended for so long that it may be declared dead, and then resumed.
    WorkerFrozen {
        /// The worker.
        worker: String,
    },
    /// A worker was declared dead. Recorded by the worker that declared it, by the one that found itself
    /// declared dead, or by both.
    DeclaredDead {
        /// Its member id: its name, `-`, and a unique suffix.
        member: String,
    },
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The time, on a clock that all recorders share.
    pub at: u64,
    /// The event.
    pub event: Event,
}

/// All events of a run, ordered by time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Recorded>,
}

impl History {
    /// Sorts the events by time. Events of the same time keep the given order.
    pub fn new(events: impl IntoIterator<Item = Recorded>) -> Self {
        let mut events: Vec<Recorded> = events.into_iter().collect();
        events.sort_by_key(|recorded| recorded.at);
        Self { events }
    }

    /// Parses the texts of record files. A last line without a line break was cut off when its process was
    /// killed, and is ignored. Any other malformed line is an error that names it.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut events = Vec::new();
        for text in texts {
            for (number, line) in text.split_inclusive('\n').enumerate() {
                if let Some(line) = line.strip_suffix('\n') {
                    events.push(line.parse().map_err(|error| format!("line {}: {error}", number + 1))?);
                }
            }
        }
        Ok(Self::new(events))
    }

    /// Returns all events, ordered by time.
    pub fn events(&self) -> &[Recorded] {
        &self.events
    }

    /// Nothing is lost: every message that was pushed was finished with success, or is a dead letter.
    pub fn check_nothing_lost(&self) -> Vec<String> {
        let settled: BTreeSet<MessageId> = self.events.iter().filter_map(|r| r.event.settles()).collect();
        let lost = self.pushed().filter(|(id, _)| !settled.contains(id));
        lost.map(|(id, key)| {
            let last = self.events.iter().rev().find(|r| r.event.id() == Some(id));
            let last = last.map(Recorded::to_string).unwrap_or_default();
            format!("{id} (key {}) was pushed and never done; the last of it was: {last}", shown(key))
        })
        .collect()
    }

    /// Nothing is invented: every message that was started was pushed, and with that key.
    ///
    /// A push with an unknown outcome may have taken effect. A run with such pushes records them as pushed
    /// once the outcome is known, or skips this check.
    pub fn check_nothing_invented(&self) -> Vec<String> {
        let pushed: BTreeMap<MessageId, &Option<String>> = self.pushed().collect();
        let mut violations = Vec::new();
        for recorded in &self.events {
            if let Event::Started { id, key, .. } = &recorded.event {
                match pushed.get(id) {
                    None => violations.push(format!("{id} was never pushed, and was started: {recorded}")),
                    Some(pushed) if *pushed != key => {
                        violations.push(format!("{id} was pushed with key {}: {recorded}", shown(pushed)));
                    }
                    Some(_) => {}
                }
            }
        }
        violations
    }

    /// At most once: no message was started twice, regardless of what happened to the first start.
    pub fn check_at_most_once(&self) -> Vec<String> {
        let mut first: BTreeMap<MessageId, &Recorded> = BTreeMap::new();
        let mut violations = Vec::new();
        for recorded in &self.events {
            if let Event::Started { id, .. } = &recorded.event {
                match first.get(id) {
                    Some(first) => {
                        violations.push(format!("{id} was started twice: {first}; and {recorded}"))
                    }
                    None => _ = first.insert(*id, recorded),
                }
            }
        }
        violations
    }

    /// At least once, without needless repetition: a message was started again only after its last attempt
    /// failed, or after the worker of that attempt was killed or frozen.
    /// after the worker of that attempt was killed or frozen.
    pub fn check_second_starts_have_a_reason(&self) -> Vec<String> {
        let mut last_start: BTreeMap<MessageId, (&Recorded, &String)> = BTreeMap::new();
        let mut failed: BTreeSet<(MessageId, &String)> = BTreeSet::new();
        let mut fallen: BTreeSet<&String> = BTreeSet::new();
        let mut violations = Vec::new();
        for recorded in &self.events {
            match &recorded.event {
                Event::Started { id, worker, .. } => {
                    if let Some((last, earlier)) = last_start.insert(*id, (recorded, worker)) {
                        // A reason serves once: the second start uses it up.
                        if !failed.remove(&(*id, earlier)) && !fallen.contains(earlier) {
                            violations.push(format!(
                                "{id} was started again though its worker neither failed it nor fell: {last}; and {recorded}"
                            ));
                        }
                    }
                }
                Event::Finished { id, worker, ok: false } => _ = failed.insert((*id, worker)),
                Event::WorkerKilled { worker } | Event::WorkerFrozen { worker } => _ = fallen.insert(worker),
                Event::Pushed { .. }
                | Event::Finished { .. }
                | Event::Dead { .. }
                | Event::DeclaredDead { .. } => {}
            }
        }
        violations
    }

    /// No worker is declared dead without a reason: it was killed or frozen before, once for each time.
    pub fn check_deaths_have_a_reason(&self) -> Vec<String> {
        let mut falls: BTreeMap<&str, usize> = BTreeMap::new();
        let mut dead: BTreeSet<&str> = BTreeSet::new();
        let mut violations = Vec::new();
        for recorded in &self.events {
            match &recorded.event {
                Event::WorkerKilled { worker } | Event::WorkerFrozen { worker } => {
                    *falls.entry(worker.as_str()).or_default() += 1;
                }
                Event::DeclaredDead { member } if dead.insert(member.as_str()) => {
                    let name = member.rsplit_once('-').map_or(member.as_str(), |(name, _)| name);
                    match falls.get(name).copied().unwrap_or_default() {
                        0 => violations
                            .push(format!("{member} was declared dead and had not fallen: {recorded}")),
                        left => _ = falls.insert(name, left - 1),
                    }
                }
                _ => {}
            }
        }
        violations
    }

    /// Order per key: a message was started only when every earlier message with its key was finished with
    /// success or dead, and it was not started again after that had happened to itself.
    pub fn check_order_per_key(&self) -> Vec<String> {
        let mut queues: BTreeMap<&String, Vec<MessageId>> = BTreeMap::new();
        for (id, key) in self.pushed() {
            if let Some(key) = key {
                queues.entry(key).or_default().push(id);
            }
        }
        let mut settled: BTreeMap<MessageId, &Recorded> = BTreeMap::new();
        let mut violations = Vec::new();
        for recorded in &self.events {
            if let Some(id) = recorded.event.settles() {
                settled.entry(id).or_insert(recorded);
            }
            let Event::Started { id, key: Some(key), .. } = &recorded.event else { continue };
            if let Some(settled) = settled.get(id) {
                violations.push(format!(
                    "key {key}: {id} was over, and was started again: {settled}; then {recorded}"
                ));
            }
            let queue = queues.get(key).map(Vec::as_slice).unwrap_or_default();
            let earlier = queue.iter().take_while(|other| *other != id);
            if queue.contains(id) {
                for waiting in earlier.filter(|earlier| !settled.contains_key(earlier)) {
                    violations
                        .push(format!("key {key}: {id} was started before {waiting} was over: {recorded}"));
                }
            }
        }
        violations
    }

    fn pushed(&self) -> impl Iterator<Item = (MessageId, &Option<String>)> {
        self.events.iter().filter_map(|recorded| match &recorded.event {
            Event::Pushed { id, key } => Some((*id, key)),
            _ => None,
        })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|recorded| writeln!(f, "{recorded}"))
    }
}

impl Event {
    /// Returns the message that the event concerns.
    fn id(&self) -> Option<MessageId> {
        match self {
            Event::Pushed { id, .. }
            | Event::Started { id, .. }
            | Event::Finished { id, .. }
            | Event::Dead { id } => Some(*id),
            Event::WorkerKilled { .. } | Event::WorkerFrozen { .. } | Event::DeclaredDead { .. } => None,
        }
    }

    /// Returns the message that this event settles.
    fn settles(&self) -> Option<MessageId> {
        match self {
            Event::Finished { id, ok: true, .. } | Event::Dead { id } => Some(*id),
            _ => None,
        }
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.event {
            Event::Pushed { id, key } => write!(f, "{at} pushed {id} {}", shown(key)),
            Event::Started { id, key, worker, attempt } => {
                write!(f, "{at} started {id} {} {} {attempt}", shown(key), escape(worker))
            }
            Event::Finished { id, worker, ok } => {
                write!(f, "{at} finished {id} {} {}", escape(worker), if *ok { "ok" } else { "failed" })
            }
            Event::Dead { id } => write!(f, "{at} dead {id}"),
            Event::WorkerKilled { worker } => write!(f, "{at} killed {}", escape(worker)),
            Event::WorkerFrozen { worker } => write!(f, "{at} frozen {}", escape(worker)),
            Event::DeclaredDead { member } => write!(f, "{at} declared-dead {}", escape(member)),
        }
    }
}

impl FromStr for Recorded {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        read_line(line).ok_or_else(|| format!("{line:?} is no event"))
    }
}

fn read_line(line: &str) -> Option<Recorded> {
    let words: Vec<&str> = line.split(' ').collect();
    let (at, words) = words.split_first()?;
    let event = match *words {
        ["pushed", id, key] => Event::Pushed { id: id.parse().ok()?, key: read_key(key)? },
        ["started", id, key, worker, attempt] => Event::Started {
            id: id.parse().ok()?,
            key: read_key(key)?,
            worker: unescape(worker)?,
            attempt: attempt.parse().ok()?,
        },
        ["finished", id, worker, outcome @ ("ok" | "failed")] => {
            Event::Finished { id: id.parse().ok()?, worker: unescape(worker)?, ok: outcome == "ok" }
        }
        ["dead", id] => Event::Dead { id: id.parse().ok()? },
        ["killed", worker] => Event::WorkerKilled { worker: unescape(worker)? },
        ["frozen", worker] => Event::WorkerFrozen { worker: unescape(worker)? },
        ["declared-dead", member] => Event::DeclaredDead { member: unescape(member)? },
        _ => return None,
    };
    Some(Recorded { at: at.parse().ok()?, event })
}

fn shown(key: &Option<String>) -> String {
    key.as_deref().map_or_else(|| "-".to_owned(), escape)
}

fn read_key(word: &str) -> Option<Option<String>> {
    if word == "-" { Some(None) } else { unescape(word).map(Some) }
}

/// Encodes the text as one word: ambiguous characters become `%` and two hexadecimal digits, the empty text
/// becomes `%`.
fn escape(text: &str) -> String {
    match text {
        "" => "%".to_owned(),
        "-" => "%2d".to_owned(),
        _ => {
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
            text.bytes()
                .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
                .collect()
        }
    }
}

fn unescape(word: &str) -> Option<String> {
    if word == "%" {
        return Some(String::new());
    }
    let mut parts = word.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
