//! Messages on Cassandra, and the ledger in ZooKeeper: the setting of the second note.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::clock::{Clock, SystemClock};
use sawmill::env::Env;
use sawmill::{Context, MessageId, Push, Sawmill};
use sawmill_cassandra::CassandraEngine;
use sawmill_zookeeper::ZookeeperEngine;
use support::server_for;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_may_be_in_zookeeper() {
    let Some(url) = server_for("the_ledger_may_be_in_zookeeper") else { return };
    let ledger = std::env::var("SAWMILL_TEST_ZOOKEEPER").ok().filter(|url| !url.is_empty());
    let Some(ledger) = ledger else {
        let why = "SAWMILL_TEST_ZOOKEEPER names no server; `cargo xtask engines up zookeeper` starts one";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        return sawmill_conformance::skipped("the_ledger_may_be_in_zookeeper", why);
    };
    let namespace = format!("pair-{:016x}", Env::system().dice().roll());
    let open = async || {
        let options = Sawmill::options().engine(CassandraEngine).engine(ZookeeperEngine);
        options.namespace(&namespace).ledger(&ledger).open(&url).await.unwrap()
    };
    let mill = open().await;
    mill.create_topic("orders").await.unwrap();
    let seen: Arc<Mutex<HashMap<MessageId, u32>>> = Arc::default();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let seen = seen.clone();
        let handler = move |context: Context| {
            let times = {
                let mut seen = seen.lock().unwrap();
                let times = seen.entry(context.message().id).or_insert(0);
                *times += 1;
                *times
            };
            let fails =
                context.message().payload.starts_with(b"fails") && times == 1 && context.attempt() == 1;
            async move {
                if fails {
                    Err("not yet".into())
                } else {
                    Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
                }
            }
        };
        workers.push(open().await.worker("orders").slots(4).start(handler).await.unwrap());
    }
    let now = (0..300).map(|n| Push::new(format!("now {n}")).key(format!("key {}", n % 20)));
    mill.push_many("orders", now).await.unwrap();
    mill.push_many("orders", (0..20).map(|n| Push::new(format!("fails {n}")))).await.unwrap();
    let later = (0..30).map(|n| Push::new(format!("later {n}")).after(Duration::from_millis(500 + n)));
    mill.push_many("orders", later).await.unwrap();
    let began = SystemClock.now();
    loop {
        let status = mill.status("orders", "default").await.unwrap();
        if status.done == 350 && status.waiting + status.claimed + status.retrying == 0 {
            break;
        }
        assert!(SystemClock.now().since(began) < Duration::from_secs(60), "{status:?}");
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
    for worker in workers {
        worker.stop().await;
    }
}
