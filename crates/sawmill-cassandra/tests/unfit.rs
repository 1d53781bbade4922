//! What cannot work is refused with words that say what to do.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use sawmill::engine::Namespace;
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Push};
use sawmill_cassandra::Cassandra;
use sawmill_servers::{Kind, Server};
use scylla::client::session_builder::SessionBuilder;
use support::{namespace, server_for, with_keyspace};
use tokio::task::block_in_place;

async fn refused(url: &str) -> Error {
    Cassandra::open(&url.parse().unwrap(), &Namespace::default()).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_that_is_missing_is_named() {
    let Some(url) = server_for("a_keyspace_that_is_missing_is_named") else { return };
    let url = with_keyspace(&url, "nowhere");
    let error = refused(url.split('?').next().unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let said = error.to_string();
    assert!(said.contains("keyspace nowhere does not exist") && said.contains("replication=3"), "{said}");
    let error = refused(&format!("{}?replication=elsewhere:3", url.split('?').next().unwrap())).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_there_is_named() {
    let error = refused("cassandra://127.0.0.1:1/jobs").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_taken() {
    let Some(url) = server_for("a_payload_over_the_limit") else { return };
    let options = sawmill::Sawmill::options().engine(sawmill_cassandra::CassandraEngine);
    let mill = options.namespace(namespace().as_str()).open(&url).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    let error = mill.push("orders", Push::new(vec![7; (4 << 20) + 1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("4194304"), "{error}");
    mill.push("orders", Push::new(vec![7; 4 << 20])).await.unwrap();
}

/// A server that asks who is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_their_rights_are_checked() {
    const TEST: &str = "users_and_their_rights_are_checked";
    let server = block_in_place(|| {
        let mut server = Server::start(Kind::Cassandra)?;
        server.stop()?;
        let settings =
            std::fs::read_to_string(server.folder().join("cassandra.yaml")).map_err(|e| e.to_string())?;
        let guarded = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n";
        server.give_file("cassandra.yaml", &format!("{settings}{guarded}"))?;
        server.restart()?;
        Ok::<_, String>(server)
    });
    let server = match server {
        Ok(server) => server,
        Err(why) => return sawmill_conformance::skipped(TEST, &why),
    };
    let place = format!("127.0.0.1:{}", server.port());
    // The first user is made some seconds after the start.
    let env = Env::system();
    let began = env.now();
    let session = loop {
        match SessionBuilder::new().known_node(&place).user("cassandra", "cassandra").build().await {
            Ok(session) => break session,
            Err(error) => assert!(env.now().since(began).as_secs() < 60, "{error}"),
        }
        env.sleep(std::time::Duration::from_millis(500)).await;
    };
    let url = |login: &str, settings: &str| format!("cassandra://{login}{place}/jobs{settings}");
    for login in ["", "cassandra:wrong-password@", "nobody:cassandra@"] {
        let error = refused(&url(login, "")).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{login}: {error}");
        assert!(error.to_string().contains("password"), "{error}");
        assert!(!error.to_string().contains("wrong-password"), "{error}");
    }
    session.query_unpaged("CREATE ROLE me WITH PASSWORD = 'secret' AND LOGIN = true", ()).await.unwrap();
    for settings in ["?replication=1", ""] {
        let error = refused(&url("me:secret@", settings)).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{settings}: {error}");
        let said = error.to_string();
        assert!(said.contains("may not") || said.contains("does not exist"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
    let open = |login: &'static str, settings: &str| {
        let url = url(login, settings).parse().unwrap();
        async move { Cassandra::open(&url, &Namespace::default()).await }
    };
    open("cassandra:cassandra@", "?replication=1").await.unwrap();
    let error = open("me:secret@", "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("grant"), "{error}");
    session.query_unpaged("GRANT SELECT ON KEYSPACE jobs TO me", ()).await.unwrap();
    session.query_unpaged("GRANT MODIFY ON KEYSPACE jobs TO me", ()).await.unwrap();
    // Rights are remembered by the server for a while.
    let began = env.now();
    while let Err(error) = open("me:secret@", "").await {
        assert!(env.now().since(began).as_secs() < 30, "{error}");
        env.sleep(std::time::Duration::from_millis(500)).await;
    }
}
