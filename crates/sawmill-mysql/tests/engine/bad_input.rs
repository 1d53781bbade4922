//! Tests of errors about a URL, a user, a database or its tables: they are clear and contain no password.

use crate::support::{NOW, database_for, default_namespace, message, random, record, topic};
use mysql_async::prelude::Queryable;
use sawmill::{Error, ErrorKind};
use sawmill_engine::storage::{Engine, Position, ReadRequest, Record};
use sawmill_mysql::MysqlEngine;

/// Asserts that opening fails with an error of this kind that contains all these texts and no password.
async fn refused(url: &str, kind: ErrorKind, said: &[&str]) -> Error {
    let opened = MysqlEngine.open(&url.parse().unwrap(), &default_namespace()).await;
    let Err(error) = opened else { panic!("accepted, instead of refused with {said:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    for said in said {
        assert!(error.to_string().contains(said), "{said:?} is missing: {error}");
    }
    assert!(!format!("{error} {error:?}").contains("se-cret"), "{error}");
    error
}

#[tokio::test]
async fn a_wrong_password_is_named() {
    let Some(database) = database_for("a_wrong_password_is_named").await else { return };
    refused(
        &database.url_as("sawmill", "se-cret"),
        ErrorKind::Invalid,
        &["the user or the password", "1045"],
    )
    .await;
    refused(&database.url_as("nobody", "se-cret"), ErrorKind::Invalid, &["the user or the password"]).await;
}

#[tokio::test]
async fn a_missing_database_is_named() {
    let Some(database) = database_for("a_missing_database_is_named").await else { return };
    let url = database.url().replace(&database.name, "no_such_database");
    refused(&url, ErrorKind::Invalid, &["does not exist", "no_such_database"]).await;
}

#[tokio::test]
async fn missing_rights_are_named() {
    let Some(database) = database_for("missing_rights_are_named").await else { return };
    let user = format!("u{:08x}", random() as u32);
    database.admin(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'se-cret'")).await;
    let url = database.url_as(&user, "se-cret");
    refused(&url, ErrorKind::Invalid, &["grant CREATE"]).await;

    database.admin(&format!("GRANT SELECT, INSERT ON {}.* TO {user}@'%'", database.name)).await;
    refused(&url, ErrorKind::Invalid, &["grant CREATE", "1142"]).await;

    // A user with rights to the tables alone can use them once another user has created them.
    database.open("default").await.unwrap();
    database
        .admin(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {}.* TO {user}@'%'", database.name))
        .await;
    let store = MysqlEngine.open(&url.parse().unwrap(), &default_namespace()).await.unwrap();
    let log = store.log.unwrap();
    let topic = topic(&*log, "orders", 1).await;
    log.append(&topic, NOW, vec![record(0, "m")]).await.unwrap();
    database.admin(&format!("DROP USER {user}@'%'")).await;
}

#[tokio::test]
async fn a_server_that_does_not_run_is_named() {
    let url = "mysql://me:se-cret@127.0.0.1:1/jobs";
    refused(url, ErrorKind::Unavailable, &["cannot be reached", "mysql://me:***@127.0.0.1:1/jobs"]).await;
}

#[tokio::test]
async fn newer_tables_are_refused_and_left_alone() {
    let Some(database) = database_for("newer_tables_are_refused").await else { return };
    database.open("default").await.unwrap();
    let mut plain_connection = database.plain_connection().await;
    plain_connection.query_drop("UPDATE sawmill_default_meta SET version = 99").await.unwrap();
    refused(&database.url(), ErrorKind::Corrupt, &["version 99", "use a newer program"]).await;
    let version: Option<u32> =
        plain_connection.query_first("SELECT version FROM sawmill_default_meta").await.unwrap();
    assert_eq!(version, Some(99));
    database.open("other").await.unwrap();
}

#[tokio::test]
async fn tables_of_another_namespace_are_refused() {
    let Some(database) = database_for("tables_of_another_namespace").await else { return };
    database.open("default").await.unwrap();
    let mut plain_connection = database.plain_connection().await;
    plain_connection.query_drop("UPDATE sawmill_default_meta SET namespace = 'stolen'").await.unwrap();
    refused(&database.url(), ErrorKind::Corrupt, &["stolen", "default"]).await;
}

#[tokio::test]
async fn a_table_that_was_dropped_is_said_to_be_missing() {
    let Some(database) = database_for("a_table_that_was_dropped").await else { return };
    let log = database.open("default").await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 1).await;
    database.plain_connection().await.query_drop("DROP TABLE sawmill_default_message").await.unwrap();
    let error = log.append(&topic, NOW, vec![record(0, "m")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("sawmill_default_message"), "{error}");
}

/// A setting in the URL that changes how the server counts rows does not break the check for repeated ids.
#[tokio::test]
async fn settings_in_the_url_do_not_let_an_id_in_twice() {
    let Some(database) = database_for("settings_in_the_url").await else { return };
    let url = format!("{}?client_found_rows=true", database.url());
    let log = MysqlEngine.open(&url.parse().unwrap(), &default_namespace()).await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 1).await;
    let again = Record::repeatable(&topic, message("m".into()));
    for _ in 0..3 {
        log.append(&topic, NOW, vec![again.clone()]).await.unwrap();
    }
    let want = ReadRequest { shard: 0, after: Position::default(), limit: 100 };
    assert_eq!(log.read(&topic, &[want]).await.unwrap()[0].messages.len(), 1);
}

/// Several processes may create the same namespace at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opening_a_new_namespace_at_once_makes_its_tables_once() {
    let Some(database) = database_for("opening_a_new_namespace_at_once").await else { return };
    let opened = futures_util::future::join_all((0..8).map(|_| database.open("Team-A.x"))).await;
    let logs: Vec<_> = opened.into_iter().map(|store| store.unwrap().log.unwrap()).collect();
    let topic = topic(&*logs[0], "orders", 1).await;
    for log in &logs {
        log.append(&topic, NOW, vec![record(0, "m")]).await.unwrap();
    }
    let want = ReadRequest { shard: 0, after: Position::default(), limit: 100 };
    assert_eq!(logs[7].read(&topic, &[want]).await.unwrap()[0].messages.len(), 8);
}

/// A batch that exceeds the server's packet size is sent in parts and arrives completely.
#[tokio::test]
async fn a_batch_larger_than_a_packet_is_appended_whole() {
    let Some(database) = database_for("a_batch_larger_than_a_packet").await else { return };
    let log = database.open("default").await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 1).await;
    let most = log.capabilities().max_payload_bytes;
    // A zero byte takes two bytes when escaped.
    let zeros = (0..3).map(|_| {
        let mut record = record(0, "");
        record.message.payload = vec![0; most].into();
        record
    });
    log.append(&topic, NOW, zeros.collect()).await.unwrap();
    let (mut after, mut came) = (Position::default(), 0);
    while came < 3 {
        let block = log.read(&topic, &[ReadRequest { shard: 0, after, limit: 100 }]).await.unwrap().remove(0);
        assert!(
            !block.messages.is_empty()
                && block.messages.iter().all(|message| message.payload == vec![0; most])
        );
        came += block.messages.len();
        after = block.end;
    }
}
