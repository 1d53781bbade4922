//! Tests of operation: the engine creates its own tables, and its load on the server is bounded.

use std::time::Duration;

use crate::support::{NOW, ids, namespace, open, plain_client, read, records, server_for, soon, topic};
use sawmill::Sawmill;
use sawmill_conformance::load::load;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Log, Position};
use sawmill_postgres::PostgresEngine;

/// The columns of all tables of a schema.
async fn shape(url: &str, schema: &str) -> Vec<String> {
    let sql = "SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
               WHERE table_schema = $1 ORDER BY 1";
    let rows = plain_client(url).await.query(sql, &[&schema]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn g12_the_schema_is_made_by_the_library_and_found_again() {
    let Some(url) = server_for("g12_the_schema_is_made") else { return };
    let namespace = namespace();
    let schema = format!("sawmill_{}", namespace.as_str());
    assert!(shape(&url, &schema).await.is_empty());
    let log = open(&url, &namespace).await;
    let made = topic(&log, "orders", 1).await;
    log.append(&made, NOW, records(0, [7])).await.unwrap();
    let first = shape(&url, &schema).await;
    assert!(first.iter().any(|column| column.starts_with("meta version")), "{first:?}");

    let again = open(&url, &namespace).await;
    assert_eq!(shape(&url, &schema).await, first, "nothing is made twice");
    assert_eq!(ids(&read(&again, &made, 0, &Position::default(), 9).await), [7]);
}

/// The server counts transactions of a database that nobody else uses. Sessions report theirs at the latest
/// when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_load_on_the_database_is_bounded() {
    let Some(server) = server_for("g20_the_load_on_the_database") else { return };
    let name = format!("load_{:016x}", Env::system().rng().next_u64());
    let admin = plain_client(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let asked = async || {
        let sql = "SELECT numbackends, xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1";
        let ended = async {
            loop {
                let row = admin.query_one(sql, &[&name]).await.unwrap();
                if row.get::<_, i32>(0) == 0 {
                    return row.get::<_, i64>(1) as u64;
                }
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        soon("the end of all sessions", ended).await
    };
    let open = async || Sawmill::options().engine(PostgresEngine::default()).open(&url).await.unwrap();
    let load = load(open, asked).await;
    eprintln!("{load:?}, in transactions");
    // A busy machine takes longer, and periodic queries go on meanwhile.
    assert!(load.per_message <= 0.05 || load.busy_per_second <= 100.0, "{load:?}");
    // Includes the autovacuum of new tables.
    assert!(load.idle_per_second <= 25.0, "{load:?}");
    admin.batch_execute(&format!("DROP DATABASE {name}")).await.unwrap();
}

/// A user's database in which one problem after another is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_each_planted_problem_and_is_silent_otherwise() {
    // Longer than any transaction lasts on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(3);
    let Some(server) = server_for("a_check_up_finds") else { return };
    let name = format!("checked_{:016x}", Env::system().rng().next_u64());
    let admin = plain_client(&server).await;
    admin.batch_execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'")).await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE {name} OWNER {name} TEMPLATE template0")).await.unwrap();
    let host = server.rsplit_once('@').unwrap().1.rsplit_once('/').unwrap().0;
    let url = format!("postgres://{name}:secret@{host}/{name}");
    let found = async || {
        let mill = sawmill::Sawmill::open(&url).await.unwrap();
        let found = mill.admin().doctor(PATIENCE).await.unwrap();
        found
            .iter()
            .for_each(|finding| eprintln!("{}: {} ({})", finding.check, finding.what, finding.what_to_do));
        assert!(found.iter().all(|finding| !finding.what.contains("secret")));
        found.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    let mill = sawmill::Sawmill::open(&url).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    mill.push("orders", "x").await.unwrap();
    drop(mill);
    assert!(found().await.is_empty());

    admin.batch_execute(&format!("ALTER ROLE {name} SET synchronous_commit = off")).await.unwrap();
    assert_eq!(found().await, ["durability"]);
    admin.batch_execute(&format!("ALTER ROLE {name} RESET ALL")).await.unwrap();

    let forgetful = plain_client(&url).await;
    forgetful.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    Env::system().sleep(PATIENCE + Duration::from_millis(500)).await;
    assert_eq!(found().await, ["held-transaction"]);
    forgetful.batch_execute("COMMIT").await.unwrap();
    assert!(found().await.is_empty());

    // A clock that is an hour ahead. The server's own clock is that of this machine.
    let ahead =
        "CREATE SCHEMA skewed; CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql
                 AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$";
    forgetful.batch_execute(ahead).await.unwrap();
    admin.batch_execute(&format!("ALTER ROLE {name} SET search_path = skewed, pg_catalog")).await.unwrap();
    assert_eq!(found().await, ["clock-skew"]);
    admin.batch_execute(&format!("ALTER ROLE {name} RESET ALL")).await.unwrap();
    assert!(found().await.is_empty());

    forgetful.batch_execute(&format!("REVOKE INSERT ON sawmill.entry FROM {name}")).await.unwrap();
    assert_eq!(found().await, ["rights"]);
    forgetful.batch_execute(&format!("GRANT INSERT ON sawmill.entry TO {name}")).await.unwrap();
    assert!(found().await.is_empty());

    // The listening connection is terminated, and no new one can be made.
    let mill = sawmill::Sawmill::open(&url).await.unwrap();
    assert_eq!(mill.admin().doctor(PATIENCE).await.unwrap(), []);
    admin.batch_execute(&format!("ALTER ROLE {name} CONNECTION LIMIT 0")).await.unwrap();
    let cut = format!(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{name}' AND query LIKE 'LISTEN%'"
    );
    admin.batch_execute(&cut).await.unwrap();
    let found = mill.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["no-hints"], "{found:?}");
}

/// The server hides from an ordinary user when another role's transaction began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_up_finds_transactions_of_others_that_it_may_not_see() {
    // Longer than any transaction lasts on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(3);
    let Some(server) = server_for("a_check_up_finds_transactions_of_others") else { return };
    let name = format!("hidden_{:016x}", Env::system().rng().next_u64());
    let admin = plain_client(&server).await;
    for role in [name.clone(), format!("{name}_other")] {
        admin.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'")).await.unwrap();
    }
    admin.batch_execute(&format!("CREATE DATABASE {name} OWNER {name} TEMPLATE template0")).await.unwrap();
    let host = server.rsplit_once('@').unwrap().1.rsplit_once('/').unwrap().0;
    let other = plain_client(&format!("postgres://{name}_other:secret@{host}/{name}")).await;
    let mill = sawmill::Sawmill::open(&format!("postgres://{name}:secret@{host}/{name}")).await.unwrap();
    let found = async || {
        let found = mill.admin().doctor(PATIENCE).await.unwrap();
        found.iter().for_each(|finding| eprintln!("{}: {}", finding.check, finding.what));
        found
    };
    assert!(found().await.is_empty(), "who is connected holds nothing");

    // Consecutive short transactions hold nothing.
    let busy = async {
        loop {
            other.batch_execute("BEGIN; SELECT pg_sleep(0.05); COMMIT").await.unwrap();
        }
    };
    tokio::select! {
        found = found() => assert!(found.is_empty(), "{found:?}"),
        () = busy => unreachable!("it never ends"),
    }
    // Wait for the end of the last one.
    other.batch_execute("SELECT 1").await.unwrap();

    other.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let hidden = found().await;
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    assert_eq!(hidden[0].check, "held-transaction");
    assert!(hidden[0].what.contains(&format!("{name}_other")) && hidden[0].what.contains("3 s or longer"));
    admin.batch_execute(&format!("GRANT pg_read_all_stats TO {name}")).await.unwrap();
    let seen = found().await;
    assert!(
        seen.len() == 1 && seen[0].what.contains(" since "),
        "with the right it is seen at once: {seen:?}"
    );
    other.batch_execute("COMMIT").await.unwrap();
    assert!(found().await.is_empty());
}
