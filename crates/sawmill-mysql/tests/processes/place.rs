//! The engine that the processes work on here: MySQL or MariaDB, each test in a database of its own.

use std::path::Path;

use sawmill::Sawmill;

use crate::server::{Database, server};

/// Where one test's processes meet.
pub(crate) struct Place {
    database: Database,
}

impl Place {
    pub(crate) fn new(_: &Path) -> Self {
        match server() {
            Ok(url) => Self { database: Database::made_elsewhere(url) },
            // All tests of this program need one, and none of them can say so: it ends here, as skipped.
            Err(why) => {
                sawmill_conformance::skipped("processes on MySQL", &why);
                std::process::exit(0);
            }
        }
    }

    /// What a child must know to open it.
    pub(crate) fn store(&self) -> String {
        self.database.url()
    }

    /// A process that stands still holds no more than rows, and workers hold none between two answers.
    pub(crate) async fn can_write(&self) -> bool {
        true
    }
}

/// Opens what [`Place::store`] names.
pub(crate) async fn open(store: &str) -> Sawmill {
    sawmill_mysql::open(store).await.unwrap()
}
