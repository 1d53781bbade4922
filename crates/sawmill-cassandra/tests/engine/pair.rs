//! Messages in Cassandra and the ledger in ZooKeeper.

use crate::support::server_for;
use sawmill::Sawmill;
use sawmill_cassandra::CassandraEngine;
use sawmill_conformance::pair::all_is_worked;
use sawmill_engine::runtime::Env;
use sawmill_zookeeper::ZookeeperEngine;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_may_be_in_zookeeper() {
    let Some(url) = server_for("the_ledger_may_be_in_zookeeper") else { return };
    let ledger = std::env::var("SAWMILL_TEST_ZOOKEEPER").ok().filter(|url| !url.is_empty());
    let Some(ledger) = ledger else {
        let why = "SAWMILL_TEST_ZOOKEEPER names no server; `cargo xtask engines up zookeeper` starts one";
        return sawmill_conformance::skipped("the_ledger_may_be_in_zookeeper", why);
    };
    let namespace = format!("pair-{:016x}", Env::system().rng().next_u64());
    all_is_worked(async || {
        let options = Sawmill::options().engine(CassandraEngine).engine(ZookeeperEngine);
        options.namespace(&namespace).ledger(&ledger).open(&url).await.unwrap()
    })
    .await;
}
