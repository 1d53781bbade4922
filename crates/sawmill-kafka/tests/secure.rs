//! Authentication and encryption. Tests that need OpenSSL run with the feature `tls`.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use sawmill::{ErrorKind, Sawmill};
use sawmill_kafka::KafkaEngine;
use sawmill_servers::{KafkaExtras, Server};

const PLAIN: &str =
    "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=\"plain-secret\";";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required;";

/// Starts a broker with a listener for each login mechanism. Without a broker the test is reported as
/// skipped.
fn broker(test: &str, more: KafkaExtras) -> Option<Server> {
    let mut extras = more;
    extras.listeners.push(("LOGIN".into(), "SASL_PLAINTEXT".into()));
    extras.properties += &format!(
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
         listener.name.login.plain.sasl.jaas.config={PLAIN}\n\
         listener.name.login.scram-sha-256.sasl.jaas.config={SCRAM}\n\
         listener.name.login.scram-sha-512.sasl.jaas.config={SCRAM}\n"
    );
    extras.scram.push("SCRAM-SHA-256=[name=alice,password=scram-secret]".into());
    extras.scram.push("SCRAM-SHA-512=[name=alice,password=scram-secret]".into());
    Server::kafka(&extras).map_err(|why| sawmill_conformance::skipped(test, &why)).ok()
}

/// Opens a store and uses it.
async fn used(url: &str) -> sawmill::Result<()> {
    let mill = Sawmill::options().engine(KafkaEngine).open(url).await?;
    mill.create_topic("orders").await?;
    mill.push("orders", "hello").await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_asked_for() {
    let Some(server) = broker("a_password_is_asked_for", KafkaExtras::default()) else { return };
    let port = server.port_of("LOGIN").unwrap();
    used(&format!("kafka://alice:plain-secret@127.0.0.1:{port}")).await.unwrap();
    for login in ["alice:wrong-secret@", "bob:plain-secret@"] {
        let error = used(&format!("kafka://{login}127.0.0.1:{port}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains("password") && !error.to_string().contains("secret"), "{error}");
    }
    // A client without a login is refused too.
    let error = used(&format!("kafka://127.0.0.1:{port}")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unavailable), "{error:?}");
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn what_this_build_cannot_do_is_said() {
    for settings in ["tls=on", "sasl=scram-sha-512"] {
        let error = used(&format!("kafka://alice:secret@127.0.0.1:9?{settings}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(
            error.to_string().contains("feature `tls`") && !error.to_string().contains("secret"),
            "{error}"
        );
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_password_is_proved_without_being_sent() {
        let Some(server) = broker("a_password_is_proved_without_being_sent", KafkaExtras::default()) else {
            return;
        };
        let port = server.port_of("LOGIN").unwrap();
        for sasl in ["scram-sha-256", "scram-sha-512"] {
            used(&format!("kafka://alice:scram-secret@127.0.0.1:{port}?sasl={sasl}")).await.unwrap();
            let error =
                used(&format!("kafka://alice:wrong-secret@127.0.0.1:{port}?sasl={sasl}")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_way_is_encrypted_and_the_certificate_checked() {
        let folder = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two certificates with the same name would look like a self-signed one.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = params.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority, &authority_key).unwrap();
        let (ca, store) = (folder.path().join("ca.pem"), folder.path().join("store.pem"));
        fs::write(&ca, authority.pem()).unwrap();
        fs::write(&store, format!("{}{}", key.serialize_pem(), certificate.pem())).unwrap();
        // The broker runs as another user.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o644)).unwrap();
        let extras = KafkaExtras {
            listeners: vec![("SAFE".into(), "SSL".into())],
            properties: format!("ssl.keystore.type=PEM\nssl.keystore.location={}\n", store.display()),
            scram: Vec::new(),
        };
        let Some(server) = broker("the_way_is_encrypted_and_the_certificate_checked", extras) else { return };
        let port = server.port_of("SAFE").unwrap();
        used(&format!("kafka://127.0.0.1:{port}?tls=on&ca={}", ca.display())).await.unwrap();
        let error = used(&format!("kafka://127.0.0.1:{port}?tls=on")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}
