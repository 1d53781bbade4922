//! The in-memory engine, the reference, passes both suites.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sawmill::engine::storage::{Memory, Namespace, OpenedStore};
use sawmill_conformance::Factory;

#[derive(Default)]
struct InMemory(Mutex<HashMap<Namespace, Memory>>);

#[async_trait]
impl Factory for InMemory {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let memory = self
            .0
            .lock()
            .expect("nobody panics while holding it")
            .entry(namespace.clone())
            .or_default()
            .clone();
        OpenedStore { log: Some(Arc::new(memory.clone())), ledger: Some(Arc::new(memory)) }
    }
}

mod log {
    sawmill_conformance::log_suite!(super::InMemory::default());
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::InMemory::default());
}
