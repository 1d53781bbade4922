//! Faults of servers and connections under load: restarts, crashes and lost connections, with and without a
//! pooler in transaction mode. No acknowledged message is lost, at-most-once never runs a message twice, and
//! workers recover by themselves. The time to recover is printed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use sawmill::Sawmill;
use sawmill_conformance::trial::{Trial, Worst};
use sawmill_conformance::waits::in_time;
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::storage::{Log, Position};
use sawmill_postgres::PostgresEngine;
use sawmill_servers::{Kind, Server};
use support::{NOW, ids, namespace, open, plain_client, read, records, soon, topic};
use tokio::task::block_in_place;

/// The time that a check-up may take on an idle server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a server for this test. Without one, reports the test as skipped.
fn server(test: &str) -> Option<Server> {
    Server::start(Kind::Postgres).map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

fn pooler(test: &str, behind: &Server) -> Option<Server> {
    Server::pgbouncer(behind.port()).map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

/// Longer than any outage here, even on a busy machine, so no worker is declared dead.
const TTL: Duration = Duration::from_secs(60);

async fn trial(url: &str) -> Trial {
    trial_with(url, TTL).await
}

async fn trial_with(url: &str, ttl: Duration) -> Trial {
    let namespace = namespace();
    let open = async || {
        let engine = PostgresEngine::default().connections(3);
        Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
    };
    Trial::start(open, ttl).await
}

/// Cuts connections at random for some seconds, and more than twenty.
async fn cut_connections(server: &Server) -> i64 {
    let admin = plain_client(server.url()).await;
    let (began, mut cut) = (SystemClock.now(), 0i64);
    // A busy machine cuts fewer in this time and continues.
    let goes_on = |cut, time| time < Duration::from_secs(4) || (cut <= 20 && time < Duration::from_secs(60));
    while goes_on(cut, SystemClock.now().since(began)) {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.3";
        cut += admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
        SystemClock.sleep(Duration::from_millis(60)).await;
    }
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_restarted() {
    let Some(mut server) = server("a_server_is_restarted") else { return };
    let mut trial = trial(server.url()).await;
    for _ in 0..2 {
        trial.runs(100).await;
        in_time(block_in_place(|| server.stop().and_then(|()| server.restart())));
        trial.recovers("a server that was restarted").await;
    }
    trial.end(Worst::Once).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_killed() {
    let Some(mut server) = server("a_server_is_killed") else { return };
    let mut trial = trial(server.url()).await;
    for _ in 0..3 {
        trial.runs(100).await;
        in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));
        trial.recovers("a server that was killed").await;
    }
    trial.end(Worst::Again).await;
}

/// No heartbeat succeeds, so all workers count as dead when the server comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_away_for_long() {
    const SHORT: Duration = Duration::from_secs(3);
    let Some(mut server) = server("a_server_is_away_for_long") else { return };
    let mut trial = trial_with(server.url(), SHORT).await;
    trial.runs(100).await;
    in_time(block_in_place(|| server.kill()));
    SystemClock.sleep(SHORT + Duration::from_secs(2)).await;
    in_time(block_in_place(|| server.restart()));
    trial.recovers("a server that was away for longer than the TTL").await;
    trial.end(Worst::GivenUp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_cut() {
    let Some(server) = server("connections_are_cut") else { return };
    let mut trial = trial(server.url()).await;
    trial.runs(100).await;
    let cut = cut_connections(&server).await;
    assert!(cut > 20, "test timed out: more than 20 connections are cut, and not only {cut}");
    trial.recovers(&format!("{cut} connections that were cut")).await;
    trial.end(Worst::Once).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_it_behind_a_pooler() {
    let Some(mut server) = server("all_of_it_behind_a_pooler") else { return };
    let Some(mut pooler) = pooler("all_of_it_behind_a_pooler", &server) else { return };
    let found = sawmill::Sawmill::open(pooler.url()).await.unwrap().admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["no-hints"], "{found:?}");
    let mut trial = trial(pooler.url()).await;
    trial.runs(100).await;
    let cut = cut_connections(&server).await;
    assert!(cut > 20, "test timed out: more than 20 connections are cut, and not only {cut}");
    trial.recovers(&format!("{cut} connections that were cut behind a pooler")).await;
    in_time(block_in_place(|| server.stop().and_then(|()| server.restart())));
    trial.recovers("a server that was restarted behind a pooler").await;
    in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));
    trial.recovers("a server that was killed behind a pooler").await;
    in_time(block_in_place(|| pooler.kill().and_then(|()| pooler.restart())));
    trial.recovers("a pooler that was killed").await;
    trial.end(Worst::Again).await;
}

/// After a crash, a server assigns transaction ids again that nothing on its disk mentions. Messages pushed
/// under them must not be mistaken for messages that were already read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_a_crash_gives_out_again_hide_nothing() {
    // Every 15 seconds a server records its progress on disk. If it does so just before the crash, it reuses
    // no ids and there is nothing to test.
    for _ in 0..5 {
        let Some(server) = server("numbers_that_a_crash_gives_out_again_hide_nothing") else { return };
        if numbers_are_given_out_again_and_hide_nothing(server).await {
            return;
        }
    }
    panic!("test timed out: a number is given out again, after five crashes");
}

/// Returns whether the crash made the server reuse ids.
async fn numbers_are_given_out_again_and_hide_nothing(mut server: Server) -> bool {
    let log = open(server.url(), &namespace()).await;
    let topic = topic(&log, "orders", 2).await;
    log.append(&topic, NOW, records(0, 0..10)).await.unwrap();
    // Transactions that leave nothing behind except used ids.
    let other = plain_client(server.url()).await;
    let use_up_ids = async || {
        for _ in 0..200 {
            other.batch_execute("BEGIN; SELECT pg_current_xact_id(); ROLLBACK").await.unwrap();
        }
        let row = other.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8", &[]).await;
        row.unwrap().get::<_, i64>(0)
    };
    let before = use_up_ids().await;
    // One reader is in the middle, one has read everything, and one has seen an empty shard.
    let half = read(&log, &topic, 0, &Position::default(), 5).await;
    let all = read(&log, &topic, 0, &Position::default(), 100).await;
    let none = read(&log, &topic, 1, &Position::default(), 100).await;
    let ends = log.positions(&topic, sawmill::Timestamp::LATEST).await.unwrap();
    assert!(read(&log, &topic, 0, &all.end, 100).await.messages.is_empty());
    in_time(block_in_place(|| server.kill().and_then(|()| server.restart())));

    let again = plain_client(server.url()).await;
    let row =
        again.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8", &[]).await.unwrap();
    let after: i64 = row.get(0);
    if after >= before {
        return false;
    }
    let both: Vec<_> = records(0, [100]).into_iter().chain(records(1, [200])).collect();
    // Broken connections are not reused.
    let push = async {
        while log.append(&topic, NOW, both.clone()).await.is_err() {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a push", push).await;
    let rest = read(&log, &topic, 0, &half.end, 100).await;
    let mut rest_ids = ids(&rest);
    if rest.more {
        rest_ids.extend(ids(&read(&log, &topic, 0, &rest.end, 100).await));
    }
    assert_eq!(rest_ids, [5, 6, 7, 8, 9, 100]);
    assert_eq!(ids(&read(&log, &topic, 0, &all.end, 100).await), [100]);
    assert_eq!(ids(&read(&log, &topic, 1, &none.end, 100).await), [200]);
    assert_eq!(ids(&read(&log, &topic, 0, &ends[0], 100).await), [100]);
    assert_eq!(ids(&read(&log, &topic, 1, &ends[1], 100).await), [200]);
    assert_eq!(log.reread(&topic, 0, &half.span).await.unwrap(), half.messages);
    true
}
