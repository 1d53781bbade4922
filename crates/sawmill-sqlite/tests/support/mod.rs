//! Helpers shared by the tests of this engine.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sawmill::{Message, MessageId, Timestamp, TopicSpec};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::storage::{Block, Log, Position, ReadRequest, Record};
use sawmill_sqlite::Sqlite;
use tempfile::TempDir;

/// The current time in the tests.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A database in a folder that is removed on drop.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    pub(crate) fn open(&self) -> Sqlite {
        Sqlite::open(self.path(), &Default::default()).unwrap()
    }
}

pub(crate) async fn topic(log: &Sqlite, name: &str, shards: u16) -> Topic {
    let spec = TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    log.create_topic(&spec).await.unwrap()
}

/// A message with this id, due at once.
pub(crate) fn message(id: u128) -> Message {
    Message {
        id: MessageId::from_u128(id),
        key: None,
        payload: format!("payload {id}").into(),
        headers: Default::default(),
        due: None,
        created: NOW,
    }
}

/// Messages with these ids for one shard.
pub(crate) fn records(shard: u16, ids: impl IntoIterator<Item = u128>) -> Vec<Record> {
    ids.into_iter().map(|id| Record::once(shard, message(id))).collect()
}

/// A message for shard 0 that is due later.
pub(crate) fn later(id: u128, ms: u64) -> Record {
    let due = Some(NOW + Duration::from_millis(ms));
    Record::once(0, Message { due, ..message(id) })
}

/// One block of a shard.
pub(crate) async fn read(log: &Sqlite, topic: &Topic, shard: u16, after: &Position, limit: usize) -> Block {
    let want = ReadRequest { shard, after: after.clone(), limit };
    log.read(topic, &[want]).await.unwrap().remove(0)
}

/// The ids of everything in a shard.
pub(crate) async fn ids(log: &Sqlite, topic: &Topic, shard: u16) -> Vec<u128> {
    let (mut after, mut ids) = (Position::default(), Vec::new());
    loop {
        let block = read(log, topic, shard, &after, 1_000_000).await;
        ids.extend(id_list(&block.messages));
        if !block.more {
            return ids;
        }
        after = block.end;
    }
}

pub(crate) fn id_list(messages: &[Message]) -> Vec<u128> {
    messages.iter().map(|message| message.id.as_u128()).collect()
}

/// Waits for a future and panics if it takes longer than a minute.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        () = SystemClock.sleep(Duration::from_secs(60)) => panic!("test timed out: {what}"),
    }
}

/// A small file system, unmounted on drop. `None`, with a visible skip, where mounting is not allowed.
pub(crate) struct Mount {
    folder: TempDir,
}

impl Mount {
    pub(crate) fn new(test: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Mount { folder };
        let mounted =
            run("mount", &["-t", "tmpfs", "-o", options, "sawmill-test", mount.path().to_str().unwrap()]);
        if !mounted {
            sawmill_conformance::skipped(test, "mounting a file system is not allowed here");
            return None;
        }
        Some(mount)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Remounts it with other options. Retries while a store dropped a moment ago still has its files open.
    pub(crate) async fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        soon("the file system can be remounted", async {
            while !run("mount", &["-o", &options, self.path().to_str().unwrap()]) {
                SystemClock.sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
