//! Tests of operation: the engine creates its own tables, completes a migration that another process began,
//! and its load on the server is bounded.

use std::time::Duration;

use crate::support::{Database, NOW, database_for, default_namespace, random, record, soon, topic};
use mysql_async::prelude::Queryable;
use sawmill::Sawmill;
use sawmill_conformance::load::load;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Position, ReadRequest};
use sawmill_mysql::{MysqlEngine, schema_version};
use sawmill_servers::{Kind, Server};

/// The tables of the namespace `default`, and the statement that creates each.
async fn tables(database: &Database) -> Vec<(String, String)> {
    let mut plain_connection = database.plain_connection().await;
    let names: Vec<String> = plain_connection.query("SHOW TABLES").await.unwrap();
    let mut tables = Vec::new();
    for name in names {
        let made: Option<(String, String)> =
            plain_connection.query_first(format!("SHOW CREATE TABLE `{name}`")).await.unwrap();
        // The value of AUTO_INCREMENT is not part of the shape.
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
    let want = ReadRequest { shard: 0, after: Position::default(), limit: 9 };
    assert_eq!(again.read(&made, &[want]).await.unwrap()[0].messages.len(), 1);
}

/// Creating tables is not one transaction: a process may die in between.
#[tokio::test]
async fn g12_a_schema_that_was_left_half_made_is_finished() {
    let Some(database) = database_for("g12_a_schema_that_was_left_half_made").await else { return };
    drop(database.open("default").await.unwrap());
    let shape = tables(&database).await;
    let mut plain_connection = database.plain_connection().await;
    plain_connection.query_drop("UPDATE sawmill_default_meta SET version = 0").await.unwrap();
    plain_connection
        .query_drop("DROP TABLE sawmill_default_entry, sawmill_default_once, sawmill_default_server")
        .await
        .unwrap();
    let log = database.open("default").await.unwrap().log.unwrap();
    assert_eq!(tables(&database).await, shape);
    let made = topic(&*log, "orders", 1).await;
    log.append(&made, NOW, vec![record(0, "m")]).await.unwrap();
}

/// The server counts statements of a user that nobody else uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_load_on_the_database_is_bounded() {
    let Some(database) = database_for("g20_the_load_on_the_database").await else { return };
    let user = format!("u{:08x}", random() as u32);
    let mut plain_connection = database.plain_connection().await;
    if plain_connection.query_drop("SET GLOBAL userstat = 1").await.is_err() {
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
        let mut plain_connection = database.plain_connection().await;
        plain_connection.query_first::<u64, _>(sql).await.unwrap().unwrap()
    };
    let open = async || Sawmill::options().engine(MysqlEngine).open(&url).await.unwrap();
    let load = load(open, asked).await;
    eprintln!("{load:?}, in statements");
    // A busy machine takes longer, and periodic queries go on meanwhile.
    assert!(load.per_message <= 0.05 || load.busy_per_second <= 100.0, "{load:?}");
    assert!(load.idle_per_second <= 30.0, "{load:?}");
    database.admin(&format!("DROP USER {user}@'%'")).await;
}

/// A user of the test's own, and one problem after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_each_planted_problem_and_is_silent_otherwise() {
    let Some(database) = database_for("a_check_up_finds").await else { return };
    let mut forgetful = database.plain_connection().await;
    let (name, me): (String, u64) =
        forgetful.query_first("SELECT DATABASE(), CONNECTION_ID()").await.unwrap().unwrap();
    let user = format!("u{:016x}", random());
    let rights = "CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE, DELETE";
    database.admin(&format!("CREATE USER {user} IDENTIFIED BY 'secret'")).await;
    database.admin(&format!("GRANT {rights} ON {name}.* TO {user}")).await;
    database.admin(&format!("GRANT PROCESS ON *.* TO {user}")).await;
    let found = async || {
        let mill = sawmill::Sawmill::open(&database.url_as(&user, "secret")).await.unwrap();
        let mut found = mill.admin().doctor(Duration::from_secs(2)).await.unwrap();
        // Ignore transactions of other tests on this server.
        found.retain(|finding| {
            finding.check != "held-transaction" || finding.what.contains(&format!("connection {me} "))
        });
        found
            .iter()
            .for_each(|finding| eprintln!("{}: {} ({})", finding.check, finding.what, finding.what_to_do));
        found.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    let mill = sawmill::Sawmill::open(&database.url_as(&user, "secret")).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    mill.push("orders", "x").await.unwrap();
    assert!(found().await.is_empty());

    forgetful.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    Env::system().sleep(Duration::from_secs(4)).await;
    assert_eq!(found().await, ["held-transaction"]);
    forgetful.query_drop("ROLLBACK").await.unwrap();
    // The server returns the same list again within a tenth of a second.
    Env::system().sleep(Duration::from_secs(1)).await;
    assert!(found().await.is_empty());

    for right in ["UPDATE", "DELETE", "INSERT"] {
        database.admin(&format!("REVOKE {right} ON {name}.* FROM {user}")).await;
        let found = found().await;
        assert!(!found.is_empty() && found.iter().all(|check| *check == "rights"), "{right}: {found:?}");
        database.admin(&format!("GRANT {right} ON {name}.* TO {user}")).await;
    }
    assert!(found().await.is_empty());

    // Without the right to see others' transactions, the check reports that it could not look.
    database.admin(&format!("REVOKE PROCESS ON *.* FROM {user}")).await;
    assert_eq!(found().await, ["not-checked"]);
}

/// Needs its own server because these problems affect all users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_what_is_wrong_with_a_server_as_such() {
    const SHORT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);
    const AHEAD: Duration = Duration::from_secs(3600);
    let skipped =
        |why: String| sawmill_conformance::skipped("a_check_up_finds_what_is_wrong_with_a_server", &why);
    let Ok(server) = Server::start(Kind::Mariadb).map_err(skipped) else { return };
    let database = Database::new(server.url()).await;
    let name = &database.name;
    let rights = "CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE, DELETE";
    database.admin("CREATE USER plain IDENTIFIED BY 'secret'").await;
    database.admin(&format!("GRANT {rights} ON {name}.* TO plain")).await;
    let found = async |patience| {
        let mill = sawmill::Sawmill::open(&database.url_as("plain", "secret")).await.unwrap();
        let found = mill.admin().doctor(patience).await.unwrap();
        found.iter().for_each(|finding| eprintln!("{}: {}", finding.check, finding.what));
        found.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    let alone = async {
        // A closed connection may still be counted for a moment.
        while !found(LONG).await.is_empty() {}
    };
    soon("nobody else is there, so that there is nothing that cannot be seen", alone).await;
    database.admin("GRANT PROCESS ON *.* TO plain").await;

    database.admin("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await;
    assert_eq!(found(LONG).await, ["durability"]);
    database.admin("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
    assert!(found(LONG).await.is_empty());

    for zone in ["+09:00", "-09:00"] {
        database.admin(&format!("SET GLOBAL time_zone = '{zone}'")).await;
        let mut forgetful = database.plain_connection().await;
        forgetful.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
        assert!(found(LONG).await.is_empty(), "it has only begun, whatever the zone is");
        Env::system().sleep(2 * SHORT).await;
        assert_eq!(found(SHORT).await, ["held-transaction"], "{zone}");
        forgetful.disconnect().await.unwrap();
    }
    database.admin("SET GLOBAL time_zone = SYSTEM").await;
    Env::system().sleep(SHORT).await;

    // The clock is an hour ahead for all users except administrators. By that clock, current transactions
    // began an hour ago.
    let ahead = AHEAD.as_secs();
    database.admin(&format!("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + {ahead}'")).await;
    assert_eq!(found(2 * AHEAD).await, ["clock-skew"]);
    database.admin("SET GLOBAL init_connect = ''").await;
    assert!(found(LONG).await.is_empty());
}
