//! The library on the same store as the program: to push, and to check results.

use std::time::Duration;

use rustix::process::Signal;
use sawmill::admin::{DeadLetter, GroupStatus};
use sawmill::{MessageId, Push, Sawmill};
use sawmill_conformance::waits::timeout_message;
use tokio::runtime::Runtime;

use super::{Place, Running, comes, until};

/// The store in the folder of a test, opened by the library.
pub struct Library {
    runtime: Runtime,
    pub mill: Sawmill,
}

impl Library {
    pub fn open(place: &Place) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let url = format!("sqlite:{}", place.path("sawmill.db").display());
        let options = Sawmill::options().engine(sawmill_sqlite::SqliteEngine);
        let mill = runtime.block_on(options.open(&url)).unwrap();
        Self { runtime, mill }
    }

    /// Opens the store and creates a topic.
    pub fn with_topic(place: &Place, topic: &str) -> Self {
        let library = Self::open(place);
        library.block_on(library.mill.create_topic(topic)).unwrap();
        library
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn run<T>(&self, what: impl AsyncFnOnce(&Sawmill) -> T) -> T {
        self.block_on(what(&self.mill))
    }

    /// Pushes a message, creating the topic if needed, and returns its id as the program prints it.
    pub fn pushed(&self, topic: &str, message: impl Into<Push>) -> String {
        self.block_on(self.mill.create_topic(topic)).unwrap();
        self.push(topic, message).to_string()
    }

    pub fn push(&self, topic: &str, push: impl Into<Push>) -> MessageId {
        self.block_on(self.mill.push(topic, push)).unwrap()
    }

    pub fn push_many<P: Into<Push>>(
        &self,
        topic: &str,
        pushes: impl IntoIterator<Item = P>,
    ) -> Vec<MessageId> {
        self.block_on(self.mill.push_many(topic, pushes)).unwrap()
    }

    /// Returns the status of the default group of a topic.
    pub fn status(&self, topic: &str) -> GroupStatus {
        self.block_on(self.mill.admin().status(topic, "default")).unwrap()
    }

    /// Waits until the default group has done or given up this many messages, and none are left.
    #[track_caller]
    pub fn until_settled(&self, topic: &str, messages: u64) {
        let left = |status: &GroupStatus| status.waiting + status.claimed + status.retrying;
        let settled = |status: &GroupStatus| status.done + status.dead;
        let is_over = || {
            let status = self.status(topic);
            settled(&status) >= messages && left(&status) == 0
        };
        if !comes(is_over) {
            let missing = async || {
                let status = self.mill.admin().status(topic, "default").await.unwrap();
                messages.saturating_sub(settled(&status)) as usize
            };
            let said = timeout_message("all messages are settled", &self.mill, topic, "default", missing);
            panic!("{}", self.block_on(said));
        }
        let status = self.status(topic);
        assert_eq!(settled(&status), messages, "some were settled twice: {status:?}");
    }

    /// Returns all dead letters of the default group.
    pub fn dead(&self, topic: &str) -> Vec<DeadLetter> {
        self.block_on(async {
            self.mill.admin().dead_letters(topic, "default").await.unwrap().list(100_000).await.unwrap()
        })
    }
}

/// Suspends a worker (SIGSTOP) at a moment when it does not hold the database lock, so that others can go on.
pub fn freeze(place: &Place, worker: &Running) {
    let database = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    database.busy_timeout(Duration::from_secs(1)).unwrap();
    until("it is frozen without the lock", || {
        worker.signal(Signal::STOP);
        let free = database.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
        if !free {
            worker.signal(Signal::CONT);
        }
        free
    });
}
