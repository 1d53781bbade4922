//! The engine that the behaviours are shown on here: MySQL or MariaDB, each test in a database of its own.

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_mysql::{Mysql, MysqlEngine};

use crate::server::{Database, elsewhere, server};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "mysql";

/// Its two seams.
pub(crate) type Shelf = Mysql;

/// A database that one test has to itself.
pub(crate) struct Place {
    database: Database,
}

impl Place {
    pub(crate) fn new() -> Self {
        match server() {
            Ok(url) => Self { database: Database::made_elsewhere(url) },
            // All tests of this program need one, and none of them can say so: it ends here, as skipped.
            Err(why) => {
                sawmill_conformance::skipped("behaviours on MySQL", &why);
                std::process::exit(0);
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    /// The store, opened as a process of its own would.
    pub(crate) async fn mill(&self) -> Sawmill {
        options().open(&self.url()).await.unwrap()
    }

    /// The two seams, without the library on top.
    pub(crate) fn store(&self) -> Shelf {
        let url = self.url().parse().unwrap();
        elsewhere(async move { Mysql::open(&url, &Namespace::default()).await.unwrap() }).unwrap()
    }
}

/// How to open a store of this engine.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(MysqlEngine)
}
