//! Runs both conformance suites on the MySQL engine.

use crate::support::Database;
use async_trait::async_trait;
use sawmill_conformance::{Factory, Reach};
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_mysql::MysqlEngine;

/// A database of the suite's own, or the reason why there is no server.
struct OnServer(Result<Database, String>);

impl OnServer {
    async fn new() -> Self {
        match crate::support::server() {
            Ok(url) => Self(Ok(Database::new(&url).await)),
            Err(why) => Self(Err(why)),
        }
    }
}

#[async_trait]
impl Factory for OnServer {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let database = self.0.as_ref().expect("a server");
        let url = database.url().parse().expect("a URL");
        MysqlEngine.open(&url, namespace).await.expect("a database")
    }

    fn lacking(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    /// The server cannot notify other processes, only stores in this process.
    fn hints_reach(&self) -> Reach {
        Reach::EveryHandle
    }
}

mod log {
    sawmill_conformance::log_suite!(super::OnServer::new().await);
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::OnServer::new().await);
}
