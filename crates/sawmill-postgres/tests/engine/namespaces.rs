//! Tests of two namespaces in one database.

use std::sync::{Arc, Mutex};

use crate::support::{namespace, open, server_for, soon};
use sawmill::{Context, Sawmill, Worker};
use sawmill_engine::storage::{Log, Namespace};
use sawmill_postgres::PostgresEngine;

async fn mill(url: &str, namespace: &Namespace) -> Sawmill {
    let engine = PostgresEngine::default();
    Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
}

/// A worker that records the payloads it runs.
async fn worker(mill: &Sawmill, runs: &Arc<Mutex<Vec<String>>>) -> Worker {
    let runs = runs.clone();
    let handler = move |context: Context| {
        runs.lock().unwrap().push(String::from_utf8_lossy(context.payload()).into_owned());
        async {}
    };
    mill.worker("jobs").start(handler).await.unwrap()
}

/// Two namespaces with the same names do not see each other.
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
    // Pausing one does not pause the other.
    sides[0].0.admin().pause("jobs", "default").await.unwrap();
    sides[1].0.push("jobs", "1 100").await.unwrap();
    soon("the other", sides[1].1.drained()).await;
    sides[0].0.admin().resume("jobs", "default").await.unwrap();
    soon("the one", sides[0].1.drained()).await;
    for (nth, (_, _, runs)) in sides.iter().enumerate() {
        let runs = runs.lock().unwrap();
        assert_eq!(runs.len(), 100 + nth, "each once");
        assert!(runs.iter().all(|payload| payload.starts_with(&nth.to_string())), "and its own");
    }
    // Deleting a topic in one leaves the other's.
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
