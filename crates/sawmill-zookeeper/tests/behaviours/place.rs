//! The engines that the behaviours are shown on here: messages in SQLite, the ledger in ZooKeeper.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::{OpenOptions, Result, Sawmill};
use sawmill_conformance::pair::Pair;
use sawmill_sqlite::{Sqlite, SqliteEngine};
use sawmill_zookeeper::Zookeeper;
use tempfile::TempDir;

use crate::server::{elsewhere, server_or_end};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "sqlite with zookeeper";

/// Its two seams.
pub(crate) type Shelf = Pair<Sqlite, Zookeeper>;

/// A database in a folder that is removed with it; the ledger has a namespace that belongs to the folder.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        server_or_end("behaviours on SQLite with ZooKeeper");
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The store, opened as a process of its own would.
    pub(crate) async fn mill(&self) -> Sawmill {
        options().open(&self.url()).await.unwrap()
    }

    /// The two seams, without the library on top.
    pub(crate) fn store(&self) -> Shelf {
        let path = self.path();
        elsewhere(async move { open(&path, &Namespace::default()).await.unwrap() })
    }
}

async fn open(path: &Path, namespace: &Namespace) -> Result<Shelf> {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let url = server_or_end("behaviours").parse().unwrap();
    let there = format!("{:016x}.{}", hasher.finish(), namespace.as_str()).parse().unwrap();
    let ledger = Zookeeper::open(&url, &there).await?;
    Ok(Pair { log: Sqlite::open(path, namespace)?, ledger })
}

/// Both engines under the name of the first.
struct Both;

#[async_trait]
impl Engine for Both {
    fn name(&self) -> &'static str {
        ENGINE
    }
    fn scheme(&self) -> &'static str {
        "sqlite"
    }
    fn capabilities(&self) -> Capabilities {
        SqliteEngine.capabilities()
    }
    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let pair = open(Path::new(url.rest()), namespace).await?;
        Ok(Store { log: Some(Arc::new(pair.log)), ledger: Some(Arc::new(pair.ledger)) })
    }
}

/// How to open such a store.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(Both)
}
