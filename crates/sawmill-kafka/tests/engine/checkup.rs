//! The findings of a check-up on a broker.

use std::time::Duration;

use crate::support::{random, server_for};
use sawmill::Sawmill;
use sawmill_kafka::KafkaEngine;

/// The test broker is alone, which the check-up must report.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_topics_that_one_broker_alone_has() {
    let Some(url) = server_for("a_check_up_finds_topics_that_one_broker_alone_has") else { return };
    let (topic, claims) = (format!("orders-{:016x}", random()), format!("claims-{:016x}", random()));
    let options = Sawmill::options().engine(KafkaEngine);
    let mill = options.open(&format!("{url}?coordination={claims}")).await.unwrap();
    let found = async || {
        let found = mill.admin().doctor(Duration::from_secs(5)).await.unwrap();
        assert_eq!(
            found.iter().map(|finding| finding.check).collect::<Vec<_>>(),
            ["durability"],
            "{found:?}"
        );
        found[0].what.clone()
    };
    let what = found().await;
    assert!(what.contains("one broker alone") && what.ends_with(&format!(": {claims}")), "{what}");
    mill.create_topic(&topic).await.unwrap();
    let what = found().await;
    assert!(what.ends_with(&format!(": {claims}, {topic}")), "{what}");
    mill.admin().delete_topic(&topic).await.unwrap();
    let what = found().await;
    assert!(what.ends_with(&format!(": {claims}")), "{what}");
}

/// In another namespace, the coordination topic has a derived name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_the_coordination_topic_of_a_namespace() {
    let Some(url) = server_for("a_check_up_finds_the_coordination_topic_of_a_namespace") else { return };
    let namespace = format!("n{:016x}", random());
    let options = Sawmill::options().engine(KafkaEngine).namespace(&namespace);
    let mill = options.open(&url).await.unwrap();
    let found = mill.admin().doctor(Duration::from_secs(5)).await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["durability"], "{found:?}");
    assert!(found[0].what.ends_with(&format!(": sawmill.{namespace}.coordination")), "{found:?}");
}
