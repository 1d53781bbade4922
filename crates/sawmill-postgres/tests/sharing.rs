//! Sharing a database: two namespaces, and two versions of the program while one of them migrates the other's tables.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use sawmill::clock::{Clock, SystemClock};
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::log::Log;
use sawmill::{Context, ErrorKind, Sawmill, Worker};
use sawmill_postgres::{Postgres, PostgresEngine};
use support::{namespace, open, server_for, soon, stranger};

/// What a later version would add: to a table that all use, to every table of messages, and a table of its own.
const LATER: &str = "
    ALTER TABLE topic ADD COLUMN note text NOT NULL DEFAULT 'none';
    DO $$
    DECLARE name text;
    BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'message%' LOOP
            EXECUTE format('ALTER TABLE %I ADD COLUMN weight int4 NOT NULL DEFAULT 1', name);
        END LOOP;
    END $$;
    CREATE TABLE later (a int);
    -- A step that takes its time.
    SELECT pg_sleep(1);";

async fn mill(url: &str, namespace: &Namespace) -> Sawmill {
    let engine = PostgresEngine::default();
    Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
}

/// A worker that counts what it runs, by payload.
async fn worker(mill: &Sawmill, runs: &Arc<Mutex<Vec<String>>>) -> Worker {
    let runs = runs.clone();
    let handler = move |context: Context| {
        runs.lock().unwrap().push(String::from_utf8_lossy(context.payload()).into_owned());
        async {}
    };
    mill.worker("jobs").start(handler).await.unwrap()
}

/// The program of the later version.
struct Later;

#[async_trait::async_trait]
impl Engine for Later {
    fn name(&self) -> &'static str {
        "PostgreSQL, later"
    }

    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        PostgresEngine::default().capabilities()
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> sawmill::Result<Store> {
        let postgres = Postgres::open_later(url, namespace, 4, &[LATER]).await?;
        Ok(Store { log: Some(Arc::new(postgres.clone())), ledger: Some(Arc::new(postgres)) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_worker_goes_on_while_a_newer_program_migrates() {
    let Some(url) = server_for("an_old_worker_goes_on_while_a_newer_program_migrates") else { return };
    let namespace = namespace();
    let old = mill(&url, &namespace).await;
    old.create_topic("jobs").await.unwrap();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let old_worker = worker(&old, &runs).await;
    let (stop, pushed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let pushing = async {
        while !stop.load(Ordering::SeqCst) {
            let payload = format!("old {}", pushed.fetch_add(1, Ordering::SeqCst));
            old.push("jobs", payload).await.unwrap();
        }
    };
    let migrating = async {
        let new = Sawmill::options().engine(Later).namespace(namespace.as_str()).open(&url).await.unwrap();
        new.push("jobs", "new 0").await.unwrap();
        let new_worker = worker(&new, &runs).await;
        let (goal, before) = (50, pushed.load(Ordering::SeqCst));
        while pushed.load(Ordering::SeqCst) < before + goal {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
        stop.store(true, Ordering::SeqCst);
        (new, new_worker)
    };
    let (_, (new, new_worker)) = soon("both versions", join(pushing, migrating)).await;
    let all = pushed.load(Ordering::SeqCst) + 1;
    let done = async {
        while runs.lock().unwrap().len() < all {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    };
    soon("every message of both", done).await;
    let different: BTreeSet<String> = runs.lock().unwrap().iter().cloned().collect();
    assert_eq!((different.len(), runs.lock().unwrap().len()), (all, all), "each once");

    // An old program that comes now is sent away, and so is one that runs and would make tables of the old shape.
    let refused = Postgres::open(&url.parse().unwrap(), &namespace, 2).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("have version 2") && refused.to_string().contains("newer program"));
    let refused = old.create_topic("more").await.unwrap_err();
    assert!(refused.to_string().contains("newer program"), "{refused}");
    let store = Postgres::open_later(&url.parse().unwrap(), &namespace, 2, &[LATER]).await.unwrap();
    assert!(store.topic(&"more".parse().unwrap()).await.unwrap().is_none(), "nothing is left of it");

    // Neither has harmed anybody.
    old.push("jobs", "old again").await.unwrap();
    new.create_topic("more").await.unwrap();
    new.push("jobs", "new again").await.unwrap();
    soon("the old worker", old_worker.drained()).await;
    soon("the new worker", new_worker.drained()).await;
    assert_eq!(runs.lock().unwrap().len(), all + 2);
    old_worker.stop().await;
    new_worker.stop().await;
}

/// A migration that cannot get its locks gives up, and those who work are held up only for moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_cannot_get_its_locks_gives_up() {
    let Some(url) = server_for("a_migration_that_cannot_get_its_locks_gives_up") else { return };
    let namespace = namespace();
    let old = open(&url, &namespace).await;
    let made = support::topic(&old, "jobs", 1).await;
    let other = stranger(&url).await;
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    other.batch_execute(&format!("BEGIN; SELECT * FROM {schema}.topic")).await.unwrap();
    let stop = AtomicBool::new(false);
    let working = async {
        let (mut id, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::SeqCst) {
            let began = SystemClock.now();
            old.append(&made, support::NOW, support::records(0, [id])).await.unwrap();
            old.topics().await.unwrap();
            longest = longest.max(SystemClock.now().since(began));
            id += 1;
        }
        longest
    };
    let parsed = url.parse().unwrap();
    let migrating = async {
        let opened = Postgres::open_later(&parsed, &namespace, 2, &[LATER]).await;
        stop.store(true, Ordering::SeqCst);
        opened.err().unwrap()
    };
    let (longest, error) = soon("giving up", join(working, migrating)).await;
    assert!(error.may_pass(), "{error}");
    assert!(longest < Duration::from_secs(3), "somebody waited for {longest:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    Postgres::open_later(&parsed, &namespace, 2, &[LATER]).await.unwrap();
}

/// The same names in two namespaces: what one does, the other does not see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_namespaces_do_not_disturb_one_another() {
    let Some(url) = server_for("two_namespaces_do_not_disturb_one_another") else { return };
    let spaces = [namespace(), namespace()];
    let mut sides = Vec::new();
    for (nth, space) in spaces.iter().enumerate() {
        let mill = mill(&url, space).await;
        mill.create_topic("jobs").await.unwrap();
        let runs = Arc::new(Mutex::new(Vec::new()));
        let worker = worker(&mill, &runs).await;
        for n in 0..100 {
            mill.push("jobs", format!("{nth} {n}")).await.unwrap();
        }
        sides.push((mill, worker, runs));
    }
    // One is paused: the other goes on.
    sides[0].0.pause("jobs", "default").await.unwrap();
    sides[1].0.push("jobs", "1 100").await.unwrap();
    soon("the other", sides[1].1.drained()).await;
    sides[0].0.resume("jobs", "default").await.unwrap();
    soon("the one", sides[0].1.drained()).await;
    for (nth, (_, _, runs)) in sides.iter().enumerate() {
        let runs = runs.lock().unwrap();
        assert_eq!(runs.len(), 100 + nth, "each once");
        assert!(runs.iter().all(|payload| payload.starts_with(&nth.to_string())), "and its own");
    }
    // Removing the one's topic leaves the other's.
    let stores = [open(&url, &spaces[0]).await, open(&url, &spaces[1]).await];
    let topic = stores[0].topic(&"jobs".parse().unwrap()).await.unwrap().unwrap();
    assert!(stores[0].delete_topic(&topic).await.unwrap());
    assert!(stores[1].topic(&topic.name).await.unwrap().is_some());
    sides[1].0.push("jobs", "1 101").await.unwrap();
    soon("the other", sides[1].1.drained()).await;
    assert_eq!(sides[1].2.lock().unwrap().len(), 102);
    for (_, worker, _) in sides {
        worker.stop().await;
    }
}
