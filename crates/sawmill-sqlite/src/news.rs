//! Hears of what other processes write: SQLite keeps a number that changes when another connection has committed, and
//! asking for it is cheap. Asked often while things happen, seldom while nothing does.

use std::time::Duration;

use rusqlite::Connection;
use sawmill::log::Hints;
use tokio::sync::watch;

const SHORTEST_PAUSE_MS: u64 = 5;
const LONGEST_PAUSE_MS: u64 = 250;

/// Rung when something was written, each for those who want to hear of it.
#[derive(Clone, Default)]
pub(crate) struct Bells {
    pub(crate) messages: watch::Sender<()>,
    pub(crate) entries: watch::Sender<()>,
}

impl Bells {
    /// True if somebody listens.
    pub(crate) fn are_heard(&self) -> bool {
        self.messages.receiver_count() + self.entries.receiver_count() > 0
    }

    /// Another process has written something; nobody knows what.
    pub(crate) fn ring_both(&self) {
        self.messages.send_replace(());
        self.entries.send_replace(());
    }
}

/// Hints that come when this bell is rung.
pub(crate) fn hints(bell: &watch::Sender<()>) -> Hints {
    Hints::new(bell.subscribe())
}

/// What was last heard, and how long ago.
pub(crate) struct Ear {
    version: i64,
    /// How often nothing was heard since something happened.
    quiet: u64,
}

impl Ear {
    pub(crate) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self { version: data_version(connection)?, quiet: 0 })
    }

    /// Something happens here: others may be at work as well.
    pub(crate) fn stay_awake(&mut self) {
        self.quiet = 0;
    }

    /// How long to wait before listening again. It grows for about five seconds.
    pub(crate) fn pause(&self) -> Duration {
        let ms = SHORTEST_PAUSE_MS.saturating_add(self.quiet.saturating_mul(self.quiet) / 16);
        Duration::from_millis(ms.min(LONGEST_PAUSE_MS))
    }

    /// True if another connection has written since the last time.
    pub(crate) fn heard(&mut self, connection: &Connection) -> bool {
        // Who cannot listen hears nothing; hints may be lost.
        let version = data_version(connection).unwrap_or(self.version);
        let heard = version != self.version;
        self.version = version;
        self.quiet = if heard { 0 } else { self.quiet.saturating_add(1) };
        heard
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
            assert!(!ear.heard(&connection));
            assert!(ear.pause() >= before);
        }
        assert!((Duration::from_secs(3)..Duration::from_secs(8)).contains(&whole), "{whole:?}");
        ear.stay_awake();
        assert_eq!(ear.pause(), Duration::from_millis(SHORTEST_PAUSE_MS));
    }
}
