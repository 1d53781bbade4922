//! A load on a store while a test harms its servers: they are restarted or killed, or connections are cut.
//!
//! Producers push all the time, and two groups of workers run the messages: one at least once, one at most
//! once. Whatever the test does meanwhile, no acknowledged message is lost, none runs twice that must not,
//! and work resumes by itself:
//!
//! ```
//! use std::time::Duration;
//! use sawmill::Sawmill;
//! use sawmill::engine::storage::MemoryEngine;
//! use sawmill_conformance::trial::{Trial, Worst};
//!
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let mill = Sawmill::options().engine(MemoryEngine::default()).open("memory:").await.unwrap();
//! let mut trial = Trial::start(async || mill.clone(), Duration::from_secs(60)).await;
//! trial.runs(20).await;
//! // Here a test would do its harm.
//! trial.recovers("nothing").await;
//! trial.end(Worst::Once).await;
//! # });
//! ```

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sawmill::admin::DeadLetter;
use sawmill::engine::runtime::{Env, Moment};
use sawmill::{Context, Delivery, Error, ErrorKind, MessageId, Result, Sawmill, Worker};
use tokio::sync::oneshot;

use crate::history::{Event, History, Recorded};
use crate::waits::timeout_message;

const TOPIC: &str = "trial";
/// Each group sees every message.
const GROUPS: [(&str, Delivery); 2] = [("least", Delivery::AtLeastOnce), ("most", Delivery::AtMostOnce)];
const WORKERS: usize = 2;
/// The most messages that a worker may have claimed: so many may run again, or be given up, per worker and
/// harm.
const MAX_CLAIMED: usize = 40;
const PUSHERS: usize = 2;
/// Producers pause at this backlog. The trial measures how soon work resumes, not how fast a backlog is
/// handled.
const MAX_BACKLOG: usize = 500;
/// When the harm is over, work must resume within a worker's TTL plus this time.
const GRACE: Duration = Duration::from_secs(5);
/// The longest wait, unless something hangs.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// The worst that may happen to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worst {
    /// Each group runs each message once.
    Once,
    /// The at-least-once group may run some again, because the store lost the latest claims.
    Again,
    /// Workers may be declared dead: one group runs their messages again, the other gives them up.
    GivenUp,
}

impl Worst {
    /// Returns how many messages may have run again, and how many were given up, after this many harms. A
    /// stall of the machine can add deaths of workers; each of them rejoins.
    fn limits(self, harms: usize, rejoined: u64) -> (usize, usize) {
        let deaths = if self == Worst::GivenUp { rejoined as usize } else { 0 };
        let held = (harms * WORKERS).max(deaths) * MAX_CLAIMED;
        match self {
            Worst::Once => (0, 0),
            Worst::Again => (held, 0),
            Worst::GivenUp => (held, held),
        }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// The number of acknowledged messages.
    pub acknowledged: usize,
    /// The number of pushes that failed or have an unknown outcome.
    pub failed: usize,
    /// The number of messages that the at-least-once group ran again.
    pub again: usize,
    /// The number of messages that the at-most-once group gave up as dead letters.
    pub given_up: usize,
    /// How often a worker was declared dead and rejoined.
    pub rejoined: u64,
    /// The longest time without an acknowledged push.
    pub longest_without_push: Duration,
    /// The longest time in which a group started nothing.
    pub longest_without_start: Duration,
}

/// The events of one group.
#[derive(Default)]
struct Group {
    events: Mutex<Vec<Recorded>>,
    /// The starts of each payload, including pushes with an unknown outcome.
    payloads: Mutex<BTreeMap<Vec<u8>, usize>>,
}

/// The results of the pushes.
#[derive(Default)]
struct Pushed {
    acknowledged: Mutex<Vec<(MessageId, u64)>>,
    failed: Mutex<usize>,
    stop: AtomicBool,
}

/// A load that runs until it is ended.
pub struct Trial {
    mill: Sawmill,
    ttl: Duration,
    workers: Vec<Worker>,
    groups: [Arc<Group>; 2],
    pushed: Arc<Pushed>,
    /// Each completes when its pusher has stopped.
    pushers: Vec<oneshot::Receiver<()>>,
    /// The number of harms that are over.
    harms: usize,
    /// Harms after which work resumed too late. Reported at the end, once nothing worse is found.
    late: Vec<String>,
}

impl Trial {
    /// Starts pushers and workers with this TTL. `open` opens the store anew for each worker.
    pub async fn start(open: impl AsyncFn() -> Sawmill, ttl: Duration) -> Self {
        let mill = open().await;
        mill.create_topic(TOPIC).await.expect("a topic");
        let (groups, mut workers) = ([Arc::new(Group::default()), Arc::new(Group::default())], Vec::new());
        for ((name, delivery), group) in GROUPS.into_iter().zip(&groups) {
            for nth in 0..WORKERS {
                let worker = format!("{name}-{nth}");
                let mill = open().await;
                let builder = mill.worker(TOPIC).group(name).name(&worker).delivery(delivery);
                let builder = builder.concurrency(4).max_in_flight(MAX_CLAIMED).ttl(ttl);
                let group = group.clone();
                let handler = move |context: Context| run(group.clone(), worker.clone(), context);
                workers.push(builder.start(handler).await.expect("a worker"));
            }
        }
        let (pushed, mut pushers) = (Arc::<Pushed>::default(), Vec::new());
        for pusher in 0..PUSHERS {
            let pushing = push(pusher, open().await, pushed.clone(), groups.clone());
            let (ended, end) = oneshot::channel();
            Env::system().spawn(async move {
                pushing.await;
                let _ = ended.send(());
            });
            pushers.push(end);
        }
        Self { mill, ttl, workers, groups, pushed, pushers, harms: 0, late: Vec::new() }
    }

    /// Returns how many messages each group has started so far.
    pub fn starts(&self) -> [usize; 2] {
        self.groups.each_ref().map(|group| locked(&group.payloads).values().sum())
    }

    /// Waits until each group has started this many more messages.
    pub async fn runs(&self, more: usize) {
        let goal = self.starts().map(|starts| starts + more);
        until("messages are run", || self.starts().iter().zip(goal).all(|(now, goal)| *now >= goal)).await;
    }

    /// Call when the harm is over: waits until a new message is accepted and started by both groups, and prints
    /// how long that took.
    pub async fn recovers(&mut self, from: &str) {
        self.harms += 1;
        let env = Env::system();
        let began = env.now();
        let attempt = AtomicUsize::new(0);
        let push = answered(async || {
            // A failed push may still have arrived, so each attempt has its own payload.
            let attempt = attempt.fetch_add(1, Ordering::SeqCst);
            self.mill.push(TOPIC, format!("after {from}, {began:?}, {attempt}")).await
        });
        let id = soon("a push", push).await;
        let taken = env.now().since(began);
        locked(&self.pushed.acknowledged).push((id, now()));
        for ((name, _), group) in GROUPS.into_iter().zip(&self.groups) {
            let goes_on = async {
                while !group.has_started(id) {
                    env.sleep(Duration::from_millis(2)).await;
                }
            };
            if env.within(MAX_WAIT, goes_on).await.is_none() {
                let missing = async || self.missing(name, group, &[(id, 0)]).await;
                panic!("{}", timeout_message("both groups go on", &self.mill, TOPIC, name, missing).await);
            }
        }
        let run = env.now().since(began);
        eprintln!("{from}: a push was taken after {taken:.1?}, and started by both groups after {run:.1?}");
        let most = self.ttl + GRACE;
        if run >= most {
            self.late.push(format!("work goes on within {most:?} after {from}; it took {run:.1?}"));
        }
    }

    /// Ends the load, waits until all messages have run, and checks the result against the promises.
    pub async fn end(mut self, worst: Worst) -> Summary {
        self.pushed.stop.store(true, Ordering::SeqCst);
        for pusher in &mut self.pushers {
            pusher.await.expect("a pusher that ends");
        }
        let acknowledged = locked(&self.pushed.acknowledged).clone();
        let mut given_up = [const { Vec::new() }; 2];
        for (((name, _), group), given_up) in GROUPS.into_iter().zip(&self.groups).zip(&mut given_up) {
            let over = async {
                loop {
                    match self.missing(name, group, &acknowledged).await {
                        0 if self.is_drained(name).await => break self.dead(name).await,
                        _ => Env::system().sleep(Duration::from_millis(50)).await,
                    }
                }
            };
            *given_up = match Env::system().within(MAX_WAIT, over).await {
                Some(dead) => dead,
                None => {
                    let missing = async || self.missing(name, group, &acknowledged).await;
                    panic!("{}", timeout_message("all is run", &self.mill, TOPIC, name, missing).await)
                }
            };
        }
        let mut rejoined = 0;
        for worker in std::mem::take(&mut self.workers) {
            rejoined += worker.stop().await.rejoined;
        }
        let [least, most] = &self.groups;
        let summary = Summary {
            acknowledged: acknowledged.len(),
            failed: *locked(&self.pushed.failed),
            again: locked(&least.payloads).values().map(|times| times - 1).sum(),
            given_up: given_up[1].len(),
            rejoined,
            longest_without_push: longest_pause(acknowledged.iter().map(|(_, at)| *at)),
            longest_without_start: longest_pause(least.start_times()).max(longest_pause(most.start_times())),
        };
        eprintln!("{summary:?}");
        assert!(given_up[0].is_empty(), "given up, though they may be run again: {:?}", given_up[0].first());
        let without_a_cause = given_up[1].iter().find(|letter| !letter.reason().starts_with("lost"));
        assert!(without_a_cause.is_none(), "given up, though no worker died: {without_a_cause:?}");
        assert_none("started twice", most.history().check_at_most_once());
        let doubled = locked(&most.payloads).iter().filter(|(_, times)| **times > 1).count();
        assert_eq!(doubled, 0, "messages of one push were started twice");
        // A worker with a late heartbeat is declared dead, and its messages run again or are given up. If the
        // harm itself is over in time, only a busy machine delays a heartbeat so much.
        let outed = worst < Worst::GivenUp && rejoined > 0;
        let excuse = if outed { "test timed out: the next heartbeat of a live worker; " } else { "" };
        if worst < Worst::Again {
            let again = least.history().check_second_starts_have_a_reason();
            assert_none(&format!("{excuse}started again without need"), again);
        }
        let (most_again, most_given_up) = worst.limits(self.harms, rejoined);
        assert!(
            summary.again <= most_again,
            "{excuse}more than {most_again} were started again: {summary:?}"
        );
        assert!(
            summary.given_up <= most_given_up,
            "{excuse}more than {most_given_up} were given up: {summary:?}"
        );
        assert!(self.late.is_empty(), "test timed out: {}", self.late.join("; "));
        summary
    }

    async fn dead(&self, group: &str) -> Vec<DeadLetter> {
        answered(async || self.mill.admin().dead_letters(TOPIC, group).await?.list(usize::MAX).await).await
    }

    async fn is_drained(&self, group: &str) -> bool {
        let status = answered(async || self.mill.admin().status(TOPIC, group).await).await;
        status.waiting + status.claimed + status.retrying == 0
    }

    /// Returns how many acknowledged messages this group has neither started nor given up.
    async fn missing(&self, name: &str, group: &Group, acknowledged: &[(MessageId, u64)]) -> usize {
        let dead: HashSet<MessageId> = self.dead(name).await.iter().map(DeadLetter::id).collect();
        let started = group.started();
        acknowledged.iter().filter(|(id, _)| !started.contains(id) && !dead.contains(id)).count()
    }
}

impl Group {
    fn note(&self, event: Event) {
        locked(&self.events).push(Recorded { at: now(), event });
    }

    fn history(&self) -> History {
        History::new(locked(&self.events).clone())
    }

    fn started(&self) -> HashSet<MessageId> {
        locked(&self.events).iter().filter_map(|recorded| started(&recorded.event)).collect()
    }

    fn has_started(&self, id: MessageId) -> bool {
        locked(&self.events).iter().rev().any(|recorded| started(&recorded.event) == Some(id))
    }

    fn start_times(&self) -> Vec<u64> {
        let events = locked(&self.events);
        events
            .iter()
            .filter(|recorded| started(&recorded.event).is_some())
            .map(|recorded| recorded.at)
            .collect()
    }
}

fn started(event: &Event) -> Option<MessageId> {
    match event {
        Event::Started { id, .. } => Some(*id),
        _ => None,
    }
}

/// Records its start and end.
async fn run(group: Arc<Group>, worker: String, context: Context) {
    let id = context.id();
    *locked(&group.payloads).entry(context.payload().to_vec()).or_default() += 1;
    group.note(Event::Started { id, key: None, worker: worker.clone(), attempt: context.attempt() });
    Env::system().sleep(Duration::from_millis(2)).await;
    group.note(Event::Finished { id, worker, ok: true });
}

/// Pushes until stopped. Failed pushes are not repeated, so payloads are unique.
async fn push(pusher: usize, mill: Sawmill, pushed: Arc<Pushed>, groups: [Arc<Group>; 2]) {
    let mut round = 0;
    while !pushed.stop.load(Ordering::SeqCst) {
        // The group that gives nothing up.
        let (taken, run) = (locked(&pushed.acknowledged).len(), locked(&groups[0].payloads).len());
        if taken.saturating_sub(run) > MAX_BACKLOG {
            Env::system().sleep(Duration::from_millis(10)).await;
            continue;
        }
        round += 1;
        let batch: Vec<String> = (0..1 + round % 7).map(|nth| format!("{pusher} {round} {nth}")).collect();
        match mill.push_many(TOPIC, batch).await {
            Ok(ids) => {
                let now = now();
                locked(&pushed.acknowledged).extend(ids.into_iter().map(|id| (id, now)));
            }
            Err(error) => {
                assert_is_of_the_harm(&error);
                *locked(&pushed.failed) += 1;
            }
        }
        Env::system().sleep(Duration::from_millis(10)).await;
    }
}

/// Repeats a call until the store answers. A connection may come back later than the server does.
async fn answered<T>(ask: impl AsyncFn() -> Result<T>) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert_is_of_the_harm(&error),
        }
        Env::system().sleep(Duration::from_millis(5)).await;
    }
}

fn assert_is_of_the_harm(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
}

fn assert_none(what: &str, violations: Vec<String>) {
    let some = &violations[..violations.len().min(5)];
    assert!(violations.is_empty(), "{what}: {} violations: {some:?}", violations.len());
}

/// Returns nanoseconds on this process's clock.
fn now() -> u64 {
    Env::system().now().since(Moment::default()).as_nanos() as u64
}

fn longest_pause(times: impl IntoIterator<Item = u64>) -> Duration {
    let mut times: Vec<u64> = times.into_iter().collect();
    times.sort_unstable();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    Duration::from_nanos(longest.unwrap_or_default())
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    Env::system().within(MAX_WAIT, future).await.unwrap_or_else(|| panic!("test timed out: {what}"))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            Env::system().sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, waiting).await;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_happen_again_is_what_workers_may_have_claimed() {
        assert_eq!(Worst::Once.limits(3, 1), (0, 0));
        assert_eq!(Worst::Again.limits(3, 7), (240, 0));
        assert_eq!(Worst::GivenUp.limits(1, 0), (80, 80));
        assert_eq!(Worst::GivenUp.limits(1, 3), (120, 120));
    }

    #[test]
    fn the_longest_pause_is_between_two_that_follow_each_other() {
        assert_eq!(longest_pause([7, 1, 3, 20]), Duration::from_nanos(13));
        assert_eq!(longest_pause([5]), Duration::ZERO);
    }
}
