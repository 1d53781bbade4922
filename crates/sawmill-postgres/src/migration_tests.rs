//! Two versions of the program on one database. The newer one knows an extra migration step.

use std::sync::Arc;

use futures_util::future::join;
use sawmill::Sawmill;
use sawmill_conformance::upgrade::upgrade;
use sawmill_engine::ErrorKind;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::Namespace;

use crate::Postgres;
use crate::schema::STEPS;

#[path = "../tests/support/mod.rs"]
mod support;
use support::{NOW, namespace, plain_client, records, server_for, soon, topic};

/// The migration steps plus one more.
fn newer() -> Vec<&'static str> {
    let step = "ALTER TABLE entry ADD COLUMN rank int4 NOT NULL DEFAULT 0;
                ALTER TABLE topic ADD COLUMN note text;
                CREATE TABLE extra (id int4 PRIMARY KEY);";
    [STEPS, &[step]].concat()
}

async fn open(url: &str, namespace: &Namespace, steps: &[&str]) -> sawmill_engine::Result<Postgres> {
    Postgres::open_at(steps, &url.parse().unwrap(), namespace, 4).await
}

fn mill(store: Postgres) -> Sawmill {
    let store = Arc::new(store);
    Sawmill::from_parts(store.clone(), store, Env::system())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g12_a_newer_program_migrates_while_an_older_one_works() {
    let Some(url) = server_for("g12_a_newer_program_migrates") else { return };
    let namespace = namespace();
    let older = mill(open(&url, &namespace, STEPS).await.unwrap());
    // Two newer programs open the store at the same time; one of them migrates.
    let steps = newer();
    let open_newer = async || {
        let (one, two) = join(open(&url, &namespace, &steps), open(&url, &namespace, &steps)).await;
        drop(two.unwrap());
        mill(one.unwrap())
    };
    upgrade(&older, open_newer).await;

    let refused = open(&url, &namespace, STEPS).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
    open(&url, &namespace, &steps).await.unwrap();
}

/// A migration waits for every open transaction that has read the table, and all others would wait behind it.
/// So it gives up, and its error says that it may be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_has_to_wait_does_not_make_workers_wait() {
    use sawmill_engine::storage::Log;
    let Some(url) = server_for("a_migration_that_has_to_wait") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace, STEPS).await.unwrap();
    let orders = topic(&log, "orders", 1).await;
    let plain_client = plain_client(&url).await;
    let table = format!("\"sawmill_{}\".entry", namespace.as_str());
    plain_client.batch_execute(&format!("BEGIN; SELECT count(*) FROM {table}")).await.unwrap();
    let refused = soon("the end of the migration", open(&url, &namespace, &newer())).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    log.append(&orders, NOW, records(0, [5])).await.unwrap();
    plain_client.batch_execute("ROLLBACK").await.unwrap();
    open(&url, &namespace, &newer()).await.unwrap();
}

/// The tables of a topic have a version too: an older program must not create any after a migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_makes_no_tables_beside_newer_ones() {
    use sawmill_engine::model::TopicSpec;
    use sawmill_engine::storage::Log;
    let Some(url) = server_for("an_older_program_makes_no_tables_beside_newer_ones") else { return };
    let namespace = namespace();
    let older = open(&url, &namespace, STEPS).await.unwrap();
    let orders = topic(&older, "orders", 1).await;
    let newer = open(&url, &namespace, &newer()).await.unwrap();
    let more = TopicSpec::new("more".parse().unwrap());
    let refused = older.create_topic(&more).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
    assert_eq!(newer.topic(&more.name).await.unwrap(), None, "nothing is left of it");
    // Both programs find and use the existing tables.
    assert_eq!(
        older.create_topic(&TopicSpec { shards: 1, ..TopicSpec::new(orders.name.clone()) }).await.unwrap(),
        orders
    );
    older.append(&orders, NOW, records(0, [1])).await.unwrap();
    newer.append(&orders, NOW, records(0, [2])).await.unwrap();
    newer.create_topic(&more).await.unwrap();
    assert_eq!(older.backlog(&orders, &[(0, Default::default())]).await.unwrap().ready, [2]);
}

/// Tables from before `dropped` existed get it by migration, even if their server is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_without_a_note_of_what_was_dropped_get_one() {
    let Some(url) = server_for("tables_without_a_note_of_what_was_dropped_get_one") else { return };
    let namespace = namespace();
    drop(open(&url, &namespace, &STEPS[..3]).await.unwrap());
    let plain_client = plain_client(&url).await;
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    plain_client.batch_execute(&format!("UPDATE {schema}.meta SET server = ''")).await.unwrap();
    drop(open(&url, &namespace, STEPS).await.unwrap());
    let sql = format!(
        "SELECT newest, pg_snapshot_xmax(pg_current_snapshot())::text::int8, shift FROM {schema}.dropped, {schema}.meta"
    );
    let row = plain_client.query_one(&sql, &[]).await.unwrap();
    let (newest, now, shift): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert!((1..now).contains(&newest), "{newest} of {now}");
    assert_eq!(shift, 0, "they are not taken for another server's");
}
