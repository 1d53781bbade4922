//! Refusals say what is wrong and what to do.

use crate::support::{namespace, server_for, with_keyspace};
use sawmill::{Error, ErrorKind, Push};
use sawmill_cassandra::Cassandra;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::Namespace;
use sawmill_servers::{Kind, Server};
use scylla::client::session_builder::SessionBuilder;
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

/// The certificate of an authority, and one that it has signed for a node on this machine, with its key.
fn certificates() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let node_key = rcgen::KeyPair::generate().unwrap();
    let node = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let node = node.signed_by(&node_key, &authority, &key).unwrap();
    (authority.pem(), format!("{}{}{}", node_key.serialize_pem(), node.pem(), authority.pem()))
}

/// A server with users and rights, with and without encryption.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_their_rights_are_checked_and_the_way_can_be_encrypted() {
    const TEST: &str = "users_and_their_rights_are_checked_and_the_way_can_be_encrypted";
    let (authority, of_node) = certificates();
    let server = block_in_place(|| {
        let mut server = Server::start(Kind::Cassandra)?;
        server.stop()?;
        let settings =
            std::fs::read_to_string(server.folder().join("cassandra.yaml")).map_err(|e| e.to_string())?;
        let guarded = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n";
        let key = server.give_file("node.pem", &of_node)?;
        let encrypted = format!(
            "client_encryption_options:\n  enabled: true\n  optional: true\n  keystore: {}\n  ssl_context_factory:\n    \
             class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n",
            key.display()
        );
        server.give_file("cassandra.yaml", &format!("{settings}{guarded}{encrypted}"))?;
        server.restart()?;
        Ok::<_, String>(server)
    });
    let server = match server {
        Ok(server) => server,
        Err(why) => return sawmill_conformance::skipped(TEST, &why),
    };
    let place = format!("127.0.0.1:{}", server.port());
    // The server creates the first user some seconds after the start.
    let env = Env::system();
    let began = env.now();
    let session = loop {
        match SessionBuilder::new().known_node(&place).user("cassandra", "cassandra").build().await {
            Ok(session) => break session,
            Err(error) => {
                let waited = env.now().since(began);
                assert!(waited.as_secs() < 60, "test timed out: the first user is made: {error}");
            }
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
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        format!("?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", path.display())
    };
    let (ours, others) = (file("ours.pem", &authority), file("others.pem", &certificates().0));
    let safe = open("cassandra:cassandra@", &ours).await.unwrap();
    let clients = "SELECT ssl_enabled FROM system_views.clients";
    let clients = session.query_unpaged(clients, ()).await.unwrap().into_rows_result().unwrap();
    assert!(clients.rows::<(bool,)>().unwrap().any(|client| client.unwrap().0), "no client is encrypted");
    drop(safe);
    let error = open("cassandra:cassandra@", &others).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = open("me:secret@", "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("grant"), "{error}");
    session.query_unpaged("GRANT SELECT ON KEYSPACE jobs TO me", ()).await.unwrap();
    session.query_unpaged("GRANT MODIFY ON KEYSPACE jobs TO me", ()).await.unwrap();
    // The server caches rights for a while.
    let began = env.now();
    while let Err(error) = open("me:secret@", "").await {
        assert!(env.now().since(began).as_secs() < 60, "test timed out: new rights are known: {error}");
        env.sleep(std::time::Duration::from_millis(500)).await;
    }
    // A server that reports an unsupported version.
    let old = "UPDATE system.local SET release_version = '3.11.19' WHERE key = 'local'";
    session.query_unpaged(old, ()).await.unwrap();
    let error = open("me:secret@", "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("3.11.19"), "{error}");
}

/// A single node with the default settings, which acknowledges before it writes to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_a_node_that_may_forget() {
    let Some(url) = server_for("a_check_up_finds") else { return };
    let options = sawmill::Sawmill::options().engine(sawmill_cassandra::CassandraEngine);
    let mill = options.namespace(namespace().as_str()).open(&url).await.unwrap();
    let found = mill.admin().doctor(std::time::Duration::from_secs(5)).await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["durability"], "{found:?}");
    assert!(found[0].what.contains("commitlog_sync"), "{found:?}");
}
