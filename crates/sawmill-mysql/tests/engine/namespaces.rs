//! Tests of two namespaces in one database.

use std::sync::{Arc, Mutex};

use crate::support::{Database, database_for, soon};
use sawmill::{Context, Sawmill, Worker};
use sawmill_mysql::MysqlEngine;

async fn mill(database: &Database, namespace: &str) -> Sawmill {
    Sawmill::options().engine(MysqlEngine).namespace(namespace).open(&database.url()).await.unwrap()
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
    let Some(database) = database_for("two_namespaces_do_not_disturb_one_another").await else { return };
    let spaces = ["one", "two"];
    let mut sides = Vec::new();
    for (nth, space) in spaces.iter().enumerate() {
        let mill = mill(&database, space).await;
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
    let mut logs = Vec::new();
    for space in spaces {
        logs.push(database.open(space).await.unwrap().log.unwrap());
    }
    let topic = logs[0].topic(&"jobs".parse().unwrap()).await.unwrap().unwrap();
    assert!(logs[0].delete_topic(&topic).await.unwrap());
    assert!(logs[1].topic(&topic.name).await.unwrap().is_some());
    sides[1].0.push("jobs", "1 101").await.unwrap();
    soon("the other", sides[1].1.drained()).await;
    assert_eq!(sides[1].2.lock().unwrap().len(), 102);
    for (_, worker, _) in sides {
        worker.stop().await;
    }
}
