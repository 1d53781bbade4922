//! Pulling: the program takes messages itself, and answers each one later.

use std::collections::BTreeSet;
use std::time::Duration;

use sawmill::handler::FromContext;
use sawmill::{Context, Delivery, ErrorKind, Json, Outcome, RetryPolicy, Sawmill, WorkerBuilder};

use super::engines::{dead_reasons, on_each, on_each_tapped};
use super::support::{LONG_TTL, POLL, Subject, eventually, numbered, orders_done, soon};

/// Returns a worker with one immediate retry.
fn worker(mill: &Sawmill) -> WorkerBuilder {
    mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::retries(1).immediate(1))
}

pub async fn g17_messages_are_pulled_and_acknowledged(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", numbered(0..50)).await.unwrap();
        let puller = worker(&mill).pull().await.unwrap();
        let mut numbers = BTreeSet::new();
        for _ in 0..50 {
            let job = soon("there is one more", puller.pull()).await.unwrap();
            numbers.insert(Json::<u32>::from_context(job.context()).unwrap().0);
            job.done().await.unwrap();
        }
        assert_eq!(numbers, (0..50).collect());
        let counts = puller.worker().stop().await;
        assert_eq!((counts.started, counts.done), (50, 50));
        assert!(puller.pull().await.is_none(), "it has been stopped");
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 50);
    })
    .await;
}

pub async fn g17_whoever_waits_gets_the_next_message(on: Subject) {
    on_each(on, async |mill| {
        let puller = worker(&mill).pull().await.unwrap();
        // While a pull waits, the worker looks for messages and reports when there are none. A pull that
        // waits in vain loses nothing.
        let waited = async {
            tokio::select! {
                job = puller.pull() => job.is_some(),
                () = puller.worker().drained() => false,
            }
        };
        assert!(!soon("there is nothing", waited).await);
        let push = async {
            puller.worker().drained().await;
            mill.push("orders", "x").await.unwrap();
        };
        let (job, ()) = soon("it arrives", both(puller.pull(), push)).await;
        job.unwrap().done().await.unwrap();
        let stop = async {
            puller.worker().drained().await;
            puller.worker().stop().await
        };
        let (job, counts) = soon("it ends", both(puller.pull(), stop)).await;
        assert!(job.is_none());
        assert_eq!((counts.started, counts.done), (1, 1));
    })
    .await;
}

/// Runs both concurrently.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(a, b)
}

pub async fn g17_a_job_may_have_a_time_limit_of_its_own(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", numbered(0..2)).await.unwrap();
        let puller = worker(&mill).retry(RetryPolicy::none()).pull().await.unwrap();
        let short = soon("there is one", puller.pull_with_timeout(Duration::from_millis(20))).await.unwrap();
        let usual = soon("there is another", puller.pull()).await.unwrap();
        let letters = mill.admin().dead_letters("orders", "default").await.unwrap();
        eventually("it is late", async || letters.list(9).await.unwrap().len() == 1).await;
        assert_eq!(short.done().await.unwrap_err().kind(), ErrorKind::Late);
        usual.done().await.unwrap();
        puller.worker().stop().await;
    })
    .await;
}

pub async fn g17_nothing_is_taken_that_nobody_asks_for(on: Subject) {
    on_each_tapped(on, async |faulty, topic| {
        let mill = faulty.mill();
        mill.push_many("orders", numbered(0..20)).await.unwrap();
        let puller = worker(&mill).pull().await.unwrap();
        // Enough time for an eager worker to handle all messages.
        let other = worker(&mill).group("other").start(|_: Context| async {}).await.unwrap();
        other.drained().await;
        assert_eq!(other.stop().await.done, 20);
        assert_eq!(puller.worker().state().claimed, 0);
        let job = soon("there is one", puller.pull()).await.unwrap();
        faulty.looks_again(&topic).await;
        assert_eq!(puller.worker().state().claimed, 1, "one was asked for, and it takes its time");
        job.done().await.unwrap();
        puller.worker().stop().await;
    })
    .await;
}

pub async fn g17_as_many_jobs_are_out_as_there_are_slots(on: Subject) {
    on_each_tapped(on, async |faulty, topic| {
        let mill = faulty.mill();
        mill.push_many("orders", numbered(0..20)).await.unwrap();
        let puller = worker(&mill).concurrency(2).pull().await.unwrap();
        let first = soon("there is one", puller.pull()).await.unwrap();
        let second = soon("there is another", puller.pull()).await.unwrap();
        tokio::select! {
            _ = puller.pull() => panic!("both slots are taken"),
            () = faulty.looks_again(&topic) => {}
        }
        let (answered, third) = soon("a slot is free", both(first.done(), puller.pull())).await;
        answered.unwrap();
        third.unwrap().done().await.unwrap();
        second.done().await.unwrap();
        puller.worker().stop().await;
    })
    .await;
}

pub async fn g17_answers_decide_what_becomes_of_a_message(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let puller = worker(&mill).pull().await.unwrap();
        let job = soon("there is one", puller.pull()).await.unwrap();
        assert_eq!(job.context().attempt(), 1);
        job.failed("no ink").await.unwrap();
        let job = soon("it comes again", puller.pull()).await.unwrap();
        assert_eq!(job.context().attempt(), 2);
        job.outcome(Outcome::dead("no paper")).await.unwrap();
        eventually("it is dead", async || dead_reasons(&mill).await == ["no paper"]).await;
        puller.worker().stop().await;
    })
    .await;
}

pub async fn g17_a_job_that_is_dropped_has_failed(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let puller = worker(&mill).pull().await.unwrap();
        for attempt in 1..=2 {
            let job = soon("it comes", puller.pull()).await.unwrap();
            assert_eq!(job.context().attempt(), attempt);
            drop(job);
        }
        eventually("it is dead", async || dead_reasons(&mill).await.len() == 1).await;
        assert!(dead_reasons(&mill).await[0].ends_with("the job was dropped without an answer"));
        puller.worker().stop().await;
    })
    .await;
}

pub async fn g17_a_job_that_is_not_answered_in_time_fails_and_its_answer_is_refused(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let patient = RetryPolicy::retries(50).immediate(50);
        let builder = worker(&mill).timeout(Duration::from_millis(100)).retry(patient);
        let puller = builder.pull().await.unwrap();
        let late = soon("there is one", puller.pull()).await.unwrap();
        soon("it is told", late.context().cancelled()).await;
        // On a busy machine a job may be late before it can be extended, and then it comes again.
        let mut late_jobs = 1;
        let again = loop {
            let again = soon("it comes again", puller.pull()).await.unwrap();
            assert_eq!(again.context().attempt(), late_jobs + 1);
            match again.extend(Duration::from_secs(600)) {
                Ok(()) => break again,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Late),
            }
            late_jobs += 1;
        };
        let error = late.extend(Duration::from_secs(600)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Late);
        let error = late.done().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Late);
        assert!(error.to_string().contains("not answered within its time limit of 100ms"), "{error}");
        // This job was extended: it continues when the time limit of a job that was pulled later has passed.
        mill.push("orders", "y").await.unwrap();
        let later = soon("there is one more", puller.pull()).await.unwrap();
        soon("that is told, too", later.context().cancelled()).await;
        assert!(!again.context().is_cancelled());
        again.done().await.unwrap();
        let failed = u64::from(late_jobs) + 1;
        eventually("the other has failed", async || puller.worker().counts().failed == failed).await;
        let counts = puller.worker().stop().await;
        assert_eq!((counts.started, counts.failed, counts.done), (failed + 1, failed, 1));
    })
    .await;
}

pub async fn g17_stopping_waits_for_jobs_that_are_out_and_gives_back_the_rest(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", numbered(0..20)).await.unwrap();
        let puller = worker(&mill).delivery(Delivery::AtMostOnce).pull().await.unwrap();
        let first = soon("there is one", puller.pull()).await.unwrap();
        let second = soon("there is another", puller.pull()).await.unwrap();
        let answers = async {
            second.context().stopping().await;
            first.done().await.unwrap();
            // Once this is on record, the worker is stopping but not gone.
            orders_done(&mill, 1).await;
            second.done().await
        };
        let (counts, answered) = soon("it stops", both(puller.worker().stop(), answers)).await;
        answered.unwrap();
        assert_eq!((counts.started, counts.done, counts.dead), (2, 2, 0));
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.done, status.waiting + status.claimed), (2, 18));
    })
    .await;
}

pub async fn g17_after_an_abort_answers_are_refused_and_a_dropped_puller_stops(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let puller = worker(&mill).pull().await.unwrap();
        let job = soon("there is one", puller.pull()).await.unwrap();
        puller.worker().abort().await;
        let error = job.done().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Late);
        assert!(error.to_string().contains("lost the claim or was aborted"), "{error}");
        let puller = worker(&mill).pull().await.unwrap();
        let job = soon("it is there again", puller.pull()).await.unwrap();
        drop(puller);
        job.done().await.unwrap();
        eventually("it leaves", async || mill.admin().workers("default").await.unwrap().is_empty()).await;
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 1);
    })
    .await;
}
