//! What the engine does to a database that it is given: it makes its tables, and asks no more of the server than is stated here.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use sawmill::Sawmill;
use sawmill::env::Env;
use sawmill::log::{Log, Position};
use sawmill_conformance::load::load;
use sawmill_postgres::PostgresEngine;
use support::{NOW, ids, namespace, open, read, records, server_for, soon, stranger, topic};

/// The columns of all tables of a schema, in one text.
async fn shape(url: &str, schema: &str) -> Vec<String> {
    let sql = "SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
               WHERE table_schema = $1 ORDER BY 1";
    let rows = stranger(url).await.query(sql, &[&schema]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn g12_the_schema_is_made_by_the_library_and_found_again() {
    let Some(url) = server_for("g12_the_schema_is_made") else { return };
    let namespace = namespace();
    let schema = format!("sawmill_{}", namespace.as_str());
    assert!(shape(&url, &schema).await.is_empty());
    let log = open(&url, &namespace).await;
    let made = topic(&log, "orders", 1).await;
    log.append(&made, NOW, records(0, [7])).await.unwrap();
    let first = shape(&url, &schema).await;
    assert!(first.iter().any(|column| column.starts_with("meta version")), "{first:?}");

    let again = open(&url, &namespace).await;
    assert_eq!(shape(&url, &schema).await, first, "nothing is made twice");
    assert_eq!(ids(&read(&again, &made, 0, &Position::default(), 9).await), [7]);
}

/// Counted by the server, for a database that nobody else uses: its sessions report what they did at the latest when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_load_on_the_database_is_bounded() {
    let Some(server) = server_for("g20_the_load_on_the_database") else { return };
    let name = format!("load_{:016x}", Env::system().dice().roll());
    let admin = stranger(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let asked = async || {
        let sql = "SELECT numbackends, xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1";
        let ended = async {
            loop {
                let row = admin.query_one(sql, &[&name]).await.unwrap();
                if row.get::<_, i32>(0) == 0 {
                    return row.get::<_, i64>(1) as u64;
                }
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        soon("the end of all sessions", ended).await
    };
    let open = async || Sawmill::options().engine(PostgresEngine::default()).open(&url).await.unwrap();
    let load = load(open, asked).await;
    eprintln!("{load:?}, in transactions");
    assert!(load.per_message <= 0.05, "{load:?}");
    // Some are the server's own, which looks after tables that are new.
    assert!(load.idle_per_second <= 25.0, "{load:?}");
    admin.batch_execute(&format!("DROP DATABASE {name}")).await.unwrap();
}
