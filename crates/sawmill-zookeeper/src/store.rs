//! An open ledger in ZooKeeper.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Namespace, StoreUrl};
use sawmill_engine::{Error, ErrorKind, Result};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as Zk, SessionId};

use crate::address::Address;
use crate::error::explain;
use crate::notifier::Notifier;
use crate::session::Session;

/// The parent of the namespaces if the URL names no path.
const DEFAULT_ROOT: &str = "/sawmill";

/// A ledger in ZooKeeper. Clones share one session, which ends when the last one is dropped.
#[derive(Clone)]
pub struct Zookeeper(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) session: Arc<Session>,
    /// The node of the namespace.
    pub(crate) root: String,
    pub(crate) notifier: Notifier,
    /// The next write number, which distinguishes each write from all others.
    writes: AtomicU64,
    /// The ephemeral nodes, with the session that made each.
    ephemeral: Mutex<HashMap<String, SessionId>>,
    /// The node version at which the node is recreated.
    pub(crate) last_version: i32,
}

impl Zookeeper {
    /// Opens the ledger, and creates the node of the namespace if it does not exist.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_with(url, namespace, i32::MAX).await
    }

    pub(crate) async fn open_with(url: &StoreUrl, namespace: &Namespace, last_version: i32) -> Result<Self> {
        let address = Address::of(url)?;
        let chroot = address.chroot.clone();
        let env = Env::system();
        let writes = AtomicU64::new(env.rng().next_u64());
        let session = Arc::new(Session::new(env, address));
        let root = format!("{}/{}", chroot.as_deref().unwrap_or(DEFAULT_ROOT), namespace.as_str());
        let prepared = prepare(&session, chroot.as_deref(), &root).await;
        prepared.map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))?;
        let notifier = Notifier::start(&session, root.clone());
        Ok(Self(Arc::new(Inner {
            session,
            root,
            notifier,
            writes,
            ephemeral: Mutex::default(),
            last_version,
        })))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}

impl Inner {
    /// Returns a number that no other write has.
    pub(crate) fn next_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        options(&self.session, mode)
    }

    pub(crate) fn ephemeral(&self) -> MutexGuard<'_, HashMap<String, SessionId>> {
        self.ephemeral.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns creation options. With a user, nodes belong to that user alone.
fn options(session: &Session, mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(if session.has_user() { Acls::creator_all() } else { Acls::anyone_all() })
}

/// Creates the node of the namespace if needed, and checks that it can be used.
async fn prepare(session: &Session, chroot: Option<&str>, root: &str) -> Result<()> {
    let client = session.client().await?;
    if let Some(chroot) = chroot {
        let there = client.check_stat(chroot).await.map_err(|error| explain(&error))?;
        if there.is_none() {
            let said =
                format!("ZooKeeper has no node {chroot}; create it, or correct the path in the ledger's URL");
            return Err(Error::new(ErrorKind::Invalid, said));
        }
    }
    match is_usable(&client, root).await {
        Err(Zk::NoNode) => {
            let made = client.mkdir(root, &options(session, CreateMode::Persistent)).await;
            made.map_err(|error| explain(&error))?;
            is_usable(&client, root).await.map_err(|error| explain(&error))
        }
        usable => usable.map_err(|error| explain(&error)),
    }
}

/// Lists the children, because missing permissions show there and not in a check for existence.
async fn is_usable(client: &Client, root: &str) -> Result<(), Zk> {
    client.list_children(root).await.map(drop)
}
