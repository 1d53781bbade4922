//! The engine that the processes work on here: PostgreSQL, each test in a namespace of its own.

use std::path::Path;

use sawmill::Sawmill;
use sawmill_postgres::PostgresEngine;

use crate::server::{namespace, server};

/// Where one test's processes meet.
pub(crate) struct Place {
    store: String,
}

impl Place {
    pub(crate) fn new(_: &Path) -> Self {
        match server() {
            Ok(url) => Self { store: format!("{} {url}", namespace().as_str()) },
            // All tests of this program need one, and none of them can say so: it ends here, as skipped.
            Err(why) => {
                sawmill_conformance::skipped("processes on PostgreSQL", &why);
                std::process::exit(0);
            }
        }
    }

    /// What a child must know to open it.
    pub(crate) fn store(&self) -> String {
        self.store.clone()
    }

    /// A process that stands still holds no more than rows, and workers hold none between two answers.
    pub(crate) async fn can_write(&self) -> bool {
        true
    }
}

/// Opens what [`Place::store`] names.
pub(crate) async fn open(store: &str) -> Sawmill {
    let (namespace, url) = store.split_once(' ').unwrap();
    let options = Sawmill::options().engine(PostgresEngine::default());
    options.namespace(namespace).open(url).await.unwrap()
}
