//! Tests of encryption: connections are encrypted and certificates verified as the URL says.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, KeyPair};
use sawmill::{Context, ErrorKind, Sawmill};
use sawmill_conformance::waits::in_time;
use sawmill_mysql::MysqlEngine;
use sawmill_servers::{Kind, Server};

/// A certificate authority.
struct Authority {
    key: KeyPair,
    certificate: Certificate,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    /// Returns a certificate for this name and its key in PEM format.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        (signed.pem(), key.serialize_pem())
    }
}

async fn open(url: &str) -> sawmill::Result<Sawmill> {
    Sawmill::options().engine(MysqlEngine).open(url).await
}

async fn refused(url: &str, kind: ErrorKind, said: &str) {
    let Err(error) = open(url).await else { panic!("{url} was opened, instead of refused with {said:?}") };
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(error.to_string().contains(said), "{url}: {error}");
    assert!(!error.to_string().contains(":sawmill@"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_the_server_is_as_secure_as_the_url_says() {
    let started = Server::start(Kind::Mariadb).map_err(|why| sawmill_conformance::skipped("tls", &why));
    let Ok(mut server) = started else { return };
    let plain = server.url().to_owned();
    refused(&format!("{plain}?ssl-mode=REQUIRED"), ErrorKind::Unsupported, "the server offers no encryption")
        .await;

    let (ours, theirs) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.sign("127.0.0.1");
    let certificate = server.give_file("server.pem", &certificate).unwrap();
    let key = server.give_file("server.key", &key).unwrap();
    let settings = format!("[mariadbd]\nssl-cert={}\nssl-key={}\n", certificate.display(), key.display());
    server.give_file("my.cnf", &settings).unwrap();
    in_time(server.stop());
    in_time(server.restart());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, authority: &Authority| {
        let path = folder.path().join(name);
        std::fs::write(&path, authority.certificate.pem()).unwrap();
        path.display().to_string()
    };
    let (ours, theirs) = (file("ours.pem", &ours), file("theirs.pem", &theirs));

    // The server accepts this user only over encrypted connections.
    let opts = OptsBuilder::from_opts(Opts::from_url(&plain).unwrap()).prefer_socket(false);
    let mut admin = Conn::new(opts).await.unwrap();
    admin.query_drop("CREATE USER shy@'%' IDENTIFIED BY 'sawmill' REQUIRE SSL").await.unwrap();
    admin.query_drop("GRANT ALL ON sawmill.* TO shy@'%'").await.unwrap();
    let url = plain.replace("//sawmill:", "//shy:");
    refused(&url, ErrorKind::Invalid, "the user or the password").await;
    refused(&format!("{url}?ssl-mode=DISABLED"), ErrorKind::Invalid, "the user or the password").await;

    open(&format!("{url}?ssl-mode=REQUIRED")).await.unwrap();
    let verified = format!("{url}?ssl-mode=VERIFY_IDENTITY&ssl-ca={ours}");
    let mill = open(&verified).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    let worker = mill.worker("orders").start(|_: Context| async {}).await.unwrap();
    mill.push_many("orders", vec!["x".repeat(100_000); 20]).await.unwrap();
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 20);

    let certificate = "the server's certificate is refused";
    refused(&verified.replace(&ours, &theirs), ErrorKind::Invalid, certificate).await;
    // Without a file the public authorities are used, which did not sign this certificate.
    refused(&format!("{url}?ssl-mode=VERIFY_IDENTITY"), ErrorKind::Invalid, certificate).await;
    refused(&verified.replace("127.0.0.1", "localhost"), ErrorKind::Invalid, certificate).await;
}
