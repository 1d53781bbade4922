//! An open keyspace, shared by everybody who holds it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard};

use sawmill::bells::Bells;
use sawmill::engine::{Namespace, StoreUrl};
use sawmill::env::Env;
use sawmill::{Error, Result};
use tokio::sync::Mutex;

use crate::address::{Address, Making};
use crate::error::{Trouble, of_read};
use crate::link::Link;
use crate::pulse::{self, Pulse};
use crate::row::Kind;
use crate::skew;
use crate::stamp::Stamps;
use crate::tail::Tail;
use crate::topics::Shape;

/// The ends of shards, by topic.
type Tails = HashMap<(String, u16), Arc<Mutex<Tail>>>;
/// A bucket of a topic that is known to be listed.
pub(crate) type Listed = (String, Kind, i64, u16);

/// A log and a ledger in a keyspace. Clones share it; its connections are closed when the last of them is dropped.
#[derive(Clone)]
pub struct Cassandra {
    open: Arc<Open>,
}

pub(crate) struct Open {
    pub(crate) namespace: Namespace,
    pub(crate) link: Link,
    making: Making,
    pub(crate) bells: Arc<Bells>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) env: Env,
    stamps: Stamps,
    /// Tells this store's rows from those of others that were pushed in the same microsecond.
    writer: i64,
    shapes: StdMutex<HashMap<String, Arc<Shape>>>,
    tails: StdMutex<Tails>,
    listed: StdMutex<HashSet<Listed>>,
}

impl Cassandra {
    /// Connects, and makes the tables if they are missing.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_with(url, namespace, Env::system(), Stamps::of_process()).await
    }

    /// The same, going by another clock than the machine's: for trying out clocks that are wrong.
    pub async fn open_in(url: &StoreUrl, namespace: &Namespace, env: Env) -> Result<Self> {
        Self::open_with(url, namespace, env, Stamps::default()).await
    }

    async fn open_with(url: &StoreUrl, namespace: &Namespace, env: Env, stamps: Stamps) -> Result<Self> {
        let address = Address::of(url)?;
        let told = |error: Error| Error::new(error.kind(), format!("{url}: {error}"));
        let link = Link::open(&address).await.map_err(|trouble| told(of_read(trouble)))?;
        skew::check(&link, &env, address.making.settle).await.map_err(told)?;
        let place =
            format!("cassandra://{}/{} {}", address.nodes.join(","), address.keyspace, namespace.as_str());
        let open = Open {
            namespace: namespace.clone(),
            link,
            making: address.making,
            bells: Bells::of(place),
            pulse: Arc::default(),
            writer: env.dice().roll() as i64,
            env,
            stamps,
            shapes: StdMutex::default(),
            tails: StdMutex::default(),
            listed: StdMutex::default(),
        };
        let open = Arc::new(open);
        pulse::start(&open);
        Ok(Self { open })
    }

    pub(crate) fn link(&self) -> &Link {
        &self.open.link
    }

    pub(crate) fn namespace(&self) -> &str {
        self.open.namespace.as_str()
    }

    pub(crate) fn making(&self) -> Making {
        self.open.making
    }

    pub(crate) fn bells(&self) -> &Bells {
        &self.open.bells
    }

    /// There are messages of this topic: tells it to all who wait for them.
    pub(crate) fn tell(&self, uid: &str) {
        self.open.bells.ring_messages();
        self.open.pulse.tell(uid);
    }

    pub(crate) fn env(&self) -> &Env {
        &self.open.env
    }

    pub(crate) fn writer(&self) -> i64 {
        self.open.writer
    }

    /// The first of so many times that follow one another, in microseconds.
    pub(crate) fn stamp(&self, many: usize) -> i64 {
        self.open.stamps.take(&self.open.env, many)
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.open.stamps
    }

    /// Now, in milliseconds.
    pub(crate) fn wall(&self) -> i64 {
        crate::row::from_time(self.open.env.wall())
    }

    pub(crate) fn shapes(&self) -> MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.open.shapes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn listed(&self) -> MutexGuard<'_, HashSet<Listed>> {
        self.open.listed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The end of a shard, for one at a time.
    pub(crate) fn tail(&self, shape: &Shape, shard: u16) -> Arc<Mutex<Tail>> {
        let mut tails = self.open.tails.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tails.entry((shape.uid.clone(), shard)).or_default().clone()
    }

    /// Nothing of this topic is needed any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.shapes().remove(uid);
        let mut tails = self.open.tails.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tails.retain(|(other, _), _| other != uid);
    }
}

/// Its tasks hear of it.
impl Drop for Open {
    fn drop(&mut self) {
        self.pulse.end();
    }
}

impl fmt::Debug for Cassandra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cassandra").field("namespace", &self.open.namespace).finish_non_exhaustive()
    }
}

/// What a read gives, or its error.
pub(crate) fn read<T>(answer: Result<T, Trouble>) -> Result<T> {
    answer.map_err(of_read)
}
