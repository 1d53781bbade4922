//! An open store: what the log and the ledger share.

use std::sync::Arc;

use sawmill::Result;
use sawmill::engine::{Namespace, StoreUrl};
use sawmill::env::Env;

use crate::address::Address;
use crate::cluster::Cluster;
use crate::coordination::Coordination;

/// A log and a ledger on Kafka. Clones share what they hold.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) coordination: Arc<Coordination>,
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
            Ok(Self { cluster: Arc::new(cluster), coordination: Arc::new(coordination) })
        };
        opening.await.map_err(|error: sawmill::Error| sawmill::Error::new(error.kind(), format!("{url}: {error}")))
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
