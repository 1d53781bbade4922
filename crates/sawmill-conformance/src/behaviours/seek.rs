//! Replay: a group is moved to another place of its topic, and other groups are unaffected.

use std::sync::{Arc, Mutex};

use sawmill::admin::ReplayFrom;
use sawmill::{Context, Delivery, ErrorKind, Outcome, Push, RetryPolicy, Sawmill, Worker};

use super::support::{POLL, Subject, engines, eventually, soon, topic};

type Seen = Arc<Mutex<Vec<String>>>;

/// Starts a worker that records its payloads.
async fn recording_worker(mill: &Sawmill, group: &str) -> (Worker, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let worker = mill.worker("orders").group(group).concurrency(1).poll(POLL).ordered();
    let worker = worker.start(move |order: Context| {
        noted.lock().unwrap().push(String::from_utf8_lossy(order.payload()).into_owned());
        async {}
    });
    (worker.await.unwrap(), seen)
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut *seen.lock().unwrap())
}

pub async fn g17_a_group_reads_the_stream_again_from_the_start_a_time_or_an_id(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 1).await;
        let mut ids = Vec::new();
        let mut pushed_at = Vec::new();
        for n in 0..4 {
            pushed_at.push(sawmill::engine::runtime::Env::system().wall());
            ids.push(mill.push("orders", n.to_string()).await.unwrap());
            sawmill::engine::runtime::Env::system().sleep(std::time::Duration::from_millis(5)).await;
        }
        let (worker, seen) = recording_worker(&mill, "totals").await;
        let (bystander, others) = recording_worker(&mill, "mails").await;
        for (since, expected) in [
            (None, vec!["0", "1", "2", "3"]),
            (Some(ReplayFrom::Start), vec!["0", "1", "2", "3"]),
            (Some(ReplayFrom::Id(ids[2])), vec!["2", "3"]),
            (Some(ReplayFrom::Time(pushed_at[1])), vec!["1", "2", "3"]),
            (Some(ReplayFrom::Now), vec![]),
        ] {
            if let Some(since) = since {
                mill.admin().replay("orders", "totals", since).await.unwrap();
            }
            soon("the group reads on", worker.drained()).await;
            assert_eq!(taken(&seen), expected, "{since:?}");
        }
        mill.push("orders", "4").await.unwrap();
        soon("the group goes on", worker.drained()).await;
        assert_eq!(taken(&seen), ["4"]);
        soon("the other group reads on", bystander.drained()).await;
        assert_eq!(taken(&others), ["0", "1", "2", "3", "4"], "others do not notice");
        worker.stop().await;
        bystander.stop().await;
    }
}

pub async fn skipping_ahead_leaves_what_waits_undone(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 4).await;
        let (worker, seen) = recording_worker(&mill, "totals").await;
        worker.stop().await;
        mill.push_many("orders", (0..100).map(|n| n.to_string())).await.unwrap();
        assert_eq!(mill.admin().status("orders", "totals").await.unwrap().waiting, 100);
        mill.admin().replay("orders", "totals", ReplayFrom::Now).await.unwrap();
        assert_eq!(mill.admin().status("orders", "totals").await.unwrap().waiting, 0);
        let (worker, _) = recording_worker(&mill, "totals").await;
        soon("nothing is left", worker.drained()).await;
        assert_eq!(worker.stop().await.started, 0);
        assert!(taken(&seen).is_empty());
    }
}

pub async fn what_fails_again_in_a_replay_is_tried_again(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 1).await;
        mill.push("orders", "bad").await.unwrap();
        let starts = Arc::new(Mutex::new(0));
        let counted = starts.clone();
        let once_more = RetryPolicy::retries(1)
            .immediate(0)
            .backoff(std::time::Duration::from_millis(1), std::time::Duration::from_millis(1));
        let worker = mill.worker("orders").group("totals").poll(POLL).retry(once_more);
        let worker = worker.start(move |_: Context| {
            *counted.lock().unwrap() += 1;
            async { Outcome::retry("never") }
        });
        let worker = worker.await.unwrap();
        for round in 1..4 {
            eventually("both attempts failed", async || *starts.lock().unwrap() >= 2 * round).await;
            soon("it is dead", worker.drained()).await;
            mill.admin().replay("orders", "totals", ReplayFrom::Start).await.unwrap();
        }
        worker.stop().await;
    }
}

pub async fn replaying_is_the_one_way_to_start_again_what_is_done_at_most_once(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 2).await;
        mill.push_many("orders", (0..10).map(|n| Push::new(n.to_string()))).await.unwrap();
        let worker = mill.worker("orders").poll(POLL).delivery(Delivery::AtMostOnce);
        let worker = worker.start(|_: Context| async {}).await.unwrap();
        soon("all is done", worker.drained()).await;
        mill.admin().replay("orders", "default", ReplayFrom::Start).await.unwrap();
        soon("all is done again", worker.drained()).await;
        assert_eq!(worker.stop().await.started, 20);
    }
}

pub async fn a_seek_that_makes_no_sense_is_refused_and_says_why(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 1).await;
        let later = Push::new("later").after(std::time::Duration::from_secs(600));
        let (known, aside) =
            (mill.push("orders", "x").await.unwrap(), mill.push("orders", later).await.unwrap());
        let refused = async |topic: &str, group: &str, since| {
            mill.admin().replay(topic, group, since).await.unwrap_err()
        };
        assert_eq!(refused("nowhere", "totals", ReplayFrom::Start).await.kind(), ErrorKind::NotFound);
        let error = refused("orders", "totals", ReplayFrom::Start).await;
        assert!(error.to_string().contains("begins with its first worker"), "{error}");
        let worker = mill.worker("orders").group("totals").start(|_: Context| async {}).await.unwrap();
        worker.stop().await;
        let error = refused("orders", "totals", ReplayFrom::Id(sawmill::MessageId::from_u128(5))).await;
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = refused("orders", "totals", ReplayFrom::Id(aside)).await;
        assert!(error.to_string().contains("not due"), "{error}");
        mill.admin().replay("orders", "totals", ReplayFrom::Id(known)).await.unwrap();
    }
}

pub async fn a_seek_gives_the_names_of_unique_messages_back(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 2).await;
        let worker = mill.worker("orders").group("totals").start(|_: Context| async {}).await.unwrap();
        worker.stop().await;
        let skipped = mill.push("orders", Push::new("a").unique("one")).await.unwrap();
        assert_eq!(mill.push("orders", Push::new("b").unique("one")).await.unwrap(), skipped);
        mill.admin().replay("orders", "totals", ReplayFrom::Now).await.unwrap();
        assert_ne!(mill.push("orders", Push::new("c").unique("one")).await.unwrap(), skipped);
    }
}
