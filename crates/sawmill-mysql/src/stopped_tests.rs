//! A client that stops in the middle of a push.

use std::collections::BTreeSet;

use mysql_async::prelude::Queryable;
use sawmill_engine::storage::Log;

use crate::Mysql;
use crate::log::counter::HeldCounters;

use crate::support::{NOW, database_for, default_namespace, record, soon, topic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_long_for_who_is_stopped_in_the_middle_of_a_push() {
    let Some(database) = database_for("nobody_waits_long_for_who_is_stopped").await else { return };
    let store = Mysql::open(&database.url().parse().unwrap(), &default_namespace()).await.unwrap();
    let orders = topic(&store, "orders", 1).await;
    let version: String =
        database.plain_connection().await.query_first("SELECT VERSION()").await.unwrap().unwrap();
    if !version.contains("MariaDB") {
        sawmill_conformance::skipped("nobody_waits_long_for_who_is_stopped", "MySQL has no limit for that");
        return;
    }
    let mut stopped = store.connection().await.unwrap();
    let counter = BTreeSet::from([0]);
    HeldCounters::take(&mut stopped, store.tables(), &orders, &counter).await.unwrap();
    soon("a push", store.append(&orders, NOW, vec![record(0, "a")])).await.unwrap();
    let late = HeldCounters::take(&mut stopped, store.tables(), &orders, &counter).await;
    assert!(late.is_err(), "its transaction is over");
}
