//! What the engine does to a database that it is given: it makes its tables, finishes what another process began, and asks no
//! more of the server than is stated here.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use mysql_async::prelude::Queryable;
use sawmill::Sawmill;
use sawmill::log::{Position, Want};
use sawmill_conformance::load::load;
use sawmill_mysql::{MysqlEngine, schema_version};
use support::{Database, NOW, database_for, default_namespace, random, record, topic};

/// The tables of the namespace `default`, and how each is made.
async fn tables(database: &Database) -> Vec<(String, String)> {
    let mut stranger = database.stranger().await;
    let names: Vec<String> = stranger.query("SHOW TABLES").await.unwrap();
    let mut tables = Vec::new();
    for name in names {
        let made: Option<(String, String)> =
            stranger.query_first(format!("SHOW CREATE TABLE `{name}`")).await.unwrap();
        // How far the server has counted is no part of it.
        let made = made.unwrap().1.split("AUTO_INCREMENT=").next().unwrap().to_owned();
        tables.push((name, made));
    }
    tables
}

#[tokio::test]
async fn g12_the_schema_is_made_by_the_library_and_found_again() {
    let Some(database) = database_for("g12_the_schema_is_made").await else { return };
    let version = async || schema_version(&database.url(), &default_namespace()).await.unwrap();
    assert_eq!(version().await, None);
    assert!(tables(&database).await.is_empty(), "asking makes nothing");

    let log = database.open("default").await.unwrap().log.unwrap();
    let made = topic(&*log, "orders", 1).await;
    log.append(&made, NOW, vec![record(0, "kept")]).await.unwrap();
    let (first, shape) = (version().await, tables(&database).await);
    assert!(first.is_some_and(|version| version > 0));
    assert!(shape.iter().all(|(name, _)| name.starts_with("sawmill_default_")), "{shape:?}");

    let again = database.open("default").await.unwrap().log.unwrap();
    assert_eq!((version().await, tables(&database).await), (first, shape), "nothing is made twice");
    let want = Want { shard: 0, after: Position::default(), limit: 9 };
    assert_eq!(again.read(&made, &[want]).await.unwrap()[0].messages.len(), 1);
}

/// Making tables is not one transaction: a process may die between two of them.
#[tokio::test]
async fn g12_a_schema_that_was_left_half_made_is_finished() {
    let Some(database) = database_for("g12_a_schema_that_was_left_half_made").await else { return };
    drop(database.open("default").await.unwrap());
    let shape = tables(&database).await;
    let mut stranger = database.stranger().await;
    stranger.query_drop("UPDATE sawmill_default_meta SET version = 0").await.unwrap();
    stranger
        .query_drop("DROP TABLE sawmill_default_entry, sawmill_default_once, sawmill_default_server")
        .await
        .unwrap();
    let log = database.open("default").await.unwrap().log.unwrap();
    assert_eq!(tables(&database).await, shape);
    let made = topic(&*log, "orders", 1).await;
    log.append(&made, NOW, vec![record(0, "m")]).await.unwrap();
}

/// Counted by the server, for a user that nobody else is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_load_on_the_database_is_bounded() {
    let Some(database) = database_for("g20_the_load_on_the_database").await else { return };
    let user = format!("u{:08x}", random() as u32);
    let mut stranger = database.stranger().await;
    if stranger.query_drop("SET GLOBAL userstat = 1").await.is_err() {
        sawmill_conformance::skipped("g20_the_load_on_the_database", "only MariaDB counts by user");
        return;
    }
    database.admin(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'pass'")).await;
    database.admin(&format!("GRANT ALL ON {}.* TO {user}@'%'", database.name)).await;
    let url = database.url_as(&user, "pass");
    let asked = async || {
        let sql = format!(
            "SELECT CAST(select_commands + update_commands + other_commands AS UNSIGNED)
             FROM information_schema.user_statistics WHERE user = '{user}'"
        );
        let mut stranger = database.stranger().await;
        stranger.query_first::<u64, _>(sql).await.unwrap().unwrap()
    };
    let open = async || Sawmill::options().engine(MysqlEngine).open(&url).await.unwrap();
    let load = load(open, asked).await;
    eprintln!("{load:?}, in statements");
    assert!(load.per_message <= 0.05, "{load:?}");
    assert!(load.idle_per_second <= 30.0, "{load:?}");
    database.admin(&format!("DROP USER {user}@'%'")).await;
}
