//! The compiled-in engines, and the lookup of an engine by URL. No other file of the library names engines.

use std::sync::Arc;

use sawmill_engine::storage::{Engine, MemoryEngine, Namespace, OpenedStore, StoreUrl};
use sawmill_engine::{Error, ErrorKind, Result};

/// The engines of this version: the scheme of their URLs, which is also the name of their feature.
const KNOWN: [&str; 6] = ["sqlite", "postgres", "mysql", "cassandra", "kafka", "zookeeper"];

/// Lists the engines of the enabled features.
pub(super) fn compiled_in() -> Vec<Arc<dyn Engine>> {
    vec![
        Arc::new(MemoryEngine),
        #[cfg(feature = "sqlite")]
        Arc::new(sawmill_sqlite::SqliteEngine),
        #[cfg(feature = "postgres")]
        Arc::new(sawmill_postgres::PostgresEngine::default()),
        #[cfg(feature = "mysql")]
        Arc::new(sawmill_mysql::MysqlEngine),
        #[cfg(feature = "cassandra")]
        Arc::new(sawmill_cassandra::CassandraEngine),
        #[cfg(feature = "kafka")]
        Arc::new(sawmill_kafka::KafkaEngine),
        #[cfg(feature = "zookeeper")]
        Arc::new(sawmill_zookeeper::ZookeeperEngine),
    ]
}

/// Finds the engine for this URL and opens the store.
pub(super) async fn open(
    engines: &[Arc<dyn Engine>],
    url: &str,
    namespace: &Namespace,
) -> Result<OpenedStore> {
    let known: Vec<String> = engines.iter().map(|engine| format!("{}:", engine.scheme())).collect();
    let advice = format!("URLs may begin with {}", known.join(", "));
    let url: StoreUrl = url.parse().map_err(|error| Error::invalid(format!("{error} ({advice})")))?;
    let scheme = url.scheme();
    match engines.iter().find(|engine| engine.scheme() == scheme) {
        Some(engine) => engine.open(&url, namespace).await,
        None if KNOWN.contains(&scheme) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this program was built without the engine for {scheme}: URLs: build it with the feature `{scheme}` of sawmill"
            ),
        )),
        None => Err(Error::invalid(format!("no engine here opens {url}: {advice}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_that_is_not_compiled_in_is_named_with_its_feature() {
        let error =
            open(&[Arc::new(MemoryEngine)], "postgres://me:secret@host/db", &Namespace::default()).await;
        let error = error.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("feature `postgres`") && !text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_those_that_are_known() {
        let error =
            open(&[Arc::new(MemoryEngine)], "redis://host", &Namespace::default()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("URLs may begin with memory:"), "{error}");
    }
}
