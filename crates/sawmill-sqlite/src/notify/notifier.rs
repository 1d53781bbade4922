//! Notifies subscribers of changes by this process and by others. After a commit, a process touches a file
//! beside the database; on Linux the others are notified of [touches](crate::notify::touch) at once. SQLite's
//! `data_version` changes only when another connection has committed, which tells their touches from one's
//! own. Without touches it is polled at short intervals, and with them every 30 seconds.

use std::time::Duration;

use rusqlite::Connection;
use sawmill_engine::storage::Notifications;
use tokio::sync::watch;

const SHORTEST_PAUSE_MS: u64 = 5;
const LONGEST_PAUSE_MS: u64 = 1_000;
/// Poll interval with touches: a process may end between its commit and its touch.
const LISTENING_PAUSE: Duration = Duration::from_secs(30);

/// Notifies subscribers of changed messages and ledger entries.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    pub(crate) messages: watch::Sender<()>,
    pub(crate) entries: watch::Sender<()>,
}

/// The outcome of a write.
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

impl Notifier {
    /// True if there is a subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.messages.receiver_count() + self.entries.receiver_count() > 0
    }

    pub(crate) fn notify(&self, written: Written) {
        if written.messages {
            self.messages.send_replace(());
        }
        if written.entries {
            self.entries.send_replace(());
        }
    }
}

/// Subscribes to the notifications of this sender.
pub(crate) fn subscribe(sender: &watch::Sender<()>) -> Notifications {
    Notifications::new(sender.subscribe())
}

/// Polls SQLite's `data_version` for commits of other connections.
pub(crate) struct ChangePoller {
    /// The data version when messages, and when entries, were last checked.
    messages: i64,
    entries: i64,
    /// True if touches are reported.
    has_listener: bool,
    /// Polls without a change since the last activity.
    empty_polls: u64,
}

impl ChangePoller {
    pub(crate) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let version = data_version(connection)?;
        Ok(Self { messages: version, entries: version, has_listener: false, empty_polls: 0 })
    }

    /// Polls rarely from now on, because touches are reported.
    pub(crate) fn listener_started(&mut self) {
        self.has_listener = true;
    }

    /// Polls often again after activity here: other processes may be active too.
    pub(crate) fn reset_pause(&mut self) {
        self.empty_polls = 0;
    }

    /// True if the version must be polled after every piece of work.
    pub(crate) fn must_poll(&self) -> bool {
        !self.has_listener
    }

    /// The time until the next poll. Without touches it grows for about ten seconds.
    pub(crate) fn pause(&self) -> Duration {
        if self.has_listener {
            return LISTENING_PAUSE;
        }
        let ms = SHORTEST_PAUSE_MS.saturating_add(self.empty_polls.saturating_mul(self.empty_polls) / 16);
        Duration::from_millis(ms.min(LONGEST_PAUSE_MS))
    }

    /// Returns which of these another connection may have written since they were last polled.
    pub(crate) fn poll(&mut self, connection: &Connection, of: Written) -> Written {
        // A failed poll reports no change: notifications may be lost.
        let Ok(version) = data_version(connection) else { return Written::default() };
        let changed = |seen: &mut i64, asked: bool| asked && std::mem::replace(seen, version) != version;
        let written = Written {
            messages: changed(&mut self.messages, of.messages),
            entries: changed(&mut self.entries, of.entries),
        };
        self.empty_polls = if written == Written::default() { self.empty_polls.saturating_add(1) } else { 0 };
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
        let mut poller = ChangePoller::new(&connection).unwrap();
        let mut whole = Duration::ZERO;
        while poller.pause() < Duration::from_millis(LONGEST_PAUSE_MS) {
            let before = poller.pause();
            whole += before;
            assert_eq!(poller.poll(&connection, Written::ANYTHING), Written::default());
            assert!(poller.pause() >= before);
        }
        assert!((Duration::from_secs(8)..Duration::from_secs(60)).contains(&whole), "{whole:?}");
        poller.reset_pause();
        assert_eq!(poller.pause(), Duration::from_millis(SHORTEST_PAUSE_MS));
        poller.listener_started();
        assert_eq!(poller.pause(), LISTENING_PAUSE);
    }

    #[test]
    fn what_is_asked_for_later_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (one, other) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        let mut poller = ChangePoller::new(&one).unwrap();
        let entries = Written { messages: false, entries: true };
        let messages = Written { messages: true, entries: false };
        one.execute_batch("CREATE TABLE own (a)").unwrap();
        assert_eq!(poller.poll(&one, Written::ANYTHING), Written::default(), "own writes are not reported");
        other.execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert_eq!(poller.poll(&one, entries), entries);
        assert_eq!(poller.poll(&one, entries), Written::default());
        assert_eq!(poller.poll(&one, messages), messages);
        assert_eq!(poller.poll(&one, Written::ANYTHING), Written::default());
    }
}
