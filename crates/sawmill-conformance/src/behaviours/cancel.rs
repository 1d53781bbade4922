//! Cancelling: waiting messages never start, running handlers are told, and finished messages stay done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use sawmill::engine::runtime::{Env, Moment};
use sawmill::{Context, ErrorKind, MessageId, Outcome, Push, RetryPolicy, Sawmill, Worker};
use tokio::sync::Semaphore;

use super::support::{POLL, Subject, engines, eventually, group_is, soon, topic};

pub async fn a_message_that_waits_is_not_started_in_any_group(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "mails", 4).await;
        let ids = mill.push_many("mails", (0..50).map(|n| Push::new(n.to_string()))).await.unwrap();
        // One group exists before the cancellation, the other joins afterwards.
        let early = mill.worker("mails").group("early").start(|_: Context| async {}).await.unwrap();
        soon("the backlog is done", early.drained()).await;
        early.stop().await;
        let aside = mill.push("mails", Push::new("later").after(Duration::from_secs(1))).await.unwrap();
        let late: Vec<MessageId> = mill.push_many("mails", ["a", "b", "c"]).await.unwrap();
        for id in [ids[7], aside, late[1]] {
            mill.cancel("mails", id).await.unwrap();
            mill.cancel("mails", id).await.unwrap();
        }
        for (group, done) in [("early", 52), ("new", 51)] {
            let seen: Arc<Mutex<Vec<MessageId>>> = Arc::default();
            let noted = seen.clone();
            let worker = mill.worker("mails").group(group).poll(POLL).start(move |mail: Context| {
                noted.lock().unwrap().push(mail.id());
                async {}
            });
            let worker = worker.await.unwrap();
            let status = async || mill.admin().status("mails", group).await.unwrap();
            group_is(&mill, "mails", group, "nothing is left", |status| status.done == done).await;
            eventually("what is due now was cancelled", async || status().await.scheduled == 0).await;
            soon("all is settled", worker.drained()).await;
            worker.stop().await;
            let seen = seen.lock().unwrap().clone();
            assert!(![aside, late[1]].iter().any(|id| seen.contains(id)), "{group}: {seen:?}");
            assert!(!seen.contains(&ids[7]), "{group}");
            let cancelled = status().await.cancelled;
            assert_eq!(cancelled, if group == "early" { 2 } else { 3 }, "what was done stays done");
        }
    }
}

pub async fn a_message_that_runs_is_told_dropped_and_not_tried_again(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "mails", 1).await;
        let id = mill.push("mails", Push::new("long").key("k")).await.unwrap();
        let next = mill.push("mails", Push::new("next").key("k")).await.unwrap();
        let (started, ran) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tell, count) = (started.clone(), ran.clone());
        let worker = mill.worker("mails").poll(POLL).start(move |mail: Context| {
            let (tell, count) = (tell.clone(), count.clone());
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                if mail.id() == id {
                    tell.add_permits(1);
                    std::future::pending::<()>().await;
                }
                assert!(!mail.is_cancelled());
            }
        });
        let worker = worker.await.unwrap();
        soon("it runs", started.acquire()).await.unwrap().forget();
        mill.cancel("mails", id).await.unwrap();
        soon("its key goes on, and nothing is left", worker.drained()).await;
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        let status = mill.admin().status("mails", "default").await.unwrap();
        assert_eq!((status.done, status.cancelled, status.claimed, status.retrying), (1, 1, 0, 0));
        // Cancelling a finished message changes nothing.
        mill.cancel("mails", next).await.unwrap();
        soon("nothing is left", worker.drained()).await;
        worker.stop().await;
        assert_eq!(mill.admin().status("mails", "default").await.unwrap(), status);
    }
}

pub async fn a_message_that_waits_for_its_next_attempt_is_not_tried_again(on: Subject) {
    // All at the same time, since each has to wait until the next attempt would be due.
    let mut cases = Vec::new();
    for ordered in [false, true] {
        for (mill, place) in engines(on).await {
            cases.push(async move {
                cancel_before_the_next_attempt(&mill, ordered).await;
                drop(place);
            });
        }
    }
    join_all(cases).await;
}

async fn cancel_before_the_next_attempt(mill: &Sawmill, ordered: bool) {
    topic(mill, "mails", 2).await;
    let id = mill.push("mails", Push::new("bad").key("k")).await.unwrap();
    // Longer than cancelling takes on a busy machine, even if jitter shortens it by a quarter.
    let pause = Duration::from_secs(12);
    let policy = RetryPolicy::retries(1).immediate(0).backoff(pause, pause);
    let runs: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let noted = runs.clone();
    let mut builder = mill.worker("mails").poll(POLL).retry(policy);
    if ordered {
        builder = builder.ordered();
    }
    let worker: Worker = builder
        .start(move |_: Context| {
            noted.lock().unwrap().push(Env::system().now());
            async { Outcome::retry("no") }
        })
        .await
        .unwrap();
    eventually("it failed", async || !runs.lock().unwrap().is_empty()).await;
    mill.cancel("mails", id).await.unwrap();
    let took = Env::system().now().since(runs.lock().unwrap()[0]);
    assert!(took < pause / 2, "test timed out: it is cancelled while it waits; that took {took:?}");
    let status = async || mill.admin().status("mails", "default").await.unwrap();
    group_is(mill, "mails", "default", "it is settled", |status| status.cancelled == 1).await;
    soon("nothing is left", worker.drained()).await;
    worker.stop().await;
    assert_eq!(runs.lock().unwrap().len(), 1, "ordered: {ordered}");
    assert_eq!((status().await.retrying, status().await.dead), (0, 0));
}

pub async fn what_is_not_there_cannot_be_cancelled_and_is_found_by_nobody(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "mails", 2).await;
        topic(&mill, "other", 2).await;
        let id = mill.push("other", "x").await.unwrap();
        let error = mill.cancel("mails", id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("nothing to cancel"), "{error}");
        assert_eq!(mill.cancel("nowhere", id).await.unwrap_err().kind(), ErrorKind::NotFound);
        let (topic, found) = mill.admin().find_message(id).await.unwrap().unwrap();
        assert_eq!((topic.name.to_string(), found.message.id), ("other".to_owned(), id));
        assert!(mill.admin().find_message(MessageId::from_u128(7)).await.unwrap().is_none());
    }
}
