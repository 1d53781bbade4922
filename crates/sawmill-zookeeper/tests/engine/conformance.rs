//! Runs the unmodified ledger suite on ZooKeeper.

use async_trait::async_trait;
use sawmill_conformance::Factory;
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_zookeeper::ZookeeperEngine;

struct OnServer(Result<String, String>);

#[async_trait]
impl Factory for OnServer {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let url = self.0.as_ref().unwrap().parse().unwrap();
        ZookeeperEngine.open(&url, namespace).await.unwrap()
    }

    fn lacking(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::OnServer(crate::support::server()));
}
