//! The suite for engines that accept pushes within a user's own transactions: a shop and a bank in the same
//! store.
//!
//! An engine implements [`Bank`] as a user of its driver would. Its test file contains
//! `sawmill_conformance::bank_suite!(MyBank);`.

use std::any::Any;
use std::collections::HashSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::admin::ReplayFrom;
use sawmill::engine::runtime::Env;
use sawmill::{Context, Delivery, Draft, Push, Result, RetryPolicy, Sawmill, Worker};

use crate::waits::timeout_message;

/// The number of accounts.
pub const ACCOUNTS: u32 = 10;
/// The initial balance of each account.
pub const BALANCE: i64 = 1_000;

const TOPIC: &str = "transfers";
/// The environment variable that gives a child process the bank's address.
const VARIABLE: &str = "SAWMILL_TEST_BANK";
/// The environment variable for how many seconds workers are killed; set it for longer runs.
const SECONDS: &str = "SAWMILL_TEST_BANK_SECONDS";
/// The longest wait, unless something hangs.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A shop and a bank whose tables are in Sawmill's own store.
#[async_trait]
pub trait Bank: Send + Sync + Sized + 'static {
    /// The path of the test that worker processes run. It depends on where the suite is made.
    const CHILD: &'static str = "bank_child";

    /// Returns an unused address and a guard that keeps it alive, or why this engine cannot be tested here.
    fn place() -> Result<(String, Box<dyn Any>), String>;

    /// Opens Sawmill at an address, and creates missing tables: orders, [`ACCOUNTS`] accounts with
    /// [`BALANCE`] each, and moves.
    async fn open(address: &str) -> Self;

    /// Returns the open Sawmill.
    fn mill(&self) -> &Sawmill;

    /// Inserts an order and pushes its e-mail in one transaction, which is committed or rolled back.
    async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()>;

    /// Returns the orders, in any order.
    async fn orders(&self) -> Vec<String>;

    /// Finishes the message in a transaction. If it was not finished before, also moves the money and inserts
    /// the message's id. The transaction is committed or rolled back. Returns true if the message was not
    /// finished before.
    async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool>;

    /// Returns the current state of the bank.
    async fn books(&self) -> Books;
}

/// An amount to move from one account to another.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The number of the account that it leaves.
    pub from: u32,
    /// The number of the account that it goes to.
    pub to: u32,
    /// The amount.
    pub amount: i64,
}

impl Transfer {
    fn push(self) -> Push {
        Push::new(format!("{} {} {}", self.from, self.to, self.amount))
    }

    fn of(message: &Context) -> Self {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        let mut numbers = text.split(' ').map(|number| number.parse::<u32>().expect("a number was pushed"));
        let mut next = || numbers.next().expect("three numbers were pushed");
        Self { from: next(), to: next(), amount: next().into() }
    }
}

/// The bank's books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Books {
    /// The balances, by account number.
    pub balances: Vec<i64>,
    /// The ids of finished messages, one for each effect.
    pub moves: Vec<String>,
}

/// Makes a test of every check of an engine's transactions.
#[macro_export]
macro_rules! bank_suite {
    ($bank:ty) => {
        $crate::bank_suite! { $bank,
            an_order_and_its_email_are_committed_together,
            an_announced_push_is_worked,
            what_is_pushed_within_a_transaction_is_whole,
            a_message_has_one_effect_however_often_it_runs,
            what_is_rolled_back_is_tried_again,
            who_has_not_finished_is_not_done,
            f6_killed_workers_move_every_amount_once,
        }

        /// Runs in child processes; does nothing in the test program itself.
        #[test]
        fn bank_child() {
            $crate::bank::child::<$bank>();
        }
    };
    ($bank:ty, $($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                $crate::bank::play::<$bank, _>(stringify!($check), $crate::bank::$check::<$bank>);
            }
        )*
    };
}

/// Runs one check at a new address.
pub fn play<B: Bank, C: Future<Output = ()>>(name: &str, check: impl FnOnce(String) -> C) {
    match B::place() {
        Err(why) => crate::skipped(name, &why),
        Ok((address, _alive)) => block_on(check(address)),
    }
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the machine has room for two threads").block_on(future);
}

async fn open<B: Bank>(address: &str) -> Arc<B> {
    let bank = B::open(address).await;
    bank.mill().create_topic(TOPIC).await.expect("the topic is created");
    Arc::new(bank)
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    Env::system().within(MAX_WAIT, future).await.unwrap_or_else(|| panic!("test timed out: {what}"))
}

/// Waits until a worker has done this many messages.
async fn done(worker: &Worker, count: u64) {
    soon("the last run", async {
        while worker.counts().done < count {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Starts a worker whose handler receives the bank.
async fn worker<B, F, R>(bank: &Arc<B>, handler: F) -> Worker
where
    B: Bank,
    F: Fn(Arc<B>, Context) -> R + Send + Sync + Clone + 'static,
    R: Future<Output = Result<()>> + Send + 'static,
{
    let mine = bank.clone();
    let run = move |message: Context| handler(mine.clone(), message);
    // The shortest wait between attempts, and no limit that could be reached here.
    let retry = RetryPolicy::retries(1_000).backoff(Duration::from_millis(10), Duration::from_millis(100));
    let worker = bank.mill().worker(TOPIC).delivery(Delivery::ExactlyOnce).retry(retry);
    worker.ttl(Duration::from_secs(2)).concurrency(4).start(run).await.expect("a worker can be started")
}

/// Makes the transfer in the message, once.
async fn transfer<B: Bank>(bank: Arc<B>, message: Context) -> Result<()> {
    let transfer = Transfer::of(&message);
    bank.transfer(&message, transfer, true).await.map(|_| ())
}

/// A push is part of the transaction in which it is made.
pub async fn an_order_and_its_email_are_committed_together<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let draft = async |text: &'static str| bank.mill().draft(TOPIC, [text]).await.expect("it can be drafted");
    let (kept, undone) = (draft("kept").await, draft("undone").await);
    bank.order("a saw", &kept, true).await.expect("an order is committed");
    bank.order("a mill", &undone, false).await.expect("an order is rolled back");
    assert_eq!(bank.orders().await, ["a saw"]);
    let found = bank.mill().admin().peek(TOPIC, "default", 10).await.expect("the topic can be read");
    let found: Vec<_> = found.iter().map(|message| message.id).collect();
    assert_eq!(found, kept.ids().collect::<Vec<_>>());
}

/// Workers are notified of a push at once, also those of another process.
pub async fn an_announced_push_is_worked<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    // Without the notification, the worker would not poll for a while.
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |message: Context| {
        let _ = started.send(message.id());
        async {}
    };
    let looks = bank.mill().worker(TOPIC).poll(Duration::from_secs(3600));
    let worker = looks.start(handler).await.expect("a worker can be started");
    worker.drained().await;
    let draft = bank.mill().draft(TOPIC, ["now"]).await.expect("it can be drafted");
    bank.order("a saw", &draft, true).await.expect("an order is committed");
    draft.notify();
    let id = soon("the start", starts.recv()).await;
    assert_eq!(id, draft.ids().next());
    worker.stop().await;
}

/// Key, headers, payload and due time come back unchanged.
pub async fn what_is_pushed_within_a_transaction_is_whole<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let odd: Vec<u8> = (0..=255).chain([b'\'', b'\\', 0, b'"']).collect();
    let push = || Push::new(odd.clone()).key(odd[..200].to_vec()).header("a'b", odd.clone());
    let due = Env::system().wall() + Duration::from_millis(1_500);
    let pushes = [push(), push().at(due), Push::new("")];
    let draft = bank.mill().draft(TOPIC, pushes).await.expect("it can be drafted");
    bank.order("odd", &draft, true).await.expect("an order is committed");
    draft.notify();
    let (seen, mut sights) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |message: Context| {
        let _ = seen.send((Env::system().wall(), message));
        async {}
    };
    let worker = bank.mill().worker(TOPIC).start(handler).await.expect("a worker can be started");
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(soon("the next start", sights.recv()).await);
    }
    worker.stop().await;
    let ids: Vec<_> = draft.ids().collect();
    for (at, message) in &found {
        let nth = ids.iter().position(|id| *id == message.id()).expect("it is one of these");
        if nth == 2 {
            assert_eq!((message.payload().len(), message.key()), (0, None));
            continue;
        }
        assert_eq!(message.payload()[..], odd[..]);
        assert_eq!(message.key().map(|key| &key[..]), Some(&odd[..200]));
        assert_eq!(message.headers().get("a'b").map(|value| &value[..]), Some(&odd[..]));
        assert!(nth == 0 || *at >= due, "it was started before it was due");
    }
}

/// A message that runs again, as after the death of a worker, changes nothing.
pub async fn a_message_has_one_effect_however_often_it_runs<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let push = Transfer { from: 0, to: 1, amount: 7 }.push();
    let id = bank.mill().push(TOPIC, push).await.expect("it is pushed");
    let worker = worker(&bank, transfer::<B>).await;
    worker.drained().await;
    bank.mill().admin().replay(TOPIC, "default", ReplayFrom::Start).await.expect("the group can begin anew");
    done(&worker, 2).await;
    worker.stop().await;
    let books = bank.books().await;
    assert_eq!(books.moves, [id.to_string()]);
    assert_eq!(books.balances[..2], [BALANCE - 7, BALANCE + 7]);
}

/// A message that a handler finished and then rolled back is not finished.
pub async fn what_is_rolled_back_is_tried_again<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let push = Transfer { from: 2, to: 3, amount: 5 }.push();
    let id = bank.mill().push(TOPIC, push).await.expect("it is pushed");
    let worker = worker(&bank, |bank: Arc<B>, message| async move {
        let (transfer, last) = (Transfer::of(&message), message.attempt() == 3);
        assert!(bank.transfer(&message, transfer, last).await?, "it was not finished before");
        if last { Ok(()) } else { Err(sawmill::Error::new(sawmill::ErrorKind::Unavailable, "not yet")) }
    })
    .await;
    done(&worker, 1).await;
    let counts = worker.stop().await;
    assert_eq!((counts.done, counts.failed, counts.dead), (1, 2, 0));
    assert_eq!(bank.books().await.moves, [id.to_string()]);
}

/// A handler that returns done without finishing the message has a bug.
pub async fn who_has_not_finished_is_not_done<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    bank.mill().push(TOPIC, "x").await.expect("it is pushed");
    let worker = bank.mill().worker(TOPIC).delivery(Delivery::ExactlyOnce).retry(RetryPolicy::none());
    let worker = worker.start(|_message: Context| async {}).await.expect("a worker can be started");
    soon("its end", worker.drained()).await;
    assert_eq!(worker.stop().await.dead, 1);
    let letters = bank.mill().admin().dead_letters(TOPIC, "default").await.expect("there are letters");
    let letters = letters.list(10).await.expect("they can be listed");
    assert!(letters[0].reason().contains("finish_within"), "{}", letters[0].reason());
}

/// Three workers, one of them killed every second: every message has exactly one effect.
pub async fn f6_killed_workers_move_every_amount_once<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let (env, mill) = (Env::system(), bank.mill());
    let seconds: u64 = std::env::var(SECONDS).map_or(10, |text| text.parse().expect("a number of seconds"));
    let mut hands: Vec<WorkerProcess> = (0..3).map(|_| WorkerProcess::start::<B>(&address)).collect();
    let (mut pushed, mut expected) = (HashSet::new(), vec![BALANCE; ACCOUNTS as usize]);
    for second in 0..seconds {
        let end = env.now() + Duration::from_secs(1);
        while env.now() < end {
            let rng = |bound: u32| env.rng().below(bound.into()) as u32;
            let transfers: Vec<Transfer> = (0..5)
                .map(|_| Transfer { from: rng(ACCOUNTS), to: rng(ACCOUNTS), amount: 1 + i64::from(rng(9)) })
                .collect();
            for transfer in &transfers {
                expected[transfer.from as usize] -= transfer.amount;
                expected[transfer.to as usize] += transfer.amount;
            }
            let ids = mill.push_many(TOPIC, transfers.iter().map(|transfer| transfer.push())).await;
            pushed.extend(ids.expect("they are pushed").iter().map(ToString::to_string));
            env.sleep(Duration::from_millis(30)).await;
        }
        let unlucky = (second % 3) as usize;
        hands[unlucky] = WorkerProcess::start::<B>(&address);
    }
    let missing = async || {
        let moves: HashSet<_> = bank.books().await.moves.into_iter().collect();
        pushed.iter().filter(|id| !moves.contains(*id)).count()
    };
    let all_moved = async {
        while missing().await > 0 {
            env.sleep(Duration::from_millis(100)).await;
        }
    };
    if env.within(MAX_WAIT, all_moved).await.is_none() {
        panic!("{}", timeout_message("the last transfer", mill, TOPIC, "default", missing).await);
    }
    // Repeated work is over once the claims of the killed workers are taken over and no message is left.
    let status = async || mill.admin().status(TOPIC, "default").await.expect("the group has a status");
    soon("the end of the last claim", async {
        while status().await.waiting + status().await.claimed > 0 {
            env.sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    drop(hands);
    let books = bank.books().await;
    assert_eq!(books.moves.len(), pushed.len(), "some messages had their effect twice");
    assert_eq!(books.moves.into_iter().collect::<HashSet<_>>(), pushed);
    assert_eq!(books.balances, expected);
    println!("{} transfers by three workers, one killed every second for {seconds} s", pushed.len());
}

/// A worker process. It is killed when this is dropped.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start<B: Bank>(address: &str) -> Self {
        let me = std::env::current_exe().expect("the test program knows itself");
        let child = Command::new(me)
            .args(["--exact", B::CHILD, "--nocapture", "--test-threads=1"])
            .env(VARIABLE, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("a worker process can be started"))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Its id is still valid, since it was not waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Works as a child process, until it is killed or its parent ends.
pub fn child<B: Bank>() {
    let Ok(address) = std::env::var(VARIABLE) else { return };
    block_on(async {
        let bank = open::<B>(&address).await;
        let worker = worker(&bank, transfer::<B>).await;
        // Its standard input closes when the parent ends.
        let parent = Env::system().blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        assert!(matches!(parent.await, Some(Ok(Ok(0)))), "the parent can be watched");
        worker.abort().await;
    });
}
