//! Servers that will not do are refused by name. They are made to look older, or are given less room, than they have.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use sawmill::{ErrorKind, Sawmill};
use sawmill_mysql::MysqlEngine;
use sawmill_servers::{Kind, Server};

#[tokio::test]
async fn servers_that_will_not_do_are_refused() {
    let started = Server::start(Kind::Mariadb).map_err(|why| sawmill_conformance::skipped("unfit", &why));
    let Ok(mut server) = started else { return };
    for (setting, said) in [
        ("version=10.5.23-MariaDB", "at least MariaDB 10.6 is needed"),
        ("max-allowed-packet=1M", "max_allowed_packet is 1048576"),
    ] {
        server.give_file("my.cnf", &format!("[mariadbd]\n{setting}\n")).unwrap();
        server.stop().unwrap();
        server.restart().unwrap();
        let opened = Sawmill::options().engine(MysqlEngine).open(server.url()).await;
        let Err(error) = opened else { panic!("accepted with {setting}") };
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}
