//! The suite for engines that can be written to within a user's own transactions: a shop and a bank in the same store.
//!
//! An engine brings a [`Bank`], which is what a user of its driver would write, and its test file says
//! `sawmill_conformance::bank_suite!(MyBank);`.

use std::any::Any;
use std::collections::HashSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::env::Env;
use sawmill::{Context, Delivery, Draft, Push, Result, RetryPolicy, Sawmill, Since, Worker};

use crate::waits::timeout_message;

/// How many accounts there are, and what is in each at the beginning.
pub const ACCOUNTS: u32 = 10;
/// What is in each account at the beginning.
pub const BALANCE: i64 = 1_000;

const TOPIC: &str = "transfers";
/// Tells a child process where its bank is.
const VARIABLE: &str = "SAWMILL_TEST_BANK";
/// For how many seconds workers are killed; more in longer runs.
const SECONDS: &str = "SAWMILL_TEST_BANK_SECONDS";
/// No wait is longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A shop and a bank that keep their tables where Sawmill keeps its own.
#[async_trait]
pub trait Bank: Send + Sync + Sized + 'static {
    /// Where the suite was made, and so the test that its worker processes run.
    const CHILD: &'static str = "bank_child";

    /// An address that nobody used before, and what keeps it alive; or why this engine cannot be tried here.
    fn place() -> Result<(String, Box<dyn Any>), String>;

    /// Opens Sawmill at an address, and makes the tables if they are not there: orders, [`ACCOUNTS`] accounts with
    /// [`BALANCE`] each, and moves.
    async fn open(address: &str) -> Self;

    /// What was opened.
    fn mill(&self) -> &Sawmill;

    /// Notes an order and pushes its e-mail in one transaction, which is committed or rolled back.
    async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()>;

    /// The orders, in any order.
    async fn orders(&self) -> Vec<String>;

    /// Finishes the message in a transaction, and if it was not finished before, moves money in it and notes the message's id.
    /// The transaction is committed or rolled back. True if it was not finished before.
    async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool>;

    /// What has become of it.
    async fn books(&self) -> Books;
}

/// An amount on its way from one account to another.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The number of the account that it leaves.
    pub from: u32,
    /// The number of the account that it goes to.
    pub to: u32,
    /// How much it is.
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
    /// What is in the accounts, by number.
    pub balances: Vec<i64>,
    /// The ids that were noted, one for each effect that a message had.
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

        /// What a child process runs. In the test program itself there is nothing for it to do.
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
    Env::system().within(PATIENCE, future).await.unwrap_or_else(|| panic!("test timed out: {what}"))
}

/// Waits until a worker has done so many messages.
async fn done(worker: &Worker, count: u64) {
    soon("the last run", async {
        while worker.counts().done < count {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A worker whose handler is given the bank.
async fn worker<B, F, R>(bank: &Arc<B>, handler: F) -> Worker
where
    B: Bank,
    F: Fn(Arc<B>, Context) -> R + Send + Sync + Clone + 'static,
    R: Future<Output = Result<()>> + Send + 'static,
{
    let mine = bank.clone();
    let run = move |message: Context| handler(mine.clone(), message);
    // With the shortest wait between attempts, and without any limit that could be reached here.
    let retry = RetryPolicy::retries(1_000).backoff(Duration::from_millis(10), Duration::from_millis(100));
    let worker = bank.mill().worker(TOPIC).delivery(Delivery::ExactlyOnce).retry(retry);
    worker.ttl(Duration::from_secs(2)).slots(4).start(run).await.expect("a worker can be started")
}

/// Moves what the message says, once.
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
    let found = bank.mill().peek(TOPIC, "default", 10).await.expect("the topic can be read");
    let found: Vec<_> = found.iter().map(|message| message.id).collect();
    assert_eq!(found, kept.ids().collect::<Vec<_>>());
}

/// Workers hear of it at once, also those of another process.
pub async fn an_announced_push_is_worked<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    // If it were not for the hint, nobody would look for a while.
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
    draft.announce();
    let id = soon("the start", starts.recv()).await;
    assert_eq!(id, draft.ids().next());
    worker.stop().await;
}

/// Key, headers, payload and due time come out as they went in.
pub async fn what_is_pushed_within_a_transaction_is_whole<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let odd: Vec<u8> = (0..=255).chain([b'\'', b'\\', 0, b'"']).collect();
    let push = || Push::new(odd.clone()).key(odd[..200].to_vec()).header("a'b", odd.clone());
    let due = Env::system().wall() + Duration::from_millis(1_500);
    let pushes = [push(), push().at(due), Push::new("")];
    let draft = bank.mill().draft(TOPIC, pushes).await.expect("it can be drafted");
    bank.order("odd", &draft, true).await.expect("an order is committed");
    draft.announce();
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

/// Running a message again, as after the death of a worker, changes nothing.
pub async fn a_message_has_one_effect_however_often_it_runs<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let push = Transfer { from: 0, to: 1, amount: 7 }.push();
    let id = bank.mill().push(TOPIC, push).await.expect("it is pushed");
    let worker = worker(&bank, transfer::<B>).await;
    worker.drained().await;
    bank.mill().seek(TOPIC, "default", Since::Start).await.expect("the group can begin anew");
    done(&worker, 2).await;
    worker.stop().await;
    let books = bank.books().await;
    assert_eq!(books.moves, [id.to_string()]);
    assert_eq!(books.balances[..2], [BALANCE - 7, BALANCE + 7]);
}

/// What a handler has finished and then rolled back is not finished.
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

/// A handler that says that it is done and has not finished has made a mistake.
pub async fn who_has_not_finished_is_not_done<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    bank.mill().push(TOPIC, "x").await.expect("it is pushed");
    let worker = bank.mill().worker(TOPIC).delivery(Delivery::ExactlyOnce).retry(RetryPolicy::none());
    let worker = worker.start(|_message: Context| async {}).await.expect("a worker can be started");
    soon("its end", worker.drained()).await;
    assert_eq!(worker.stop().await.dead, 1);
    let letters = bank.mill().dead_letters(TOPIC, "default").await.expect("there are letters");
    let letters = letters.list(10).await.expect("they can be listed");
    assert!(letters[0].reason().contains("finish_within"), "{}", letters[0].reason());
}

/// Three workers, of which one is killed every second: every message has exactly one effect.
pub async fn f6_killed_workers_move_every_amount_once<B: Bank>(address: String) {
    let bank = open::<B>(&address).await;
    let (env, mill) = (Env::system(), bank.mill());
    let seconds: u64 = std::env::var(SECONDS).map_or(10, |text| text.parse().expect("a number of seconds"));
    let mut hands: Vec<Hand> = (0..3).map(|_| Hand::start::<B>(&address)).collect();
    let (mut pushed, mut expected) = (HashSet::new(), vec![BALANCE; ACCOUNTS as usize]);
    for second in 0..seconds {
        let end = env.now() + Duration::from_secs(1);
        while env.now() < end {
            let dice = |bound: u32| env.dice().below(bound.into()) as u32;
            let transfers: Vec<Transfer> = (0..5)
                .map(|_| Transfer {
                    from: dice(ACCOUNTS),
                    to: dice(ACCOUNTS),
                    amount: 1 + i64::from(dice(9)),
                })
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
        hands[unlucky] = Hand::start::<B>(&address);
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
    if env.within(PATIENCE, all_moved).await.is_none() {
        panic!("{}", timeout_message("the last transfer", mill, TOPIC, "default", missing).await);
    }
    // Whatever is done twice is done by now: the claims of the killed are taken over.
    let status = async || mill.status(TOPIC, "default").await.expect("the group has a status");
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
struct Hand(Child);

impl Hand {
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

impl Drop for Hand {
    fn drop(&mut self) {
        // It is still there: nobody else waits for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The work of a child process, until it is killed, or its parent is.
pub fn child<B: Bank>() {
    let Ok(address) = std::env::var(VARIABLE) else { return };
    block_on(async {
        let bank = open::<B>(&address).await;
        let worker = worker(&bank, transfer::<B>).await;
        // It ends when the parent does.
        let parent = Env::system().blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        assert!(matches!(parent.await, Some(Ok(Ok(0)))), "the parent can be watched");
        worker.abort().await;
    });
}
