//! A load, and what must hold whatever happens to the server meanwhile: one who pushes, and two groups of workers, one of
//! which runs a message at most once.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::clock::{Clock, Moment, SystemClock};
use sawmill::env::Env;
use sawmill::{Context, Delivery, ErrorKind, MessageId, Sawmill, Worker};
use sawmill_conformance::history::{Event, History, Recorded};
use sawmill_postgres::PostgresEngine;
use tokio::sync::oneshot;

use crate::support::{namespace, soon};

const TOPIC: &str = "jobs";
const GROUPS: [(&str, Delivery); 2] = [("least", Delivery::AtLeastOnce), ("most", Delivery::AtMostOnce)];
/// Longer than any server here is away: nobody is to be declared dead.
const TTL: Duration = Duration::from_secs(15);

/// When a message may be run again under at-least-once, though no worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    Never,
    /// A server that crashes may undo the latest claims.
    AfterCrash,
}

/// What happened in each group.
#[derive(Default)]
struct Log {
    events: Mutex<Vec<Recorded>>,
    /// How often each payload was started: pushes whose outcome is unknown count, too.
    payloads: Mutex<BTreeMap<Vec<u8>, usize>>,
}

impl Log {
    fn note(&self, event: Event) {
        let at = SystemClock.now().since(Moment::default()).as_nanos() as u64;
        self.events.lock().unwrap().push(Recorded { at, event });
    }

    fn history(&self) -> History {
        History::new(self.events.lock().unwrap().clone())
    }

    fn over(&self) -> HashSet<MessageId> {
        let events = self.events.lock().unwrap();
        let over = |recorded: &Recorded| match recorded.event {
            Event::Finished { id, .. } | Event::Dead { id } => Some(id),
            _ => None,
        };
        events.iter().filter_map(over).collect()
    }

    fn started(&self, id: MessageId) -> bool {
        let is = |event: &Event| matches!(event, Event::Started { id: started, .. } if *started == id);
        self.events.lock().unwrap().iter().any(|recorded| is(&recorded.event))
    }
}

pub(crate) struct Load {
    mill: Sawmill,
    workers: Vec<Worker>,
    groups: [Arc<Log>; 2],
    acknowledged: Arc<Mutex<Vec<MessageId>>>,
    failed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// Says when nothing more is pushed.
    pusher: oneshot::Receiver<()>,
}

impl Load {
    pub(crate) async fn start(url: &str) -> Self {
        let namespace = namespace();
        let open = async || {
            let engine = PostgresEngine::default().connections(3);
            Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
        };
        let mill = open().await;
        mill.create_topic(TOPIC).await.unwrap();
        let mut workers = Vec::new();
        let groups = [Arc::new(Log::default()), Arc::new(Log::default())];
        for ((group, delivery), log) in GROUPS.into_iter().zip(&groups) {
            for nth in 0..2 {
                let name = format!("{group}-{nth}");
                let mill = open().await;
                let builder =
                    mill.worker(TOPIC).group(group).name(&name).slots(4).ttl(TTL).delivery(delivery);
                let log = log.clone();
                let handler = move |context: Context| run(log.clone(), name.clone(), context);
                workers.push(builder.start(handler).await.unwrap());
            }
        }
        let (acknowledged, failed) = (Arc::<Mutex<_>>::default(), Arc::<AtomicU64>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let pushing = push(mill.clone(), acknowledged.clone(), failed.clone(), stop.clone());
        let (ended, pusher) = oneshot::channel();
        Env::system().spawn(async move {
            pushing.await;
            let _ = ended.send(());
        });
        Self { mill, workers, groups, acknowledged, failed, stop, pusher }
    }

    /// Waits until each group has run so many more messages.
    pub(crate) async fn runs(&self, more: usize) {
        for group in &self.groups {
            let goal = group.over().len() + more;
            until("messages are run", || group.over().len() >= goal).await;
        }
    }

    /// The fault is over now: waits until a new message is taken, and run by both groups. Says how long that took.
    pub(crate) async fn recovers(&mut self, from: &str) {
        let began = SystemClock.now();
        let push = async {
            loop {
                match self.mill.push(TOPIC, format!("after {from}, {began:?}")).await {
                    Ok(id) => break id,
                    Err(error) => expected(error.kind(), &error),
                }
                SystemClock.sleep(Duration::from_millis(5)).await;
            }
        };
        let id = soon("a push", push).await;
        let taken = SystemClock.now().since(began);
        self.acknowledged.lock().unwrap().push(id);
        for group in &self.groups {
            until("both groups go on", || group.started(id)).await;
        }
        let run = SystemClock.now().since(began);
        eprintln!("{from}: a push was taken after {taken:.1?}, and run by both groups after {run:.1?}");
    }

    /// Ends the load, lets all that waits be run, and looks at what happened.
    pub(crate) async fn end(mut self, repeats: Repeats) {
        self.stop.store(true, Ordering::SeqCst);
        (&mut self.pusher).await.unwrap();
        let pushed = self.acknowledged.lock().unwrap().clone();
        for ((group, _), log) in GROUPS.into_iter().zip(&self.groups) {
            let all_over = async {
                loop {
                    let letters = self.mill.dead_letters(TOPIC, group).await.unwrap();
                    let dead: Vec<_> = letters.list(usize::MAX).await.unwrap();
                    let mut over = log.over();
                    over.extend(dead.iter().map(|letter| letter.id()));
                    if pushed.iter().all(|id| over.contains(id)) {
                        break dead;
                    }
                    SystemClock.sleep(Duration::from_millis(100)).await;
                }
            };
            let dead = soon(&format!("the end of all messages in the group {group:?}"), all_over).await;
            assert!(dead.is_empty(), "no worker died, but in the group {group:?} {} were lost", dead.len());
        }
        let drained = async {
            for (group, _) in GROUPS {
                loop {
                    let status = self.mill.status(TOPIC, group).await.unwrap();
                    if status.waiting + status.claimed + status.retrying == 0 {
                        break;
                    }
                    SystemClock.sleep(Duration::from_millis(50)).await;
                }
            }
        };
        soon("drained groups", drained).await;
        for worker in std::mem::take(&mut self.workers) {
            worker.stop().await;
        }
        self.look(&pushed, repeats);
    }

    fn look(&self, pushed: &[MessageId], repeats: Repeats) {
        let [least, most] = &self.groups;
        let none = |what: &str, violations: Vec<String>| {
            let some = &violations[..violations.len().min(5)];
            assert!(violations.is_empty(), "{what}: {} violations: {some:?}", violations.len());
        };
        none("started twice", most.history().check_at_most_once());
        for (payload, times) in &*most.payloads.lock().unwrap() {
            assert_eq!(*times, 1, "{} was started so often", String::from_utf8_lossy(payload));
        }
        if repeats == Repeats::Never {
            none("started again without need", least.history().check_second_starts_have_a_reason());
        }
        let starts: usize = least.payloads.lock().unwrap().values().sum();
        let different = least.payloads.lock().unwrap().len();
        eprintln!(
            "{} messages acknowledged, {} pushes failed or unknown; at least once: {} run again",
            pushed.len(),
            self.failed.load(Ordering::SeqCst),
            starts - different
        );
    }
}

/// A handler that notes what it does.
async fn run(log: Arc<Log>, worker: String, context: Context) {
    let id = context.id();
    *log.payloads.lock().unwrap().entry(context.payload().to_vec()).or_default() += 1;
    log.note(Event::Started { id, key: None, worker: worker.clone(), attempt: context.attempt() });
    Env::system().sleep(Duration::from_millis(2)).await;
    log.note(Event::Finished { id, worker, ok: true });
}

/// Pushes until it is told to stop. What fails is not pushed again: so no payload is there twice.
async fn push(
    mill: Sawmill,
    acknowledged: Arc<Mutex<Vec<MessageId>>>,
    failed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) {
    let mut round = 0u64;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let batch: Vec<String> = (0..1 + round % 7).map(|nth| format!("{round} {nth}")).collect();
        match mill.push_many(TOPIC, batch).await {
            Ok(ids) => acknowledged.lock().unwrap().extend(ids),
            Err(error) => {
                expected(error.kind(), &error);
                failed.fetch_add(1, Ordering::SeqCst);
            }
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

/// What may be answered while the server is away.
fn expected(kind: ErrorKind, error: &sawmill::Error) {
    assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            SystemClock.sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, waiting).await;
}
