//! Tests of encryption, with certificates created by the test.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::support::{NOW, ids, namespace, plain_client, read, records, topic};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use sawmill::ErrorKind;
use sawmill_conformance::waits::in_time;
use sawmill_engine::storage::{Log, Position};
use sawmill_postgres::Postgres;
use sawmill_servers::{Kind, Server};
use tokio::task::block_in_place;

/// A certificate authority.
struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    /// Returns a certificate for this host, and its key.
    fn sign(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn write_to(&self, folder: &Path, name: &str) -> String {
        let path = folder.join(name);
        fs::write(&path, self.certificate.pem()).unwrap();
        path.display().to_string()
    }
}

/// Opens and uses a store. Returns whether its connections are encrypted.
async fn is_encrypted(url: &str, admin: &str) -> Result<bool, sawmill::Error> {
    let name = format!("t{:016x}", sawmill_engine::runtime::Env::system().rng().next_u64());
    let url = format!("{url}&application_name={name}").parse().unwrap();
    let log = Postgres::open(&url, &namespace(), 2).await?;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, NOW, records(0, 0..100)).await.unwrap();
    assert_eq!(ids(&read(&log, &topic, 0, &Position::default(), 200).await).len(), 100);
    let sql = "SELECT bool_and(ssl), bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
               WHERE application_name = $1";
    let row = plain_client(admin).await.query_one(sql, &[&name]).await.unwrap();
    let (all, any): (bool, bool) = (row.get(0), row.get(1));
    assert_eq!(all, any, "all its connections are alike");
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_the_server_is_as_safe_as_was_wished() {
    let mut server = match Server::start(Kind::Postgres) {
        Ok(server) => server,
        Err(why) => {
            return sawmill_conformance::skipped("the_way_to_the_server_is_as_safe_as_was_wished", &why);
        }
    };
    let plain = server.url().to_owned();
    let here = |settings: &str| format!("{plain}?{settings}");
    let refused = async |url: String, said: &str| {
        let error = is_encrypted(&url, &plain).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        assert!(error.to_string().contains(said), "{url}: {error}");
    };

    // A server without encryption.
    for mode in ["disable", "prefer"] {
        assert!(!is_encrypted(&here(&format!("sslmode={mode}")), &plain).await.unwrap(), "{mode}");
    }
    for mode in ["require", "verify-full"] {
        refused(here(&format!("sslmode={mode}")), "does not encrypt").await;
    }

    // A server with a certificate for `localhost`.
    let (authority, other_authority) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.sign("localhost");
    let certificate = server.give_file("server.crt", &certificate).unwrap();
    let key = server.give_file("server.key", &key).unwrap();
    let settings = server.folder().join("data/postgresql.conf");
    let mut file = fs::OpenOptions::new().append(true).open(settings).unwrap();
    let (certificate, key) = (certificate.display(), key.display());
    writeln!(file, "ssl = on\nssl_cert_file = '{certificate}'\nssl_key_file = '{key}'").unwrap();
    in_time(block_in_place(|| server.stop().and_then(|()| server.restart())));
    let right = authority.write_to(server.folder(), "right.pem");
    let wrong = other_authority.write_to(server.folder(), "wrong.pem");
    let named = |settings: &str| here(settings).replace("127.0.0.1", "localhost");

    assert!(!is_encrypted(&here("sslmode=disable"), &plain).await.unwrap());
    for settings in [
        "connect_timeout=10".to_owned(),
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        format!("sslmode=require&sslrootcert={right}"),
        format!("sslmode=verify-ca&sslrootcert={right}"),
    ] {
        assert!(is_encrypted(&here(&settings), &plain).await.unwrap(), "{settings}");
    }
    // An IP address works as a name too.
    let (head, port) = plain.rsplit_once('/').unwrap().0.rsplit_once(':').unwrap();
    let user = head.rsplit_once('@').unwrap().0;
    let address = format!("{user}@/postgres?hostaddr=127.0.0.1&port={port}");
    assert!(is_encrypted(&format!("{address}&sslmode=prefer"), &plain).await.unwrap());
    assert!(!is_encrypted(&format!("{address}&sslmode=disable"), &plain).await.unwrap());
    let full = format!("sslmode=verify-full&sslrootcert={right}");
    assert!(is_encrypted(&named(&full), &plain).await.unwrap());
    refused(here(&full), "certificate").await;
    for settings in [
        format!("sslmode=require&sslrootcert={wrong}"),
        format!("sslmode=verify-ca&sslrootcert={wrong}"),
        format!("sslmode=verify-full&sslrootcert={wrong}"),
        "sslmode=verify-full&sslrootcert=system".to_owned(),
        "sslmode=verify-full".to_owned(),
    ] {
        refused(named(&settings), "certificate").await;
    }
}
