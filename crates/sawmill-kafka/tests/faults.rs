//! A broker is restarted and killed under load: no acknowledged message is lost, and workers resume by
//! themselves.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::time::Duration;

use sawmill::Sawmill;
use sawmill_conformance::trial::{Trial, Worst};
use sawmill_conformance::waits::in_time;
use sawmill_kafka::KafkaEngine;
use sawmill_servers::{Kind, Server};
use tokio::task::block_in_place;

/// Longer than the broker is away: no worker should be declared dead.
const TTL: Duration = Duration::from_secs(90);

async fn survive(from: &str, worst: Worst, harm: impl Fn(&mut Server) -> Result<(), String>) {
    let server = Server::start(Kind::Kafka).map_err(|why| sawmill_conformance::skipped(from, &why));
    let Ok(mut server) = server else { return };
    let url = server.url().to_owned();
    let open = async || Sawmill::options().engine(KafkaEngine).open(&url).await.unwrap();
    let mut trial = Trial::start(open, TTL).await;
    for _ in 0..2 {
        trial.runs(200).await;
        in_time(block_in_place(|| harm(&mut server).and_then(|()| server.restart())));
        trial.recovers(from).await;
    }
    trial.end(worst).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_restarted() {
    survive("a broker that was restarted", Worst::Once, Server::stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_killed() {
    survive("a broker that was killed", Worst::Again, Server::kill).await;
}
