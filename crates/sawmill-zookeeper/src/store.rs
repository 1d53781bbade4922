//! An open ledger.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sawmill::engine::{Namespace, StoreUrl};
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as Zk, SessionId};

use crate::address::Address;
use crate::error::explain;
use crate::hints::Bell;
use crate::session::Link;

/// Where namespaces are if the URL names no path.
const USUAL: &str = "/sawmill";

/// A ledger in ZooKeeper. Clones share one session, which ends with the last of them.
#[derive(Clone)]
pub struct Zookeeper(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    /// The node of the namespace.
    pub(crate) root: String,
    pub(crate) bell: Bell,
    /// Tells each write from all others.
    writes: AtomicU64,
    /// The nodes that live only as long as the session in which they were made.
    ephemeral: Mutex<HashMap<String, SessionId>>,
    /// The last version that a node may have before it is made anew.
    pub(crate) last_version: i32,
}

impl Zookeeper {
    /// Opens the ledger, and makes the node of the namespace if it is not there.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_with(url, namespace, i32::MAX).await
    }

    pub(crate) async fn open_with(url: &StoreUrl, namespace: &Namespace, last_version: i32) -> Result<Self> {
        let address = Address::of(url)?;
        let chroot = address.chroot.clone();
        let env = Env::system();
        let writes = AtomicU64::new(env.dice().roll());
        let link = Arc::new(Link::new(env, address));
        let root = format!("{}/{}", chroot.as_deref().unwrap_or(USUAL), namespace.as_str());
        let prepared = prepare(&link, chroot.as_deref(), &root).await;
        prepared.map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))?;
        let bell = Bell::of(&link, root.clone());
        Ok(Self(Arc::new(Inner { link, root, bell, writes, ephemeral: Mutex::default(), last_version })))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}

impl Inner {
    /// A number that no other write has.
    pub(crate) fn next_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        options(&self.link, mode)
    }

    pub(crate) fn ephemeral(&self) -> MutexGuard<'_, HashMap<String, SessionId>> {
        self.ephemeral.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// With a user, nodes are that user's alone.
fn options(link: &Link, mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(if link.is_someone() { Acls::creator_all() } else { Acls::anyone_all() })
}

/// Makes the node of the namespace, and sees that it can be used.
async fn prepare(link: &Link, chroot: Option<&str>, root: &str) -> Result<()> {
    let client = link.client().await?;
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
            let made = client.mkdir(root, &options(link, CreateMode::Persistent)).await;
            made.map_err(|error| explain(&error))?;
            is_usable(&client, root).await.map_err(|error| explain(&error))
        }
        usable => usable.map_err(|error| explain(&error)),
    }
}

/// Who may not see what is in a node is told so by this, and not by looking whether it is there.
async fn is_usable(client: &Client, root: &str) -> Result<(), Zk> {
    client.list_children(root).await.map(drop)
}
