//! An open store: the state that the log and the ledger share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sawmill_engine::Result;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Namespace, Notifier, StoreUrl};

use crate::address::Address;
use crate::brokers::cluster::Cluster;
use crate::brokers::send::RecordSender;
use crate::ledger::coordination::Coordination;
use crate::log::open_topic::OpenTopic;
use crate::log::promote::PromotionLocks;
use crate::log::scan::Scanner;

/// How long a message may wait for others, to be sent in one batch.
const LINGER_MS: &str = "1";

/// A log and a ledger on Kafka. Clones share their state.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) coordination: Arc<Coordination>,
    pub(crate) sender: Arc<RecordSender>,
    pub(crate) scanner: Arc<Scanner>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) promotion_locks: Arc<PromotionLocks>,
    pub(crate) open: Arc<Mutex<HashMap<String, Arc<OpenTopic>>>>,
    /// Topics have the same names in Kafka.
    pub(crate) shares_names: bool,
}

impl Kafka {
    /// Opens the store; creates its coordination topic if needed.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        let address = Address::parse(url)?;
        let opening = async {
            let cluster = Cluster::connect(address, Env::system()).await?;
            let coordination = match &cluster.address.coordination {
                Some(topic) => topic.clone(),
                None => format!("sawmill.{}.coordination", escape_name(namespace.as_str())),
            };
            cluster.prepare_coordination(&coordination).await?;
            let coordination = Coordination::open(&cluster, &coordination).await?;
            let sender = RecordSender::new(&cluster.address.config(), LINGER_MS)?;
            let scanner = Scanner::new(&cluster)?;
            let place =
                format!("kafka://{} {namespace}", cluster.address.brokers, namespace = namespace.as_str());
            Ok(Self {
                cluster: Arc::new(cluster),
                coordination: Arc::new(coordination),
                sender: Arc::new(sender),
                scanner: Arc::new(scanner),
                notifier: Notifier::of(place),
                promotion_locks: Arc::default(),
                open: Arc::default(),
                shares_names: *namespace == Namespace::default(),
            })
        };
        opening.await.map_err(|error: sawmill_engine::Error| {
            sawmill_engine::Error::new(error.kind(), format!("{url}: {error}"))
        })
    }
}

/// Escapes a name to letters, digits and `-`: Kafka treats `.` and `_` as equal.
pub(crate) fn escape_name(name: &str) -> String {
    name.chars().fold(String::new(), |mut spelled, c| {
        match c {
            '.' => spelled.push_str("-d"),
            '_' => spelled.push_str("-u"),
            '-' => spelled.push_str("--"),
            c => spelled.push(c),
        }
        spelled
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_are_spelled_differently() {
        let names = ["a.b", "a_b", "a-b", "a-db", "a--b", "ab", "a-d-b"];
        let mut spelled: Vec<String> = names.iter().map(|name| escape_name(name)).collect();
        assert!(spelled.iter().all(|name| !name.contains(['.', '_'])));
        spelled.sort();
        spelled.dedup();
        assert_eq!(spelled.len(), names.len());
    }
}
