//! Stops, kills and restarts ZooKeeper under load, with messages in SQLite. Acknowledged messages are not
//! lost, a worker without a session starts nothing, and workers recover by themselves. The recovery time is
//! printed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use sawmill::Sawmill;
use sawmill_conformance::trial::{Trial, Worst};
use sawmill_conformance::waits::in_time;
use sawmill_engine::runtime::Env;
use sawmill_servers::{Kind, Server};
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::ZookeeperEngine;
use tokio::task::block_in_place;

/// The TTL of a worker and its session where the server is back before it ends, even on a busy machine, so
/// that no worker is declared dead. The test server allows no longer session.
const LONG_TTL: Duration = Duration::from_secs(60);
/// The TTL where the server is away for longer.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// Runs load, injects the fault this many times, and checks that the outcome is no worse than `worst`. `harm`
/// returns when the fault is over.
async fn under_load(
    test: &str,
    times: usize,
    ttl: Duration,
    worst: Worst,
    mut harm: impl AsyncFnMut(&Trial, &mut Server),
) {
    let server = Server::start(Kind::Zookeeper).map_err(|why| sawmill_conformance::skipped(test, &why));
    let Ok(mut server) = server else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let ledger = format!("{}?session-timeout={}", server.url(), ttl.as_secs());
    let open = async || {
        let options = Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine);
        options.ledger(&ledger).open(&store).await.unwrap()
    };
    let mut trial = Trial::start(open, ttl).await;
    for _ in 0..times {
        trial.runs(200).await;
        harm(&trial, &mut server).await;
        trial.recovers(test).await;
    }
    trial.end(worst).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load_loses_nothing() {
    under_load("a server that was restarted", 3, LONG_TTL, Worst::Once, async |_, server| {
        in_time(block_in_place(|| server.stop().and_then(|()| server.restart())));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing() {
    under_load("a server that was killed", 3, LONG_TTL, Worst::Once, async |_, server| {
        in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));
    })
    .await;
}

/// All sessions end: nothing is started until there is a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q5_nobody_who_has_lost_a_session_starts_anything_and_all_go_on_when_it_is_back() {
    under_load("a server that was away for long", 1, SHORT_TTL, Worst::GivenUp, async |trial, server| {
        in_time(block_in_place(|| server.stop()));
        // These waits are needed: after the first one every session and lease has ended, and the second one
        // gives time for a start.
        Env::system().sleep(SHORT_TTL + SHORT_TTL / 2).await;
        let before = trial.starts();
        Env::system().sleep(SHORT_TTL + SHORT_TTL / 2).await;
        assert_eq!(trial.starts(), before, "something was started without a session");
        in_time(block_in_place(|| server.restart()));
    })
    .await;
}
