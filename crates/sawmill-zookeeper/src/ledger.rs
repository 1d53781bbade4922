//! The ledger on ZooKeeper: entries are nodes, and a commit is one versioned write.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all};
use sawmill_engine::model::Member;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Ledger, Notifications, Version, Write};
use sawmill_engine::{Error, ErrorKind, Result};
use zookeeper_client::{Client, CreateMode, Error as Zk, Stat};

use crate::Zookeeper;
use crate::error::{corrupt, explain, is_certain};
use crate::nodes::{self, Child, Content, NodeVersion};
use crate::store::Inner;

/// The time limit of a call.
const LIMIT: Duration = Duration::from_secs(10);
/// How often a read is sent when its connection breaks.
const TRIES: usize = 3;
/// The largest value. ZooKeeper accepts requests of 1 MiB, including the path and other fields.
const MAX_VALUE: usize = (1 << 20) - (16 << 10);
/// The most entries in one folder that a single answer can list.
const MAX_CHILDREN: i32 = 10_000;
/// Concurrent reads in a listing.
const AT_ONCE: usize = 128;

#[async_trait]
impl Ledger for Zookeeper {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let (inner, path) = (self.inner(), &nodes::entry(&self.inner().root, key));
        let read = inner.read(move |client| async move {
            // Both are sent at once and answered in order.
            let (synced, read) = join(client.sync(&inner.root), client.get_data(path)).await;
            synced.and(found(read))
        });
        read.await?.map(|(data, stat)| entry(key.clone(), path, data, &stat)).transpose()
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let inner = self.inner();
        let found = inner.read(move |client| async move { list(&client, &inner.root, prefix).await }).await?;
        let entries = found.into_iter().map(|(key, data, stat)| {
            let path = nodes::entry(&inner.root, &key);
            entry(key, &path, data, &stat)
        });
        let mut entries: Vec<Entry> = entries.collect::<Result<_>>()?;
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        let inner = self.inner();
        if let Some(value) = &write.value
            && value.len() > MAX_VALUE
        {
            let said = format!(
                "the ledger entry {} has {} bytes, and ZooKeeper takes {MAX_VALUE} at most: use more shards, or another ledger",
                write.key,
                value.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        let answer = inner.session.env().within(LIMIT, inner.commit(&write)).await;
        let answer = answer.unwrap_or(Ok(Commit::Unknown));
        if matches!(answer, Ok(Commit::Unknown)) {
            tracing::debug!(key = %write.key, "the outcome of a commit is not known");
        }
        answer
    }

    fn entry_notifications(&self) -> Notifications {
        self.inner().notifier.subscribe()
    }
}

/// The result of a write, as the driver reports it.
type Answer = Result<NodeVersion, Zk>;

impl Inner {
    /// Reads, and repeats the read if the connection breaks.
    async fn read<T, F: Future<Output = Result<T, Zk>>>(&self, ask: impl Fn(Client) -> F) -> Result<T> {
        let asked = async {
            let mut tries = 1;
            loop {
                match ask(self.session.client().await?).await {
                    Err(error) if !is_certain(&error) && tries < TRIES => tries += 1,
                    answer => return answer.map_err(|error| explain(&error)),
                }
            }
        };
        let late = || Err(crate::error::unreachable("no answer in time"));
        self.session.env().within(LIMIT, asked).await.unwrap_or_else(late)
    }

    async fn commit(&self, write: &Write) -> Result<Commit> {
        let path = nodes::entry(&self.root, &write.key);
        let client = self.session.client().await?;
        let (answer, id) = match (write.expect.map(NodeVersion::of), &write.value) {
            (None, None) => {
                let there = client.check_stat(&path).await.map_err(|error| explain(&error))?;
                return Ok(if there.is_some() { Commit::Conflict } else { Commit::Done(Version(0)) });
            }
            // No node ever has such a version.
            (Some(None), _) => return Ok(Commit::Conflict),
            (None, Some(value)) => {
                let content = Content { generation: 0, write: self.next_write(), value: value.clone() };
                (self.create(&client, write, &path, &content).await?, content.write)
            }
            (Some(Some(version)), Some(value)) => {
                if self.remove_if_stale(&client, &path).await? {
                    return Ok(Commit::Conflict);
                }
                let generation = version.generation;
                let content = Content { generation, write: self.next_write(), value: value.clone() };
                (self.set(&client, &path, version, &content).await, content.write)
            }
            (Some(Some(version)), None) => {
                let deleted = client.delete(&path, Some(version.number)).await;
                if deleted.as_ref().err().is_none_or(is_certain) {
                    self.ephemeral().remove(&path);
                }
                (deleted.map(|()| version), self.next_write())
            }
        };
        match answer {
            Ok(version) => Ok(Commit::Done(version.version())),
            Err(Zk::NodeExists | Zk::BadVersion | Zk::NoNode) => Ok(Commit::Conflict),
            Err(error) if is_certain(&error) => Err(explain(&error)),
            Err(error) => {
                tracing::debug!(%error, %path, "a write had no answer: looking whose the node is");
                Ok(self.version_of_write(&path, id).await.map_or(Commit::Unknown, Commit::Done))
            }
        }
    }

    /// Returns the version of a node, if its content was written by this write.
    async fn version_of_write(&self, path: &str, write: u64) -> Option<Version> {
        let read = self.read(move |client| async move {
            let (synced, read) = join(client.sync(&self.root), client.get_data(path)).await;
            synced.and(found(read))
        });
        let (data, stat) = read.await.ok()??;
        let content = Content::decode(data).filter(|content| content.write == write)?;
        Some(NodeVersion { generation: content.generation, number: stat.version }.version())
    }

    /// Creates the node of an entry and its parents. The outer error is from the steps before the write.
    async fn create(&self, client: &Client, write: &Write, path: &str, content: &Content) -> Result<Answer> {
        let folder = nodes::folder(&self.root, nodes::split(&write.key).0);
        let mode = self.mode(client, write, path);
        let mut answer = Err(Zk::NoNode);
        // ZooKeeper removes empty folders, possibly at this moment.
        for _ in 0..TRIES {
            match client.check_stat(&folder).await.map_err(|error| explain(&error))? {
                None => {
                    let options = self.options(CreateMode::Container);
                    match client.mkdir(&folder, &options).await {
                        Ok(()) | Err(Zk::NoNode) => {}
                        Err(error) => return Err(explain(&error)),
                    }
                }
                Some(stat) if stat.num_children >= MAX_CHILDREN => {
                    let said = format!(
                        "the ledger has {} entries beside {}, and with ZooKeeper that is the limit: use another ledger",
                        stat.num_children, write.key
                    );
                    return Err(Error::new(ErrorKind::Full, said));
                }
                Some(_) => {}
            }
            answer = client.create(path, &content.encode(), &self.options(mode)).await.map(|_| ());
            if answer != Err(Zk::NoNode) {
                break;
            }
        }
        if answer == Err(Zk::NodeExists) {
            self.ephemeral().remove(path);
        }
        match answer {
            // The namespace itself was removed.
            Err(Zk::NoNode) => Err(explain(&Zk::NoNode)),
            answer => Ok(answer.map(|()| NodeVersion { generation: 0, number: 0 })),
        }
    }

    /// Chooses an ephemeral node for a member if the session lasts at least as long as the member's TTL.
    fn mode(&self, client: &Client, write: &Write, path: &str) -> CreateMode {
        let is_member = write.key.as_str().starts_with(EntryKey::all_members().as_str());
        let value = write.value.clone().unwrap_or_default();
        let entry = Entry { key: write.key.clone(), version: Version(0), value };
        let ttl = Member::decode(&entry.key, &entry.value).ok().filter(|_| is_member);
        match ttl.map(|member| Duration::from_millis(member.ttl_ms)) {
            Some(ttl) if ttl <= client.session_timeout() => {
                self.ephemeral().insert(path.to_owned(), client.session_id());
                CreateMode::Ephemeral
            }
            _ => CreateMode::Persistent,
        }
    }

    /// Removes a node of an ended session and returns true. ZooKeeper would remove it sooner or later, so its
    /// owner must create another.
    async fn remove_if_stale(&self, client: &Client, path: &str) -> Result<bool> {
        let session = self.ephemeral().get(path).copied();
        if session.is_none_or(|session| session == client.session_id()) {
            return Ok(false);
        }
        match client.delete(path, None).await {
            Ok(()) | Err(Zk::NoNode) => {
                self.ephemeral().remove(path);
                Ok(true)
            }
            // The write itself was not sent.
            Err(error) => Err(explain(&error)),
        }
    }

    async fn set(&self, client: &Client, path: &str, version: NodeVersion, content: &Content) -> Answer {
        let NodeVersion { generation, number } = version;
        if number < self.last_version {
            let stat = client.set_data(path, &content.encode(), Some(number)).await?;
            return Ok(NodeVersion { generation, number: stat.version });
        }
        // The next version would be the last one: recreate the node in one transaction.
        let generation = generation.checked_add(1).ok_or(Zk::BadVersion)?;
        let is_ephemeral = self.ephemeral().contains_key(path);
        let mode = if is_ephemeral { CreateMode::Ephemeral } else { CreateMode::Persistent };
        let content = Content { generation, ..content.clone() };
        let mut recreate = client.new_multi_writer();
        recreate.add_delete(path, Some(number))?;
        recreate.add_create(path, &content.encode(), &self.options(mode))?;
        recreate.commit().await?;
        Ok(NodeVersion { generation, number: 0 })
    }
}

/// Maps a missing node to `None`.
fn found<T>(read: Result<T, Zk>) -> Result<Option<T>, Zk> {
    match read {
        Err(Zk::NoNode) => Ok(None),
        read => read.map(Some),
    }
}

/// Reads the nodes of all entries whose keys begin with the prefix.
async fn list(client: &Client, root: &str, prefix: &EntryKey) -> Result<Vec<(EntryKey, Vec<u8>, Stat)>, Zk> {
    let mut folders = vec![nodes::split(prefix).0.to_owned()];
    let mut entries = Vec::new();
    // Sent first; all following requests are answered after it.
    let synced = client.sync(root);
    while let Some(beginning) = folders.pop() {
        let children = found(client.list_children(&nodes::folder(root, &beginning)).await)?;
        for child in children.iter().flatten() {
            let (among, begins) = match nodes::child(child) {
                Child::Entry(last) => (&mut entries, format!("{beginning}{last}")),
                Child::Folder(part) => (&mut folders, format!("{beginning}{part}/")),
            };
            // The prefix may end within a part.
            if begins.starts_with(prefix.as_str()) {
                among.push(begins);
            }
        }
    }
    synced.await?;
    let mut found_entries = Vec::with_capacity(entries.len());
    for some in entries.chunks(AT_ONCE) {
        let keys = some.iter().map(|key| EntryKey::raw(key.clone()));
        let reads = keys.map(|key| async {
            let read = client.get_data(&nodes::entry(root, &key)).await;
            found(read).map(|read| read.map(|(data, stat)| (key, data, stat)))
        });
        for read in join_all(reads).await {
            found_entries.extend(read?);
        }
    }
    Ok(found_entries)
}

fn entry(key: EntryKey, path: &str, data: Vec<u8>, stat: &Stat) -> Result<Entry> {
    let Content { generation, value, .. } = Content::decode(data).ok_or_else(|| corrupt(path))?;
    Ok(Entry { key, version: NodeVersion { generation, number: stat.version }.version(), value })
}
