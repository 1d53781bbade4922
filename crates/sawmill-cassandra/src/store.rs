//! The open store: one connection to a keyspace with the caches that all clones share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard};

use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Namespace, Notifier, StoreUrl};
use sawmill_engine::{Error, Result};
use tokio::sync::Mutex;

use crate::address::{Address, TopicDefaults};
use crate::connection::link::Link;
use crate::connection::remote_notifier::{self, RemoteNotifier};
use crate::connection::skew;
use crate::error::{Failure, of_read};
use crate::log::row::Kind;
use crate::log::stamp::Stamps;
use crate::log::tail::Tail;
use crate::log::topics::Shape;

/// The ends of shards, by topic and shard.
type Tails = HashMap<(String, u16), Arc<Mutex<Tail>>>;
/// A bucket that is known to be listed.
pub(crate) type Listed = (String, Kind, i64, u16);

/// A log and a ledger in a keyspace. Clones share its connections, which are closed when the last clone is
/// dropped.
#[derive(Clone)]
pub struct Cassandra {
    open: Arc<Open>,
}

pub(crate) struct Open {
    pub(crate) namespace: Namespace,
    pub(crate) link: Link,
    topic_defaults: TopicDefaults,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) remote_notifier: Arc<RemoteNotifier>,
    pub(crate) env: Env,
    stamps: Stamps,
    /// Distinguishes this store's rows from others that were pushed in the same microsecond.
    writer: i64,
    shapes: StdMutex<HashMap<String, Arc<Shape>>>,
    tails: StdMutex<Tails>,
    listed: StdMutex<HashSet<Listed>>,
}

impl Cassandra {
    /// Connects, and creates the tables that are missing.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_with(url, namespace, Env::system(), Stamps::of_process()).await
    }

    /// Opens a store with another clock than the machine's, for tests with wrong clocks.
    pub async fn open_in(url: &StoreUrl, namespace: &Namespace, env: Env) -> Result<Self> {
        Self::open_with(url, namespace, env, Stamps::default()).await
    }

    async fn open_with(url: &StoreUrl, namespace: &Namespace, env: Env, stamps: Stamps) -> Result<Self> {
        let address = Address::of(url)?;
        let with_url = |error: Error| Error::new(error.kind(), format!("{url}: {error}"));
        let link = Link::open(&address).await.map_err(|failure| with_url(of_read(failure)))?;
        skew::check(&link, &env, address.topic_defaults.settle).await.map_err(with_url)?;
        let place =
            format!("cassandra://{}/{} {}", address.nodes.join(","), address.keyspace, namespace.as_str());
        let open = Open {
            namespace: namespace.clone(),
            link,
            topic_defaults: address.topic_defaults,
            notifier: Notifier::of(place),
            remote_notifier: Arc::default(),
            writer: env.rng().next_u64() as i64,
            env,
            stamps,
            shapes: StdMutex::default(),
            tails: StdMutex::default(),
            listed: StdMutex::default(),
        };
        let open = Arc::new(open);
        remote_notifier::start(&open);
        Ok(Self { open })
    }

    pub(crate) fn link(&self) -> &Link {
        &self.open.link
    }

    pub(crate) fn namespace(&self) -> &str {
        self.open.namespace.as_str()
    }

    pub(crate) fn topic_defaults(&self) -> TopicDefaults {
        self.open.topic_defaults
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.open.notifier
    }

    /// Notifies all readers, in this process and others, of messages in this topic.
    pub(crate) fn notify_topic(&self, uid: &str) {
        self.open.notifier.notify_messages();
        self.open.remote_notifier.notify(uid);
    }

    pub(crate) fn env(&self) -> &Env {
        &self.open.env
    }

    pub(crate) fn writer(&self) -> i64 {
        self.open.writer
    }

    /// Reserves `many` successive times, in microseconds, and returns the first.
    pub(crate) fn stamp(&self, many: usize) -> i64 {
        self.open.stamps.take(&self.open.env, many)
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.open.stamps
    }

    /// The wall clock, in milliseconds.
    pub(crate) fn wall(&self) -> i64 {
        crate::log::row::from_time(self.open.env.wall())
    }

    pub(crate) fn shapes(&self) -> MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.open.shapes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn listed(&self) -> MutexGuard<'_, HashSet<Listed>> {
        self.open.listed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The end of a shard, which one task at a time may use.
    pub(crate) fn tail(&self, shape: &Shape, shard: u16) -> Arc<Mutex<Tail>> {
        let mut tails = self.open.tails.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tails.entry((shape.uid.clone(), shard)).or_default().clone()
    }

    /// Drops everything that is cached of a topic.
    pub(crate) fn forget(&self, uid: &str) {
        self.shapes().remove(uid);
        let mut tails = self.open.tails.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tails.retain(|(other, _), _| other != uid);
    }
}

/// Ends the tasks of the store.
impl Drop for Open {
    fn drop(&mut self) {
        self.remote_notifier.wake();
    }
}

impl fmt::Debug for Cassandra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cassandra").field("namespace", &self.open.namespace).finish_non_exhaustive()
    }
}

/// Converts the failure of a read.
pub(crate) fn read<T>(answer: Result<T, Failure>) -> Result<T> {
    answer.map_err(of_read)
}
