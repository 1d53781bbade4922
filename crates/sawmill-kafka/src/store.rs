//! An open store: what the log and the ledger share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sawmill::Result;
use sawmill::bells::Bells;
use sawmill::engine::{Namespace, StoreUrl};
use sawmill::env::Env;

use crate::address::Address;
use crate::cluster::Cluster;
use crate::coordination::Coordination;
use crate::lookback::Lookback;
use crate::open_topic::OpenTopic;
use crate::promote::Turns;
use crate::send::Outbox;

/// How long a message may wait for others to be sent with it.
const LINGER_MS: &str = "1";

/// A log and a ledger on Kafka. Clones share what they hold.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) coordination: Arc<Coordination>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lookback: Arc<Lookback>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) open: Arc<Mutex<HashMap<String, Arc<OpenTopic>>>>,
    /// Topics have the same names in Kafka.
    pub(crate) shares_names: bool,
}

impl Kafka {
    /// Opens the store, making its coordination topic if it is not there.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        let address = Address::parse(url)?;
        let opening = async {
            let cluster = Cluster::connect(address, Env::system()).await?;
            let coordination = match &cluster.address.coordination {
                Some(topic) => topic.clone(),
                None => format!("sawmill.{}.coordination", spell(namespace.as_str())),
            };
            cluster.prepare_coordination(&coordination).await?;
            let coordination = Coordination::open(&cluster, &coordination).await?;
            let outbox = Outbox::new(&cluster.address.config(), LINGER_MS)?;
            let lookback = Lookback::new(&cluster)?;
            let place =
                format!("kafka://{} {namespace}", cluster.address.brokers, namespace = namespace.as_str());
            Ok(Self {
                cluster: Arc::new(cluster),
                coordination: Arc::new(coordination),
                outbox: Arc::new(outbox),
                lookback: Arc::new(lookback),
                bells: Bells::of(place),
                turns: Arc::default(),
                open: Arc::default(),
                shares_names: *namespace == Namespace::default(),
            })
        };
        opening
            .await
            .map_err(|error: sawmill::Error| sawmill::Error::new(error.kind(), format!("{url}: {error}")))
    }
}

/// A name in letters, digits and `-` alone: Kafka holds `.` and `_` to be the same sign.
pub(crate) fn spell(name: &str) -> String {
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
        let mut spelled: Vec<String> = names.iter().map(|name| spell(name)).collect();
        assert!(spelled.iter().all(|name| !name.contains(['.', '_'])));
        spelled.sort();
        spelled.dedup();
        assert_eq!(spelled.len(), names.len());
    }
}
