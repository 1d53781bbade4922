//! Faults of servers and connections under load: restarts, crashes and lost connections. No acknowledged
//! message is lost, workers recover by themselves, and at-most-once never runs a message twice. The time to
//! recover is printed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sawmill::Sawmill;
use sawmill_conformance::trial::{Trial, Worst};
use sawmill_conformance::waits::in_time;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, Engine, EntryKey, Write};
use sawmill_mysql::MysqlEngine;
use sawmill_servers::{Kind, Server};
use tokio::task::block_in_place;

/// Longer than any outage here, even on a busy machine, so no worker is declared dead.
const LONG_TTL: Duration = Duration::from_secs(60);
/// Short enough for an outage to exceed it.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// Starts a server for this test. Without one, reports the test as skipped.
fn server(test: &str) -> Option<Server> {
    Server::start(Kind::Mariadb).map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

/// Runs load, injects the fault `times` times, and checks that nothing worse than `worst` happened. `harm`
/// returns when the fault is over.
async fn under_load(
    test: &str,
    times: usize,
    ttl: Duration,
    worst: Worst,
    mut harm: impl AsyncFnMut(&mut Server),
) {
    let Some(mut server) = server(test) else { return };
    let url = server.url().to_owned();
    let open = async || Sawmill::options().engine(MysqlEngine).open(&url).await.unwrap();
    let mut trial = Trial::start(open, ttl).await;
    for _ in 0..times {
        trial.runs(200).await;
        harm(&mut server).await;
        trial.recovers(test).await;
    }
    trial.end(worst).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load_loses_nothing() {
    under_load("a server that was restarted", 3, LONG_TTL, Worst::Once, async |server| {
        in_time(block_in_place(|| server.stop().and_then(|()| server.restart())));
    })
    .await;
}

/// Every commit survives the crash, so no claim is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing() {
    under_load("a server that was killed", 3, LONG_TTL, Worst::Once, async |server| {
        in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));
    })
    .await;
}

/// No heartbeat succeeds, so all workers count as dead when the server comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_for_long_loses_nothing() {
    under_load("a server that was away for long", 1, SHORT_TTL, Worst::GivenUp, async |server| {
        in_time(block_in_place(|| server.kill()));
        Env::system().sleep(SHORT_TTL + Duration::from_secs(2)).await;
        in_time(block_in_place(|| server.restart()));
    })
    .await;
}

/// Data that was read before a crash may be lost, so it must not be acted upon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_read_in_one_life_of_a_server_is_written_on_in_the_next() {
    let Some(mut server) = server("nothing_that_was_read_in_one_life_of_a_server_is_written_on_in_the_next")
    else {
        return;
    };
    let store = MysqlEngine.open(&server.url().parse().unwrap(), &Default::default()).await.unwrap();
    let ledger = store.ledger.unwrap();
    let key = EntryKey::raw("shards/1");
    let write = |expect, value: &str| {
        let (key, value) = (key.clone(), Some(value.to_owned().into()));
        let ledger = ledger.clone();
        async move { ledger.commit(Write { key, expect, value }).await.unwrap() }
    };
    let Commit::Done(first) = write(None, "a").await else { panic!("nobody else writes") };
    let Commit::Done(second) = write(Some(first), "b").await else { panic!("nobody else writes") };
    // A lost connection alone changes nothing.
    drop(MysqlEngine.open(&server.url().parse().unwrap(), &Default::default()).await.unwrap());
    let Commit::Done(third) = write(Some(second), "c").await else { panic!("the server lives") };

    in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));
    let answer = loop {
        match ledger.get(&EntryKey::raw("another")).await {
            Ok(_) => break write(Some(third), "d").await,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!(answer, Commit::Conflict);
    let now = ledger.get(&key).await.unwrap().unwrap();
    assert_eq!(now.value, "c");
    assert!(now.version > third);
    assert!(matches!(write(Some(now.version), "d").await, Commit::Done(_)), "what is read now counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_under_load_lose_nothing() {
    under_load("connections that were cut", 3, LONG_TTL, Worst::Once, async |server| {
        let opts = mysql_async::Opts::from_url(server.url()).unwrap();
        let mut killer = Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.unwrap();
        let others =
            "SELECT id FROM information_schema.processlist WHERE db = 'sawmill' AND id <> CONNECTION_ID()";
        let env = Env::system();
        let (began, mut rounds, mut cut) = (env.now(), 0, 0);
        // A busy machine cuts fewer in these rounds and continues.
        while rounds < 20 || cut <= 5 && env.now().since(began) < Duration::from_secs(60) {
            for id in killer.query::<u64, _>(others).await.unwrap() {
                // It may have ended by itself.
                cut += usize::from(killer.query_drop(format!("KILL {id}")).await.is_ok());
            }
            env.sleep(Duration::from_millis(50)).await;
            rounds += 1;
        }
        assert!(cut > 5, "test timed out: more than 5 connections are cut, and not only {cut}");
    })
    .await;
}
