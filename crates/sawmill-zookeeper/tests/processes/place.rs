//! The engines that the processes work on here: a file in their folder for messages, and a ledger in ZooKeeper, in a namespace of each
//! test's own.

use std::path::{Path, PathBuf};

use sawmill::Sawmill;
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::ZookeeperEngine;

use crate::server::{random, server_or_end};

/// Where one test's processes meet.
pub(crate) struct Place {
    folder: PathBuf,
    namespace: String,
    ledger: String,
}

impl Place {
    pub(crate) fn new(folder: &Path) -> Self {
        let ledger = server_or_end("processes on SQLite with ZooKeeper");
        Self { folder: folder.to_owned(), namespace: format!("t-{:016x}", random()), ledger }
    }

    /// What a child must know to open it.
    pub(crate) fn store(&self) -> String {
        let database = self.folder.join("jobs.db");
        format!("{} {} sqlite:{}", self.ledger, self.namespace, database.display())
    }

    /// A process that stands still may hold the file for a moment, and ZooKeeper is nobody's.
    pub(crate) async fn can_write(&self) -> bool {
        true
    }
}

/// Opens what [`Place::store`] names.
pub(crate) async fn open(store: &str) -> Sawmill {
    let mut parts = store.splitn(3, ' ');
    let (ledger, namespace, store) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let options = Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine);
    options.ledger(ledger).namespace(namespace).open(store).await.unwrap()
}
