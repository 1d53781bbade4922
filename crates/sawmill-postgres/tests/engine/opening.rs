//! Tests of opening a store: refusals and their messages, concurrent opening, other namespaces.

use crate::support::{ids, namespace, open, plain_client, read, records, server_for, topic};
use sawmill::{Error, ErrorKind};
use sawmill_engine::storage::{Log, Position};
use sawmill_postgres::Postgres;

/// Asserts that opening fails with an error of this kind that contains all these texts and no password.
async fn refused(url: &str, kind: ErrorKind, said: &[&str]) -> Error {
    refused_in(url, &namespace(), kind, said).await
}

async fn refused_in(
    url: &str,
    namespace: &sawmill_engine::storage::Namespace,
    kind: ErrorKind,
    said: &[&str],
) -> Error {
    let opened = Postgres::open(&url.parse().unwrap(), namespace, 2).await;
    let Err(error) = opened else { panic!("{url} was opened, instead of refused with {said:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let text = format!("{error} {error:?}");
    for said in said {
        assert!(text.contains(said), "{said:?} is missing: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    error
}

/// Replaces the user, the password and the database of a URL.
fn changed(url: &str, user: &str, database: &str) -> String {
    let host = url.split_once('@').unwrap().1.split_once('/').unwrap().0;
    format!("postgres://{user}:hunter2@{host}/{database}")
}

#[tokio::test]
async fn a_wrong_password_is_said_without_repeating_it() {
    let Some(url) = server_for("a_wrong_password_is_said_without_repeating_it") else { return };
    refused(&changed(&url, "sawmill", "postgres"), ErrorKind::Invalid, &["refuses the user", "sawmill:***@"])
        .await;
}

#[tokio::test]
async fn a_password_that_is_missing_is_asked_for() {
    let Some(url) = server_for("a_password_that_is_missing_is_asked_for") else { return };
    let url = changed(&url, "sawmill", "postgres").replace(":hunter2", "");
    refused(&url, ErrorKind::Invalid, &["wants a password"]).await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let Some(url) = server_for("a_database_that_is_not_there_is_named") else { return };
    let url = format!("{}/nowhere", url.rsplit_once('/').unwrap().0);
    refused(&url, ErrorKind::Invalid, &["no such database", "nowhere", "create it"]).await;
}

#[tokio::test]
async fn missing_rights_are_said_with_what_to_grant() {
    let Some(url) = server_for("missing_rights_are_said_with_what_to_grant") else { return };
    let admin = plain_client(&url).await;
    let user = format!("u{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    admin.batch_execute(&format!("CREATE USER {user} PASSWORD 'hunter2'")).await.unwrap();
    refused(&changed(&url, &user, "postgres"), ErrorKind::Invalid, &["may not", "CREATE on the database"])
        .await;
    admin.batch_execute(&format!("DROP USER {user}")).await.unwrap();
}

/// A user with rights to the tables alone needs no right to create anything.
#[tokio::test]
async fn rights_to_the_tables_are_enough_where_the_schema_is_there() {
    let Some(url) = server_for("rights_to_the_tables_are_enough_where_the_schema_is_there") else { return };
    let (admin, namespace) = (plain_client(&url).await, namespace());
    let made = topic(&open(&url, &namespace).await, "orders", 1).await;
    let user = format!("u{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    admin
        .batch_execute(&format!(
            "CREATE USER {user} PASSWORD 'hunter2'; GRANT USAGE ON SCHEMA {schema} TO {user};
             GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}"
        ))
        .await
        .unwrap();
    let log = open(&changed(&url, &user, "postgres"), &namespace).await;
    log.append(&made, crate::support::NOW, records(0, [1])).await.unwrap();
    assert_eq!(ids(&read(&log, &made, 0, &Position::default(), 9).await), [1]);
    let spec = sawmill::TopicSpec::new("more".parse().unwrap());
    let error = log.create_topic(&spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("may not"), "{error}");
    drop(log);
    admin.batch_execute(&format!("DROP OWNED BY {user}; DROP USER {user}")).await.unwrap();
}

/// A user who may create nothing in the database can use a schema that they own.
#[tokio::test]
async fn a_schema_that_was_made_for_somebody_is_enough() {
    let Some(url) = server_for("a_schema_that_was_made_for_somebody_is_enough") else { return };
    let (admin, namespace) = (plain_client(&url).await, namespace());
    let user = format!("u{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    admin
        .batch_execute(&format!(
            "CREATE USER {user} PASSWORD 'hunter2'; CREATE SCHEMA {schema} AUTHORIZATION {user}"
        ))
        .await
        .unwrap();
    let log = open(&changed(&url, &user, "postgres"), &namespace).await;
    let made = topic(&log, "orders", 1).await;
    log.append(&made, crate::support::NOW, records(0, [1])).await.unwrap();
    assert_eq!(ids(&read(&log, &made, 0, &Position::default(), 9).await), [1]);
    drop(log);
    admin.batch_execute(&format!("DROP OWNED BY {user}; DROP USER {user}")).await.unwrap();
}

/// Simulates an old server: a function on the user's search path reports an older version.
#[tokio::test]
async fn a_server_that_is_too_old_is_refused_before_anything_is_made() {
    let Some(url) = server_for("a_server_that_is_too_old_is_refused") else { return };
    let (admin, namespace) = (plain_client(&url).await, namespace());
    let user = format!("u{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    admin
        .batch_execute(&format!(
            "CREATE USER {user} PASSWORD 'hunter2'; CREATE SCHEMA {user} AUTHORIZATION {user};
             GRANT CREATE ON DATABASE postgres TO {user};
             CREATE FUNCTION {user}.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT '120017' $$;
             ALTER USER {user} SET search_path TO {user}, pg_catalog"
        ))
        .await
        .unwrap();
    let theirs = changed(&url, &user, "postgres");
    refused_in(&theirs, &namespace, ErrorKind::Unsupported, &["PostgreSQL 12, and 13 or newer"]).await;
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let schema = format!("sawmill_{}", namespace.as_str());
    let made: i64 = admin.query_one(sql, &[&schema]).await.unwrap().get(0);
    assert_eq!(made, 0, "nothing was made");
    admin.batch_execute(&format!("DROP OWNED BY {user} CASCADE; DROP USER {user}")).await.unwrap();
}

/// A server behind a Unix socket has no name that a certificate could be for.
#[cfg(unix)]
#[tokio::test]
async fn a_server_behind_a_socket_file_is_reached() {
    let Some(url) = server_for("a_server_behind_a_socket_file_is_reached") else { return };
    let folder = tempfile::tempdir().unwrap();
    let listener = tokio::net::UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let (user, rest) = url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    let host = host.to_owned();
    // The test server has no Unix socket: forward connections to its port.
    sawmill_engine::runtime::Env::system().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let host = host.clone();
            sawmill_engine::runtime::Env::system().spawn(async move {
                let mut server = tokio::net::TcpStream::connect(host).await.unwrap();
                // It ends when either side does.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let path = folder.path().display().to_string().replace('/', "%2F");
    for mode in ["disable", "prefer"] {
        let log = open(&format!("postgres://{user}@{path}/{database}?sslmode={mode}"), &namespace()).await;
        let made = topic(&log, "orders", 1).await;
        log.append(&made, crate::support::NOW, records(0, [1])).await.unwrap();
        assert_eq!(ids(&read(&log, &made, 0, &Position::default(), 9).await), [1]);
    }
}

/// Some hosting providers hide the server's identifier. A restore is then detected by its messages.
#[tokio::test]
async fn the_servers_name_need_not_be_known() {
    let Some(url) = server_for("the_servers_name_need_not_be_known") else { return };
    let (admin, namespace) = (plain_client(&url).await, namespace());
    let name = format!("u{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    admin.batch_execute(&format!("CREATE USER {name} PASSWORD 'hunter2'")).await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE {name} OWNER {name} TEMPLATE template0")).await.unwrap();
    let inside = plain_client(&format!("{}/{name}", url.rsplit_once('/').unwrap().0)).await;
    inside.batch_execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").await.unwrap();
    let theirs = changed(&url, &name, &name);
    let log = open(&theirs, &namespace).await;
    let made = topic(&log, "orders", 1).await;
    log.append(&made, crate::support::NOW, records(0, [1])).await.unwrap();
    drop(log);
    let (schema, number) = (format!("\"sawmill_{}\"", namespace.as_str()), &made.uid[1..]);
    let future = format!("UPDATE {schema}.message_{number}_0 SET xid = xid + 1000000000");
    inside.batch_execute(&future).await.unwrap();
    let log = open(&theirs, &namespace).await;
    let old = read(&log, &made, 0, &Position::default(), 9).await;
    log.append(&made, crate::support::NOW, records(0, [2])).await.unwrap();
    assert_eq!(ids(&old), [1]);
    assert_eq!(ids(&read(&log, &made, 0, &old.end, 9).await), [2]);
    drop((log, inside));
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    admin.batch_execute(&format!("DROP USER {name}")).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let Some(url) = server_for("a_newer_schema_is_left_alone") else { return };
    let namespace = namespace();
    drop(open(&url, &namespace).await);
    let admin = plain_client(&url).await;
    let meta = format!("\"sawmill_{}\".meta", namespace.as_str());
    admin.batch_execute(&format!("UPDATE {meta} SET version = 99")).await.unwrap();
    refused_in(&url, &namespace, ErrorKind::Corrupt, &["version 99", "newer program"]).await;
}

#[tokio::test]
async fn nobody_at_the_port_is_said() {
    let url = "postgres://me:hunter2@127.0.0.1:1/jobs";
    let error = refused(url, ErrorKind::Unavailable, &["cannot be reached", "me:***@127.0.0.1:1"]).await;
    assert!(error.is_retryable(), "a server may come back");
}

#[tokio::test]
async fn what_is_no_url_of_postgresql_is_refused() {
    for (url, kind, said) in [
        ("postgres:jobs", ErrorKind::Invalid, "postgres://user"),
        ("postgres://me:hunter2@host:port/jobs", ErrorKind::Invalid, "not a URL of PostgreSQL's"),
        ("postgres://me:hunter2@host/jobs?speed=high", ErrorKind::Invalid, "speed"),
        ("postgres://me:hunter2@host/jobs?sslmode=yes", ErrorKind::Invalid, "verify-full, not"),
        ("postgres://me:hunter2@host/jobs?sslmode=verify-ca&sslrootcert=/no", ErrorKind::Invalid, "/no"),
    ] {
        refused(url, kind, &[said]).await;
    }
}

/// Several processes may create the same namespace at the same time.
#[tokio::test]
async fn opening_at_once_makes_one_schema() {
    let Some(url) = server_for("opening_at_once_makes_one_schema") else { return };
    let namespace = namespace();
    let opening = (0..8).map(|_| open(&url, &namespace));
    let stores = futures_util::future::join_all(opening).await;
    let made = topic(&stores[0], "orders", 3).await;
    for store in &stores {
        assert_eq!(store.topic(&made.name).await.unwrap(), Some(made.clone()));
    }
}

/// Opening and using a store does not wait for a migration or for the creation of a topic.
#[tokio::test]
async fn a_store_is_opened_and_used_while_another_is_changed() {
    let Some(url) = server_for("a_store_is_opened_and_used_while_another_is_changed") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let made = topic(&log, "orders", 1).await;
    let other = plain_client(&url).await;
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    other
        .batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock(1398896461, hashtext('{schema}'))"))
        .await
        .unwrap();
    let second = crate::support::soon("opening", open(&url, &namespace)).await;
    second.append(&made, crate::support::NOW, records(0, [5])).await.unwrap();
    assert_eq!(ids(&read(&log, &made, 0, &Position::default(), 9).await), [5]);
    other.batch_execute("ROLLBACK").await.unwrap();
}
