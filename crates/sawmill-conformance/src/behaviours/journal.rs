//! Journals: an at-most-once worker that crashes and restarts runs the messages that it had claimed and not
//! started.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::admin::DeadLetterSelection;
use sawmill::engine::runtime::Env;
use sawmill::handler::IntoHandler;
use sawmill::{Context, Delivery, ErrorKind, Outcome, Push, Sawmill, Worker, WorkerBuilder};
use tempfile::TempDir;

use super::engines::{dead_reasons, on_each};
use super::support::{LONG_TTL, POLL, SHORT_TTL, Subject, soon};

const MESSAGES: usize = 400;
/// The message on which the handlers of the first incarnation never end.
const STUCK: usize = 60;
/// A worker with idle slots claims more messages, even if all of them wait behind one of their key. So a
/// worker that is stuck with a key has claimed more than this many.
const SLOTS: usize = 30;
const LOST: &str =
    "lost: its worker died while it ran, and an at-most-once group never starts a message again";

/// The numbers of the started messages, in order.
type Seen = Arc<Mutex<Vec<usize>>>;

fn seen(seen: &Seen) -> Vec<usize> {
    seen.lock().unwrap().clone()
}

fn once(mill: &Sawmill) -> WorkerBuilder {
    mill.worker("orders").delivery(Delivery::AtMostOnce).concurrency(SLOTS).ttl(LONG_TTL).poll(POLL)
}

fn journal(folder: &TempDir) -> PathBuf {
    folder.path().join("orders.journal")
}

/// Pushes the messages, with this many keys in turn.
async fn push(mill: &Sawmill, keys: usize) {
    let push = |number: usize| Push::new(number.to_string()).key(format!("key {}", number % keys));
    mill.push_many("orders", (0..MESSAGES).map(push)).await.unwrap();
}

/// Returns a handler that records each start and never ends on message `stuck`.
fn handler(seen: &Seen, stuck: Option<usize>) -> impl IntoHandler<(Context,)> + use<> {
    let seen = seen.clone();
    move |context: Context| {
        let number = std::str::from_utf8(context.payload()).unwrap().parse().unwrap();
        seen.lock().unwrap().push(number);
        async move {
            if Some(number) == stuck {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Starts a worker, as soon as its previous incarnation has released the journal.
async fn start(builder: WorkerBuilder, seen: Seen, stuck: Option<usize>) -> Worker {
    soon("that the journal is free", async {
        loop {
            match builder.clone().start(handler(&seen, stuck)).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    Env::system().sleep(Duration::from_millis(10)).await;
                }
                started => return started.unwrap(),
            }
        }
    })
    .await
}

/// Runs a worker that gets stuck after `when` starts and then vanishes, as in a crash: it has its own
/// runtime. All finished messages are reported by then.
async fn crash(mill: &Sawmill, builder: &WorkerBuilder, seen_by: &Seen, stuck: usize, when: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let life = start(builder.clone(), seen_by.clone(), Some(stuck));
    let worker = runtime.spawn(life).await.unwrap();
    soon("that it is stuck, and has reported all that is done", async {
        loop {
            let status = mill.admin().status("orders", "default").await.unwrap();
            let is_stuck = seen(seen_by).len() == when && worker.state().busy == 1;
            let is_reported = status.done + status.dead + 1 == when as u64;
            if is_stuck && is_reported && worker.state().claimed >= SLOTS {
                return;
            }
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    worker.detach();
    std::thread::spawn(move || drop(runtime)).join().unwrap();
}

/// Waits until nothing is left to do; returns the number of dead letters.
async fn settled(mill: &Sawmill) -> u64 {
    soon("that nothing is left", async {
        loop {
            let status = mill.admin().status("orders", "default").await.unwrap();
            if status.waiting + status.claimed + status.retrying == 0 {
                assert_eq!(status.done + status.dead, MESSAGES as u64, "{status:?}");
                return status.dead;
            }
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Asserts that every message was started exactly once.
fn assert_each_once(seen_by: &Seen) {
    let mut numbers = seen(seen_by);
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..MESSAGES), "{numbers:?}");
}

/// Asserts that no message was started twice, and that the messages not started are lost, as is the one that
/// ran.
fn assert_others_lost(seen_by: &Seen, dead: u64) {
    let mut numbers = seen(seen_by);
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert!(dead >= SLOTS as u64 && numbers.len() as u64 == MESSAGES as u64 - dead + 1, "{dead} {numbers:?}");
}

pub async fn g16_a_restarted_worker_runs_at_once_what_it_had_claimed_and_not_started(on: Subject) {
    on_each(on, async |mill| {
        let (folder, seen) = (tempfile::tempdir().unwrap(), Seen::default());
        push(&mill, 1).await;
        let builder = once(&mill).journal(journal(&folder));
        crash(&mill, &builder, &seen, STUCK, STUCK + 1).await;
        let worker = start(builder, seen.clone(), None).await;
        soon("that all is done, long before the TTL", worker.drained()).await;
        assert_each_once(&seen);
        assert_eq!(dead_reasons(&mill).await, [LOST]);
        let counts = worker.stop().await;
        assert!(counts.recovered > 0 && counts.adopted == 0 && counts.dead == 1, "{counts:?}");
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, MESSAGES as u64 - 1);
        let left = std::fs::read_to_string(journal(&folder)).unwrap();
        assert_eq!(left, "", "who ends well leaves nothing to know");
    })
    .await;
}

pub async fn g16_without_a_journal_all_that_was_claimed_and_not_done_is_lost(on: Subject) {
    on_each(on, async |mill| {
        let seen_by = Seen::default();
        push(&mill, 1).await;
        let builder = once(&mill).ttl(SHORT_TTL);
        crash(&mill, &builder, &seen_by, STUCK, STUCK + 1).await;
        let worker = start(builder, seen_by.clone(), None).await;
        let dead = settled(&mill).await;
        assert_eq!(worker.stop().await.recovered, 0);
        assert_others_lost(&seen_by, dead);
    })
    .await;
}

pub async fn g16_each_life_recovers_what_the_ones_before_it_left(on: Subject) {
    on_each(on, async |mill| {
        let (folder, seen_by) = (tempfile::tempdir().unwrap(), Seen::default());
        push(&mill, 1).await;
        let builder = once(&mill).journal(journal(&folder));
        crash(&mill, &builder, &seen_by, STUCK, STUCK + 1).await;
        crash(&mill, &builder, &seen_by, 2 * STUCK, 2 * STUCK + 1).await;
        let worker = start(builder, seen_by.clone(), None).await;
        soon("that all is done", worker.drained()).await;
        worker.stop().await;
        assert_each_once(&seen_by);
        assert_eq!(dead_reasons(&mill).await, [LOST, LOST]);
    })
    .await;
}

pub async fn g16_an_ordered_group_keeps_its_order_when_claims_are_recovered(on: Subject) {
    const KEYS: usize = 4;
    on_each(on, async |mill| {
        let (folder, seen_by) = (tempfile::tempdir().unwrap(), Seen::default());
        push(&mill, KEYS).await;
        let builder = once(&mill).ordered().journal(journal(&folder));
        let behind = (STUCK + 1..MESSAGES).filter(|number| number % KEYS == STUCK % KEYS).count();
        crash(&mill, &builder, &seen_by, STUCK, MESSAGES - behind).await;
        let worker = start(builder, seen_by.clone(), None).await;
        soon("that all is done", worker.drained()).await;
        worker.stop().await;
        let mut by_key: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for number in seen(&seen_by) {
            by_key.entry(number % KEYS).or_default().push(number);
        }
        assert!(by_key.values().all(|numbers| numbers.is_sorted()), "{by_key:?}");
        assert_each_once(&seen_by);
        assert_eq!(dead_reasons(&mill).await, [LOST]);
    })
    .await;
}

pub async fn g16_what_was_resent_is_recovered_too(on: Subject) {
    on_each(on, async |mill| {
        let (folder, seen_by) = (tempfile::tempdir().unwrap(), Seen::default());
        push(&mill, 1).await;
        let worker = once(&mill).start(async || Outcome::dead("not today")).await.unwrap();
        soon("that all have failed", worker.drained()).await;
        worker.stop().await;
        let letters = mill.admin().dead_letters("orders", "default").await.unwrap();
        assert_eq!(letters.retry(DeadLetterSelection::All).await.unwrap(), MESSAGES);
        let builder = once(&mill).journal(journal(&folder));
        crash(&mill, &builder, &seen_by, STUCK, STUCK + 1).await;
        let worker = start(builder, seen_by.clone(), None).await;
        soon("that all is done", worker.drained()).await;
        worker.stop().await;
        assert_each_once(&seen_by);
        assert_eq!(dead_reasons(&mill).await, [LOST]);
    })
    .await;
}

pub async fn g16_what_others_were_faster_to_take_over_is_lost_as_ever(on: Subject) {
    on_each(on, async |mill| {
        let (folder, seen_by) = (tempfile::tempdir().unwrap(), Seen::default());
        push(&mill, 1).await;
        let builder = once(&mill).ttl(SHORT_TTL).journal(journal(&folder));
        crash(&mill, &builder, &seen_by, STUCK, STUCK + 1).await;
        let other = start(once(&mill).ttl(SHORT_TTL), seen_by.clone(), None).await;
        let dead = settled(&mill).await;
        let worker = start(builder, seen_by.clone(), None).await;
        soon("that all is done", worker.drained()).await;
        assert_eq!(worker.stop().await.recovered, 0);
        other.stop().await;
        assert_others_lost(&seen_by, dead);
    })
    .await;
}

pub async fn g16_a_journal_belongs_to_one_running_worker(on: Subject) {
    on_each(on, async |mill| {
        let folder = tempfile::tempdir().unwrap();
        let builder = once(&mill).journal(journal(&folder));
        let first = builder.clone().start(async || ()).await.unwrap();
        let error = builder.clone().start(async || ()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.to_string().contains("used by another worker"), "{error}");
        first.stop().await;
        builder.start(async || ()).await.unwrap().stop().await;
    })
    .await;
}

pub async fn g16_a_journal_that_makes_no_sense_is_refused(on: Subject) {
    on_each(on, async |mill| {
        let folder = tempfile::tempdir().unwrap();
        let refused = async |builder: WorkerBuilder, path: &Path, words: &str| {
            let error = builder.journal(path).start(async || ()).await.err().unwrap();
            assert!(error.to_string().contains(words), "{error}");
            error.kind()
        };
        let at_least_once = mill.worker("orders");
        assert_eq!(refused(at_least_once, &journal(&folder), "at most once").await, ErrorKind::Invalid);
        let away = folder.path().join("away/orders.journal");
        assert_eq!(refused(once(&mill), &away, "folder").await, ErrorKind::Invalid);
        std::fs::write(journal(&folder), "my diary\n").unwrap();
        assert_eq!(refused(once(&mill), &journal(&folder), "no journal").await, ErrorKind::Corrupt);
        assert_eq!(std::fs::read_to_string(journal(&folder)).unwrap(), "my diary\n");
    })
    .await;
}
