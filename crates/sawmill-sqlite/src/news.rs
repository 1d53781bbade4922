//! Hears of what other processes write. Who has committed touches a file beside the database, and on Linux the others
//! [hear](crate::touch) that at once. SQLite keeps a number that changes when another connection has committed, which tells
//! others' touches from one's own. Where nothing is heard the number is asked for at intervals, and now and then it is in any case.

use std::time::Duration;

use rusqlite::Connection;
use sawmill::log::Hints;
use tokio::sync::watch;

const SHORTEST_PAUSE_MS: u64 = 5;
const LONGEST_PAUSE_MS: u64 = 1_000;
/// How often to ask where touches are heard: somebody may have ended between writing and touching.
const HEARING_PAUSE: Duration = Duration::from_secs(30);

/// Rung when something was written, each for those who want to hear of it.
#[derive(Clone, Default)]
pub(crate) struct Bells {
    pub(crate) messages: watch::Sender<()>,
    pub(crate) entries: watch::Sender<()>,
}

/// What was written, or may have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) messages: bool,
    pub(crate) entries: bool,
}

impl Written {
    pub(crate) const ANYTHING: Self = Self { messages: true, entries: true };
    pub(crate) const MESSAGES: Self = Self { messages: true, entries: false };

    pub(crate) fn add(&mut self, other: Self) {
        self.messages |= other.messages;
        self.entries |= other.entries;
    }
}

impl Bells {
    /// True if somebody listens.
    pub(crate) fn are_heard(&self) -> bool {
        self.messages.receiver_count() + self.entries.receiver_count() > 0
    }

    pub(crate) fn ring(&self, written: Written) {
        if written.messages {
            self.messages.send_replace(());
        }
        if written.entries {
            self.entries.send_replace(());
        }
    }
}

/// Hints that come when this bell is rung.
pub(crate) fn hints(bell: &watch::Sender<()>) -> Hints {
    Hints::new(bell.subscribe())
}

/// What was last heard, and how long ago.
pub(crate) struct Ear {
    /// SQLite's number when messages, and when entries, were last looked for.
    messages: i64,
    entries: i64,
    /// Touches are heard.
    hears: bool,
    /// How often nothing was heard since something happened.
    quiet: u64,
}

impl Ear {
    pub(crate) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let version = data_version(connection)?;
        Ok(Self { messages: version, entries: version, hears: false, quiet: 0 })
    }

    /// Touches are heard from now on: there is little need to ask.
    pub(crate) fn hears(&mut self) {
        self.hears = true;
    }

    /// Something happens here: others may be at work as well.
    pub(crate) fn stay_awake(&mut self) {
        self.quiet = 0;
    }

    /// True if the number should be asked for after every piece of work.
    pub(crate) fn must_ask(&self) -> bool {
        !self.hears
    }

    /// How long to wait before asking again. Where touches are not heard it grows for about ten seconds.
    pub(crate) fn pause(&self) -> Duration {
        if self.hears {
            return HEARING_PAUSE;
        }
        let ms = SHORTEST_PAUSE_MS.saturating_add(self.quiet.saturating_mul(self.quiet) / 16);
        Duration::from_millis(ms.min(LONGEST_PAUSE_MS))
    }

    /// What of these another connection may have written since they were last asked for.
    pub(crate) fn ask(&mut self, connection: &Connection, of: Written) -> Written {
        // Who cannot listen hears nothing; hints may be lost.
        let Ok(version) = data_version(connection) else { return Written::default() };
        let look = |seen: &mut i64, asked: bool| asked && std::mem::replace(seen, version) != version;
        let written = Written {
            messages: look(&mut self.messages, of.messages),
            entries: look(&mut self.entries, of.entries),
        };
        self.quiet = if written == Written::default() { self.quiet.saturating_add(1) } else { 0 };
        written
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_nothing_is_heard_and_are_short_after_something_happened() {
        let connection = Connection::open_in_memory().unwrap();
        let mut ear = Ear::new(&connection).unwrap();
        let mut whole = Duration::ZERO;
        while ear.pause() < Duration::from_millis(LONGEST_PAUSE_MS) {
            let before = ear.pause();
            whole += before;
            assert_eq!(ear.ask(&connection, Written::ANYTHING), Written::default());
            assert!(ear.pause() >= before);
        }
        assert!((Duration::from_secs(8)..Duration::from_secs(60)).contains(&whole), "{whole:?}");
        ear.stay_awake();
        assert_eq!(ear.pause(), Duration::from_millis(SHORTEST_PAUSE_MS));
        ear.hears();
        assert_eq!(ear.pause(), HEARING_PAUSE);
    }

    #[test]
    fn what_is_asked_for_later_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (one, other) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        let mut ear = Ear::new(&one).unwrap();
        let entries = Written { messages: false, entries: true };
        let messages = Written { messages: true, entries: false };
        one.execute_batch("CREATE TABLE own (a)").unwrap();
        assert_eq!(ear.ask(&one, Written::ANYTHING), Written::default(), "one's own work is no news");
        other.execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert_eq!(ear.ask(&one, entries), entries);
        assert_eq!(ear.ask(&one, entries), Written::default());
        assert_eq!(ear.ask(&one, messages), messages);
        assert_eq!(ear.ask(&one, Written::ANYTHING), Written::default());
    }
}
