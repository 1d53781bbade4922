//! Handlers that take several messages at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{Batch, Context, Json, Outcome, Push, RetryPolicy, Sawmill, State, WorkerBuilder};
use tokio::sync::Semaphore;

use super::engines::{dead_reasons, on_each};
use super::support::{LONG_TTL, POLL, Subject, eventually, numbered, soon};

/// Returns a worker with one slot and no retries.
fn worker(mill: &Sawmill) -> WorkerBuilder {
    mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::none())
}

/// The handled batches.
#[derive(Clone, Default)]
struct Batches(Arc<Mutex<Vec<Vec<String>>>>);

impl Batches {
    fn put(&self, batch: Vec<String>) {
        self.0.lock().unwrap().push(batch);
    }

    fn all(&self) -> Vec<Vec<String>> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().iter().map(Vec::len).sum()
    }
}

pub async fn q24_a_slot_takes_several_messages_at_once(on: Subject) {
    on_each(on, async |mill| {
        let batches = Batches::default();
        let gate = Arc::new(Semaphore::new(0));
        let handler = |mails: Vec<String>, batches: State<Batches>, gate: State<Arc<Semaphore>>| async move {
            batches.put(mails);
            gate.acquire().await.unwrap().forget();
        };
        let builder = worker(&mill).state(batches.clone()).state(gate.clone());
        let worker = builder.start_batch(Batch::of(10), handler).await.unwrap();
        mill.push("orders", "first").await.unwrap();
        eventually("what is ready is taken", async || batches.count() == 1).await;
        assert_eq!((worker.state().busy, worker.state().concurrency), (1, 1));
        mill.push_many("orders", numbered(0..95)).await.unwrap();
        gate.add_permits(1000);
        eventually("all are taken", async || batches.count() == 96).await;
        soon("all is settled", worker.drained()).await;
        let counts = worker.stop().await;
        assert_eq!((counts.started, counts.done), (96, 96));
        let all = batches.all();
        assert!(all.iter().all(|batch| batch.len() <= 10), "{all:?}");
        assert!(all.iter().any(|batch| batch.len() == 10), "{all:?}");
        let different: BTreeSet<String> = all.into_iter().flatten().collect();
        assert_eq!(different.len(), 96);
    })
    .await;
}

pub async fn q24_a_batch_may_wait_until_it_is_full(on: Subject) {
    on_each(on, async |mill| {
        let batches = Batches::default();
        let handler = |mails: Vec<String>, batches: State<Batches>| async move { batches.put(mails) };
        let batch = Batch::of(5).linger(Duration::from_secs(600));
        let worker = worker(&mill).state(batches.clone()).start_batch(batch, handler).await.unwrap();
        for number in 0..5 {
            assert_eq!(batches.count(), 0, "it waits for more");
            mill.push("orders", number.to_string()).await.unwrap();
            eventually("it is in hand", async || worker.state().claimed == number + 1 || number == 4).await;
        }
        eventually("the batch is full", async || batches.count() == 5).await;
        assert_eq!(batches.all().len(), 1);
        // Stopping does not wait for a full batch.
        mill.push("orders", "late").await.unwrap();
        eventually("it is in hand", async || worker.state().claimed == 1).await;
        soon("it stops", worker.stop()).await;
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.done, status.waiting + status.claimed), (5, 1));
    })
    .await;
}

pub async fn q24_a_batch_does_not_wait_longer_than_it_may(on: Subject) {
    on_each(on, async |mill| {
        let batches = Batches::default();
        let handler = |mails: Vec<String>, batches: State<Batches>| async move { batches.put(mails) };
        let batch = Batch::of(5).linger(Duration::from_millis(100));
        let worker = worker(&mill).state(batches.clone()).start_batch(batch, handler).await.unwrap();
        mill.push_many("orders", numbered(0..2)).await.unwrap();
        eventually("two are enough in the end", async || batches.count() == 2).await;
        worker.stop().await;
    })
    .await;
}

pub async fn q24_no_two_messages_of_a_key_are_in_a_batch(on: Subject) {
    on_each(on, async |mill| {
        let pushes = (0..30)
            .map(|number| Push::new(format!("{} {number}", number % 3)).key(format!("{}", number % 3)));
        mill.push_many("orders", pushes).await.unwrap();
        let batches = Batches::default();
        let handler = |mails: Vec<String>, batches: State<Batches>| async move { batches.put(mails) };
        let builder = worker(&mill).ordered().state(batches.clone());
        let worker = builder.start_batch(Batch::of(20), handler).await.unwrap();
        soon("all is settled", worker.drained()).await;
        worker.stop().await;
        let mut last = [0; 3];
        for batch in batches.all() {
            let mut keys = BTreeSet::new();
            for message in batch {
                let (key, number) = message.split_once(' ').unwrap();
                let (key, number): (usize, usize) = (key.parse().unwrap(), number.parse().unwrap());
                assert!(keys.insert(key), "two of key {key} at once");
                assert!(number == key || number == last[key] + 3, "out of order");
                last[key] = number;
            }
        }
        assert_eq!(last, [27, 28, 29]);
    })
    .await;
}

pub async fn q24_each_message_of_a_batch_has_its_own_outcome(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["1", "2", "no number", "3", "4"]).await.unwrap();
        let handler = |numbers: Vec<(Context, Json<u32>)>| async move {
            numbers
                .iter()
                .map(|(_, Json(number))| match number {
                    2 => Outcome::dead("two"),
                    3 => Outcome::retry("three"),
                    _ => Outcome::Done,
                })
                .collect::<Vec<_>>()
        };
        let batch = Batch::of(5).linger(Duration::from_secs(5));
        let worker = worker(&mill).start_batch(batch, handler).await.unwrap();
        soon("all is settled", worker.drained()).await;
        let counts = worker.stop().await;
        assert_eq!((counts.started, counts.done, counts.dead), (5, 2, 3));
        let reasons = dead_reasons(&mill).await;
        assert!(reasons[0].ends_with("three") && reasons[2] == "two", "{reasons:?}");
        assert!(reasons[1].contains("cannot be read as JSON"), "{reasons:?}");
    })
    .await;
}

pub async fn q24_what_fails_a_batch_fails_every_message_of_it(on: Subject) {
    on_each(on, async |mill| {
        for (say, said) in [
            ("error", "no disk"),
            ("panic", "the handler panicked: jam"),
            ("short", "returned 1 outcomes"),
            ("late", "longer than its timeout"),
        ] {
            let topic = say;
            mill.create_topic(topic).await.unwrap();
            mill.push_many(topic, ["1", "2", "?"]).await.unwrap();
            let handler = move |_: Vec<Json<u32>>| async move {
                match say {
                    "error" => Err("no disk"),
                    "panic" => std::panic::resume_unwind(Box::new("jam")),
                    "short" => Ok(vec![Outcome::dead("returned 1 outcomes")]),
                    _ => std::future::pending().await,
                }
            };
            let batch = Batch::of(3).linger(Duration::from_secs(5));
            let builder =
                mill.worker(topic).concurrency(1).ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::none());
            let builder = if say == "late" { builder.timeout(Duration::from_millis(100)) } else { builder };
            let worker = builder.start_batch(batch, handler).await.unwrap();
            soon("all is settled", worker.drained()).await;
            assert_eq!(worker.stop().await.dead, 3);
            let letters = mill.admin().dead_letters(topic, "default").await.unwrap().list(10).await.unwrap();
            let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason()).collect();
            assert_eq!(reasons.iter().filter(|reason| reason.contains(said)).count(), 2, "{reasons:?}");
            assert_eq!(reasons.iter().filter(|reason| reason.contains("as JSON")).count(), 1, "{reasons:?}");
        }
    })
    .await;
}
