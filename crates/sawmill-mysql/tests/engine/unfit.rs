//! Tests that unsuitable servers are refused: a server that reports an old version, and one with small
//! packets.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use sawmill::{ErrorKind, Sawmill};
use sawmill_conformance::waits::in_time;
use sawmill_mysql::MysqlEngine;
use sawmill_servers::{Kind, Server};

async fn refused(url: &str, said: &str) {
    let opened = Sawmill::options().engine(MysqlEngine).open(url).await;
    let Err(error) = opened else { panic!("accepted, instead of refused with {said:?}") };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(said), "{error}");
}

#[tokio::test]
async fn servers_that_will_not_do_are_refused() {
    let started = Server::start(Kind::Mariadb).map_err(|why| sawmill_conformance::skipped("unfit", &why));
    let Ok(mut server) = started else { return };
    server.give_file("my.cnf", "[mariadbd]\nversion=10.5.23-MariaDB\n").unwrap();
    in_time(server.stop());
    in_time(server.restart());
    refused(server.url(), "at least MariaDB 10.6 is needed").await;

    server.give_file("my.cnf", "[mariadbd]\n").unwrap();
    in_time(server.stop());
    in_time(server.restart());
    let opts = OptsBuilder::from_opts(Opts::from_url(server.url()).unwrap()).prefer_socket(false);
    let mut admin = Conn::new(opts).await.unwrap();
    admin.query_drop("SET GLOBAL max_allowed_packet = 1048576").await.unwrap();
    refused(server.url(), "max_allowed_packet is 1048576").await;
}
