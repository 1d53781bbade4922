//! SQLite's file locks.

use std::time::Duration;

use rusqlite::Connection;
use sawmill_conformance::behaviours::gated_handler::GatedHandler;
use sawmill_conformance::behaviours::support::{LONG_TTL, POLL, eventually, topic};

use crate::subject;

#[tokio::test]
async fn g6_no_lock_is_held_while_a_handler_runs() {
    let place = subject().place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    mill.push("orders", "0").await.unwrap();
    gated.started(1).await;

    // Another program can write without waiting. Only a commit at this very moment blocks it.
    let other = Connection::open(place.url().strip_prefix("sqlite:").unwrap()).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    for key in ["a", "b", "c"] {
        eventually("another connection may write", async || other.execute_batch("BEGIN IMMEDIATE").is_ok())
            .await;
        let insert = "INSERT INTO entry (namespace, key, version, value) VALUES ('another', ?1, 1, x'00')";
        assert_eq!(other.execute(insert, [key]).unwrap(), 1);
        other.execute_batch("COMMIT").unwrap();
    }
    // Another process that uses the library can also work, on the same shard.
    let second = place.mill().await;
    second.push("orders", "1").await.unwrap();
    let quick = GatedHandler::open();
    let helper = second.worker("orders").concurrency(1).ttl(LONG_TTL).start(quick.seat("two")).await.unwrap();
    quick.ended(1).await;
    assert_eq!((gated.count(), worker.state().busy), (1, 1), "the first handler still runs");
    assert_eq!(quick.payloads(), ["1"]);
    gated.release_all();
    gated.ended(1).await;
    worker.stop().await;
    helper.stop().await;
}
