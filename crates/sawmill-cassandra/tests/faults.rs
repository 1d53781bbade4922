//! Kills a node under load, either a single one or one of three: no acknowledged message is lost, and workers
//! resume by themselves.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use sawmill::Sawmill;
use sawmill_cassandra::CassandraEngine;
use sawmill_conformance::trial::{Trial, Worst};
use sawmill_conformance::waits::in_time;
use sawmill_servers::{Kind, Server};
use tokio::task::block_in_place;

/// Longer than a node is away, so that no worker is declared dead.
const TTL: Duration = Duration::from_secs(90);
/// The driver's default timeout for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a single node that writes to disk before it acknowledges. With the default settings a killed node
/// forgets the last writes, and gets them back from other nodes; here there are none.
fn alone() -> Result<Vec<Server>, String> {
    let mut server = Server::start(Kind::Cassandra)?;
    server.stop()?;
    let settings =
        std::fs::read_to_string(server.folder().join("cassandra.yaml")).map_err(|error| error.to_string())?;
    let periodic = "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n";
    assert!(settings.contains(periodic), "{settings}");
    server.give_file("cassandra.yaml", &settings.replace(periodic, "commitlog_sync: batch\n"))?;
    server.restart()?;
    Ok(vec![server])
}

fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

async fn survive(test: &str, start: impl FnOnce() -> Result<Vec<Server>, String>) {
    let servers = block_in_place(start).map_err(|why| sawmill_conformance::skipped(test, &why));
    let Ok(mut servers) = servers else { return };
    let url = servers[0].url().to_owned();
    let open = async || Sawmill::options().engine(CassandraEngine).open(&url).await.unwrap();
    let mut trial = Trial::start(open, TTL).await;
    // One kill by default; `SAWMILL_TEST_KILLS` sets more.
    for round in 0..setting("SAWMILL_TEST_KILLS").unwrap_or(1) {
        trial.runs(500).await;
        let victim = (round + 1) % servers.len();
        in_time(block_in_place(|| servers[victim].kill()));
        if servers.len() > 1 {
            // The other nodes still serve.
            trial.runs(2000).await;
        }
        in_time(block_in_place(|| servers[victim].restart()));
        trial.recovers("a node that was killed").await;
    }
    let seen = trial.end(Worst::Again).await;
    if servers.len() > 1 {
        assert!(seen.longest_without_push.max(seen.longest_without_start) < TIMEOUT, "{seen:?}");
    }
}

/// `SAWMILL_TEST_NODES=3` kills one of three instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_killed() {
    match setting("SAWMILL_TEST_NODES").unwrap_or(1) {
        1 => survive("a_node_is_killed", alone).await,
        _ => survive("a_node_of_three_is_killed", Server::cassandra_ring).await,
    }
}
