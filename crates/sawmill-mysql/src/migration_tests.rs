//! Two versions of the program on one database. The newer one knows an extra migration step.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use mysql_async::prelude::Queryable;
use sawmill::Sawmill;
use sawmill_conformance::upgrade::upgrade;
use sawmill_engine::ErrorKind;
use sawmill_engine::runtime::Env;

use crate::schema::{STEPS, Step, Tables};
use crate::{Mysql, schema_version};

use crate::support::{Database, NOW, database_for, default_namespace, record, soon, topic};

/// The migration steps plus one more.
fn newer() -> Vec<Step> {
    let step: Step = |tables| {
        let note = "ADD COLUMN IF NOT EXISTS note VARBINARY(64) NULL";
        let rank = "ADD COLUMN IF NOT EXISTS rank INT UNSIGNED NOT NULL DEFAULT 0";
        let extra = tables.entry.replace("entry", "extra");
        vec![
            format!("ALTER TABLE {} {note}", tables.message),
            format!("ALTER TABLE {} {rank}", tables.entry),
            format!("CREATE TABLE IF NOT EXISTS {extra} (id INT NOT NULL PRIMARY KEY)"),
        ]
    };
    [STEPS, &[step]].concat()
}

async fn open(database: &Database, steps: &[Step]) -> sawmill_engine::Result<Mysql> {
    Mysql::open_at(steps, &database.url().parse().unwrap(), &default_namespace()).await
}

fn mill(store: Mysql) -> Sawmill {
    let store = Arc::new(store);
    Sawmill::from_parts(store.clone(), store, Env::system())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g12_a_newer_program_migrates_while_an_older_one_works() {
    let Some(database) = database_for("g12_a_newer_program_migrates").await else { return };
    let older = mill(open(&database, STEPS).await.unwrap());
    // Two newer programs open the store at the same time; one of them migrates.
    let open_newer = async || {
        let (one, two) = join(open(&database, &newer()), open(&database, &newer())).await;
        drop(two.unwrap());
        mill(one.unwrap())
    };
    upgrade(&older, open_newer).await;

    let version = schema_version(&database.url(), &default_namespace()).await.unwrap();
    assert_eq!(version, Some(STEPS.len() as u32 + 1));
    let refused = open(&database, STEPS).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
}

/// A migration waits for every open transaction that has read the table, and all others would wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_has_to_wait_does_not_make_workers_wait() {
    let Some(database) = database_for("a_migration_that_has_to_wait").await else { return };
    let log: Arc<dyn sawmill_engine::storage::Log> = Arc::new(open(&database, STEPS).await.unwrap());
    let orders = topic(&*log, "orders", 1).await;
    let mut plain_connection = database.plain_connection().await;
    plain_connection.query_drop("START TRANSACTION").await.unwrap();
    let message = Tables::of(&default_namespace()).message;
    plain_connection.query_drop(format!("SELECT COUNT(*) FROM {message}")).await.unwrap();

    let others = async {
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND state LIKE '%metadata lock%'",
            database.name
        );
        let mut watcher = database.plain_connection().await;
        soon("that the migration waits", async {
            while watcher.query_first::<u64, _>(&waits).await.unwrap() == Some(0) {
                Env::system().sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let (env, began) = (Env::system(), Env::system().now());
        log.append(&orders, NOW, vec![record(0, "meanwhile")]).await.unwrap();
        let waited = env.now().since(began);
        assert!(waited < Duration::from_secs(10), "test timed out: a push within 10 s; it took {waited:?}");
        plain_connection.query_drop("ROLLBACK").await.unwrap();
    };
    let (migrated, ()) = soon("both", join(open(&database, &newer()), others)).await;
    migrated.unwrap();
}
