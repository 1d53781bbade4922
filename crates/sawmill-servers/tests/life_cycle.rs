//! Starts, stops, kills and restarts each server on the same port, and checks that dropping it removes it.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::net::TcpStream;
use std::panic::catch_unwind;

use sawmill_conformance::waits::in_time;
use sawmill_servers::{KafkaExtras, Kind, Server, TOO_SLOW};

/// The suite recognises a server that is too slow by the text of the error, and does not skip the test.
#[test]
fn a_server_that_is_too_slow_is_a_wait_that_has_expired() {
    let said = catch_unwind(|| sawmill_conformance::skipped("a test", &format!("{TOO_SLOW}it sleeps")));
    let said = said.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*said, format!("test timed out: {TOO_SLOW}it sleeps"));
}

/// A server that cannot be had is a visible skip on a laptop and a failure in CI.
fn or_skip(started: Result<Server, String>, what: &str) -> Option<Server> {
    started.map_err(|why| sawmill_conformance::skipped(what, &why)).ok()
}

fn listens(server: &Server) -> bool {
    TcpStream::connect(("127.0.0.1", server.port())).is_ok()
}

fn life_cycle(mut server: Server) {
    let (port, url, folder) = (server.port(), server.url().to_owned(), server.folder().to_owned());
    assert!(listens(&server));
    in_time(server.stop());
    assert!(!listens(&server), "it is stopped");
    in_time(server.restart());
    assert!(listens(&server), "it is back");
    in_time(server.kill());
    assert!(!listens(&server), "it is killed");
    in_time(server.restart());
    assert!(listens(&server), "it is back");
    assert_eq!((server.port(), server.url()), (port, &*url));
    drop(server);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it is gone");
    assert!(!folder.exists());
}

#[test]
fn postgresql() {
    if let Some(server) = or_skip(Server::start(Kind::Postgres), "postgresql") {
        life_cycle(server);
    }
}

#[test]
fn postgresql_18() {
    if let Some(server) = or_skip(Server::start(Kind::Postgres18), "postgresql_18") {
        life_cycle(server);
    }
}

#[test]
fn mariadb() {
    if let Some(server) = or_skip(Server::start(Kind::Mariadb), "mariadb") {
        life_cycle(server);
    }
}

#[test]
fn pgbouncer() {
    let Some(behind) = or_skip(Server::start(Kind::Postgres), "pgbouncer") else { return };
    if let Some(server) = or_skip(Server::pgbouncer(behind.port()), "pgbouncer") {
        life_cycle(server);
    }
}

#[test]
fn zookeeper() {
    if let Some(server) = or_skip(Server::start(Kind::Zookeeper), "zookeeper") {
        assert_eq!(server.url(), format!("zookeeper://127.0.0.1:{}", server.port()));
        life_cycle(server);
    }
}

#[test]
fn kafka() {
    if let Some(server) = or_skip(Server::start(Kind::Kafka), "kafka") {
        assert_eq!(server.url(), format!("kafka://127.0.0.1:{}", server.port()));
        life_cycle(server);
    }
}

#[test]
fn kafka_with_passwords() {
    let user = "SCRAM-SHA-256=[name=alice,password=secret]";
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_bob=\"secret\";";
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let extras = KafkaExtras {
        listeners: vec![("PASSWORDS".to_owned(), "SASL_PLAINTEXT".to_owned())],
        properties: format!(
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n\
             listener.name.passwords.plain.sasl.jaas.config={plain}\n\
             listener.name.passwords.scram-sha-256.sasl.jaas.config={scram}\n"
        ),
        scram: vec![user.to_owned()],
    };
    if let Some(server) = or_skip(Server::kafka(&extras), "kafka_with_passwords") {
        let port = server.port_of("PASSWORDS").unwrap();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert_eq!(server.port_of("OTHER"), None);
        life_cycle(server);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it is gone");
    }
}

#[test]
fn cassandra() {
    if let Some(server) = or_skip(Server::start(Kind::Cassandra), "cassandra") {
        assert_eq!(server.url(), format!("cassandra://127.0.0.1:{}/sawmill?replication=1", server.port()));
        life_cycle(server);
    }
}
