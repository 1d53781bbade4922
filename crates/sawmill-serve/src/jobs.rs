//! Jobs that are out: workers in this process whose messages are pulled over HTTP, and the receipts by which they are answered.
//!
//! There is one worker for each topic, group and set of rules that is asked for. It joins with the first pull, and leaves when
//! nobody has asked for a while: what it has in hand goes to others, and what is out can still be answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Delivery, ErrorKind, Job, Puller, RetryPolicy, Sawmill};
use tokio::sync::OnceCell;

use crate::answer::{Answer, Problem};
use crate::body::{Place, Room};
use crate::{App, locked};

/// How many jobs of a worker may be out at once, and how many workers there may be.
const SLOTS: usize = 1_000;
const MOST_WORKERS: usize = 200;
/// After how long without a pull a worker leaves, and how often that is looked at.
const IDLE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(5);
/// How long the receipt of a job that is out of time is kept, so that its answer is told why it does not count.
const KEPT: Duration = Duration::from_secs(60);
/// How long those who have one message wait for more.
const LINGER: Duration = Duration::from_millis(10);
/// Who has so many bytes of messages is given no more at once.
const ENOUGH_BYTES: usize = 16 << 20;
/// The most bytes of messages that are out: each is kept until it is answered or late.
const MOST_BYTES: usize = 256 << 20;

/// What a worker goes by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Terms {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) ordered: bool,
    pub(crate) at_most_once: bool,
    pub(crate) retries: u32,
}

/// What somebody asks for.
pub(crate) struct Ask {
    pub(crate) most: usize,
    pub(crate) wait: Duration,
    pub(crate) limit: Duration,
}

/// A job that is handed out. Who hangs up before it is sent never had it: it is given back when this is dropped.
pub(crate) struct Handed {
    pub(crate) receipt: String,
    pub(crate) context: sawmill::Context,
    worker: Arc<PullWorker>,
    out: Arc<Mutex<HashMap<String, Out>>>,
    is_sent: bool,
}

impl Handed {
    /// The answer with its receipt is on its way.
    pub(crate) fn sent(mut self) {
        self.is_sent = true;
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if self.is_sent {
            return;
        }
        let out = locked(&self.out).remove(&self.receipt);
        if let Some(out) = out {
            self.worker.has_unasked.store(true, Ordering::SeqCst);
            out.job.give_back();
        }
    }
}

pub(crate) struct Jobs {
    mill: Sawmill,
    env: Env,
    idle: Duration,
    linger: Duration,
    room: Room,
    workers: Mutex<BTreeMap<Terms, Arc<PullWorker>>>,
    /// Workers that were told to leave and wait for what is out.
    leaving: Arc<Mutex<Vec<Arc<PullWorker>>>>,
    out: Arc<Mutex<HashMap<String, Out>>>,
}

struct PullWorker {
    puller: OnceCell<Puller>,
    asking: AtomicUsize,
    asked: Mutex<Moment>,
    /// It was given back what nobody has asked for since: others shall have it soon.
    has_unasked: AtomicBool,
}

impl PullWorker {
    fn is_idle(&self, now: Moment, idle: Duration) -> bool {
        let is_long = || now.since(*locked(&self.asked)) > idle;
        self.asking.load(Ordering::SeqCst) == 0 && (self.has_unasked.load(Ordering::SeqCst) || is_long())
    }
}

/// A job that is out.
struct Out {
    topic: String,
    job: Job,
    until: Moment,
    _place: Place,
}

/// Somebody waits.
struct Asking<'a> {
    jobs: &'a Jobs,
    worker: Arc<PullWorker>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        *locked(&self.worker.asked) = self.jobs.env.now();
        self.worker.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Jobs {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        let (workers, leaving, out) = (Mutex::default(), Arc::default(), Arc::default());
        Self { mill, env, idle: IDLE, linger: LINGER, room: Room::new(MOST_BYTES), workers, leaving, out }
    }

    /// The next messages; none if none came in time.
    pub(crate) async fn pull(&self, terms: &Terms, ask: &Ask) -> Answer<Vec<Handed>> {
        let until = self.env.now() + ask.wait;
        loop {
            let asking = self.ask(terms)?;
            let puller = match asking.worker.puller.get_or_try_init(|| self.start(terms)).await {
                Ok(puller) => puller,
                Err(error) => {
                    self.forget(terms, &asking.worker);
                    let is_other = error.kind() == ErrorKind::Invalid;
                    let problem = Problem::from(error);
                    // All else was looked at before: others of this group go by other rules.
                    return Err(if is_other {
                        Problem { status: StatusCode::CONFLICT, ..problem }
                    } else {
                        problem
                    });
                }
            };
            let mut pulls: FuturesUnordered<_> = (0..ask.most).map(|_| puller.pull_for(ask.limit)).collect();
            let left = until.since(self.env.now());
            match self.env.within(left, pulls.next()).await {
                None | Some(None) => return Ok(Vec::new()),
                // It has stopped: it was idle in the moment before, or its topic is gone, which the next one is told.
                Some(Some(None)) => self.forget(terms, &asking.worker),
                Some(Some(Some(job))) => {
                    let mut bytes = job.context().payload().len();
                    let Some(first) = self.hand_out(&asking, terms, job, ask.limit) else {
                        return Err(too_much_is_out());
                    };
                    let mut handed = vec![first];
                    while bytes < ENOUGH_BYTES
                        && let Some(Some(Some(job))) = self.env.within(self.linger, pulls.next()).await
                    {
                        bytes += job.context().payload().len();
                        let Some(next) = self.hand_out(&asking, terms, job, ask.limit) else { break };
                        handed.push(next);
                    }
                    return Ok(handed);
                }
            }
        }
    }

    fn ask(&self, terms: &Terms) -> Answer<Asking<'_>> {
        let mut workers = locked(&self.workers);
        if workers.len() + locked(&self.leaving).len() >= MOST_WORKERS && !workers.contains_key(terms) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("this server pulls for {MOST_WORKERS} groups already"),
                "try again later, or start another server",
            ));
        }
        let worker = workers.entry(terms.clone()).or_insert_with(|| {
            let asked = Mutex::new(self.env.now());
            let (puller, asking, has_unasked) = Default::default();
            Arc::new(PullWorker { puller, asking, asked, has_unasked })
        });
        worker.asking.fetch_add(1, Ordering::SeqCst);
        worker.has_unasked.store(false, Ordering::SeqCst);
        Ok(Asking { jobs: self, worker: worker.clone() })
    }

    async fn start(&self, terms: &Terms) -> sawmill::Result<Puller> {
        let mut builder = self
            .mill
            .worker(&terms.topic)
            .group(&terms.group)
            .name("http")
            .slots(SLOTS)
            // A retry at once would wait in hand for the next pull, which may never come.
            .retry(RetryPolicy::retries(terms.retries).immediate(0));
        if terms.ordered {
            builder = builder.ordered();
        }
        if terms.at_most_once {
            builder = builder.delivery(Delivery::AtMostOnce);
        }
        builder.pull().await
    }

    fn forget(&self, terms: &Terms, worker: &Arc<PullWorker>) {
        let mut workers = locked(&self.workers);
        if workers.get(terms).is_some_and(|there| Arc::ptr_eq(there, worker)) {
            workers.remove(terms);
            self.leave(worker.clone());
        }
    }

    /// Has a worker leave when all that is out of it is answered or late. Until then it is known, as it may have to leave at once.
    fn leave(&self, worker: Arc<PullWorker>) {
        locked(&self.leaving).push(worker.clone());
        let leaving = self.leaving.clone();
        self.env.spawn(async move {
            if let Some(puller) = worker.puller.get() {
                puller.worker().stop().await;
            }
            locked(&leaving).retain(|other| !Arc::ptr_eq(other, &worker));
        });
    }

    /// Hands out a job; if there is no room for it, it is given back.
    fn hand_out(&self, asking: &Asking<'_>, terms: &Terms, job: Job, limit: Duration) -> Option<Handed> {
        let mut place = Place::default();
        if !self.room.widen(&mut place, job.context().payload().len()) {
            asking.worker.has_unasked.store(true, Ordering::SeqCst);
            job.give_back();
            return None;
        }
        let dice = self.env.dice();
        let receipt = format!("{:016x}{:016x}", dice.roll(), dice.roll());
        let context = job.context().clone();
        let out = Out { topic: terms.topic.clone(), job, until: self.env.now() + limit, _place: place };
        locked(&self.out).insert(receipt.clone(), out);
        let worker = asking.worker.clone();
        Some(Handed { receipt, context, worker, out: self.out.clone(), is_sent: false })
    }

    /// Takes a job to answer it.
    pub(crate) fn take(&self, topic: &str, receipt: &str) -> Answer<Job> {
        let mut out = locked(&self.out);
        match out.get(receipt) {
            Some(there) if there.topic == topic => {}
            _ => return Err(unknown(receipt)),
        }
        out.remove(receipt).map(|out| out.job).ok_or_else(|| unknown(receipt))
    }

    /// Gives a job more time.
    pub(crate) fn extend(&self, topic: &str, receipt: &str, more: Duration) -> Answer<()> {
        let mut out = locked(&self.out);
        let there = out.get_mut(receipt).filter(|there| there.topic == topic);
        let there = there.ok_or_else(|| unknown(receipt))?;
        there.job.extend(more)?;
        there.until = there.until.max(self.env.now() + more);
        Ok(())
    }

    /// Has workers leave that nobody asks, and forgets jobs that were never answered.
    fn look(&self) {
        let now = self.env.now();
        locked(&self.out).retain(|_, out| out.until + KEPT > now);
        locked(&self.workers).retain(|_, worker| {
            let is_idle = worker.is_idle(now, self.idle);
            if is_idle {
                self.leave(worker.clone());
            }
            !is_idle
        });
    }

    /// Has all workers leave, and gives back what is out.
    pub(crate) async fn close(&self) {
        let mut workers: Vec<_> = std::mem::take(&mut *locked(&self.workers)).into_values().collect();
        workers.extend(locked(&self.leaving).iter().cloned());
        join_all(workers.iter().filter_map(|worker| Some(worker.puller.get()?.worker().abort()))).await;
        locked(&self.out).clear();
    }
}

fn too_much_is_out() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too much that was pulled from this server is not answered yet",
        "answer what is out, or wait until it is late; then pull again",
    )
}

fn unknown(receipt: &str) -> Problem {
    Problem::not_found(
        format!("there is no job {receipt:?} of this topic (any more)"),
        "drop it: it was answered before, or was late, or the server was started anew; what is not done is run again",
    )
}

/// Looks after the jobs as long as the server is there.
pub(crate) async fn look_after(app: Weak<App>) {
    while let Some(env) = app.upgrade().map(|app| app.env.clone()) {
        env.sleep(LOOK).await;
        if let Some(app) = app.upgrade() {
            app.jobs.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn furnished() -> Jobs {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        Jobs { idle: Duration::ZERO, ..Jobs::new(mill, Env::system()) }
    }

    fn terms() -> Terms {
        let (topic, group) = ("orders".to_owned(), "default".to_owned());
        Terms { topic, group, ordered: false, at_most_once: false, retries: 1 }
    }

    fn ask(most: usize, wait: Duration) -> Ask {
        Ask { most, wait, limit: Duration::from_secs(60) }
    }

    /// The receipt of a job that its client has.
    async fn pull_one(jobs: &Jobs) -> String {
        let mut handed = jobs.pull(&terms(), &ask(1, Duration::from_secs(50))).await.unwrap();
        let handed = handed.remove(0);
        let receipt = handed.receipt.clone();
        handed.sent();
        receipt
    }

    async fn until(jobs: &Jobs, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let waiting = async {
            while !holds().await {
                jobs.env.sleep(Duration::from_millis(10)).await;
            }
        };
        let done = jobs.env.within(Duration::from_secs(60), waiting).await;
        assert!(done.is_some(), "test timed out: {what}");
    }

    #[tokio::test]
    async fn a_worker_that_nobody_asks_leaves_and_what_is_out_can_still_be_answered() {
        let jobs = furnished().await;
        jobs.mill.push("orders", "x").await.unwrap();
        let receipt = pull_one(&jobs).await;
        jobs.env.sleep(Duration::from_millis(5)).await;
        jobs.look();
        assert!(locked(&jobs.workers).is_empty());
        jobs.take("orders", &receipt).unwrap().done().await.unwrap();
        until(&jobs, "it has left", async || jobs.mill.members("default").await.unwrap().is_empty()).await;
        assert_eq!(jobs.mill.status("orders", "default").await.unwrap().done, 1);
        until(&jobs, "it is forgotten", async || locked(&jobs.leaving).is_empty()).await;
    }

    /// The attempt as which the one message is handed out.
    async fn attempt(jobs: &Jobs) -> u32 {
        let mut handed = jobs.pull(&terms(), &ask(1, Duration::from_secs(50))).await.unwrap();
        handed.remove(0).context.attempt()
    }

    #[tokio::test]
    async fn what_is_out_of_a_worker_that_leaves_is_given_back_when_the_server_stops() {
        let jobs = furnished().await;
        jobs.mill.push("orders", "x").await.unwrap();
        let receipt = pull_one(&jobs).await;
        jobs.env.sleep(Duration::from_millis(5)).await;
        jobs.look();
        assert_eq!((locked(&jobs.workers).len(), locked(&jobs.leaving).len()), (0, 1));
        jobs.close().await;
        assert!(jobs.mill.members("default").await.unwrap().is_empty(), "its end was waited for");
        assert!(jobs.take("orders", &receipt).is_err());
        assert_eq!(jobs.mill.status("orders", "default").await.unwrap().retrying, 0);
        assert_eq!(attempt(&jobs).await, 1, "it has not failed");
    }

    #[tokio::test]
    async fn who_hangs_up_before_the_answer_has_taken_nothing() {
        for at_most_once in [false, true] {
            let jobs = Jobs { linger: Duration::from_secs(60), ..furnished().await };
            let terms = Terms { at_most_once, ..terms() };
            jobs.mill.push("orders", "x").await.unwrap();
            {
                let ask = ask(2, Duration::from_secs(50));
                let taken = until(&jobs, "it is taken", async || !locked(&jobs.out).is_empty());
                tokio::select! {
                    _ = jobs.pull(&terms, &ask) => unreachable!("it waits for a second message"),
                    () = taken => {}
                }
            }
            assert!(locked(&jobs.out).is_empty());
            let mut handed = jobs.pull(&terms, &ask(1, Duration::from_secs(50))).await.unwrap();
            assert_eq!(handed.remove(0).context.attempt(), 1);
            // Nobody asks any more: others get it without having to wait until the worker has long been idle.
            let jobs = Jobs { idle: Duration::from_secs(3600), ..jobs };
            jobs.look();
            until(&jobs, "it has left", async || jobs.mill.members("default").await.unwrap().is_empty())
                .await;
            let status = jobs.mill.status("orders", "default").await.unwrap();
            assert_eq!((status.dead, status.retrying, status.done), (0, 0, 0), "{status:?}");
        }
    }

    #[tokio::test]
    async fn long_messages_are_not_all_handed_out_at_once() {
        let jobs = furnished().await;
        let long = "x".repeat(ENOUGH_BYTES / 2);
        for _ in 0..4 {
            jobs.mill.push("orders", long.clone()).await.unwrap();
        }
        let handed = jobs.pull(&terms(), &ask(4, Duration::from_secs(50))).await.unwrap();
        assert!((1..=2).contains(&handed.len()), "{}", handed.len());
    }

    #[tokio::test]
    async fn what_is_out_has_the_room_there_is() {
        let jobs = Jobs { room: Room::new(3 << 10), ..furnished().await };
        for _ in 0..2 {
            jobs.mill.push("orders", "x".repeat(2 << 10)).await.unwrap();
        }
        let first = pull_one(&jobs).await;
        let refused = jobs.pull(&terms(), &ask(1, Duration::from_secs(50))).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        jobs.take("orders", &first).unwrap().done().await.unwrap();
        // It was given back uncounted.
        let second = jobs.pull(&terms(), &ask(1, Duration::from_secs(50))).await.unwrap();
        assert_eq!(second[0].context.attempt(), 1);
    }

    /// Waits until somebody waits for a message, and the worker for it is there.
    async fn until_asked(jobs: &Jobs) {
        let is_asked = |worker: &Arc<PullWorker>| {
            worker.asking.load(Ordering::SeqCst) > 0 && worker.puller.get().is_some()
        };
        until(jobs, "it is asked", async || locked(&jobs.workers).values().any(is_asked)).await;
    }

    #[tokio::test]
    async fn a_worker_that_is_asked_stays() {
        let jobs = furnished().await;
        let (terms, ask) = (terms(), ask(3, Duration::from_secs(50)));
        let look = async {
            until_asked(&jobs).await;
            jobs.look();
            locked(&jobs.workers).len()
        };
        tokio::select! {
            pulled = jobs.pull(&terms, &ask) => panic!("{} came of nothing", pulled.map_or(0, |jobs| jobs.len())),
            workers = look => assert_eq!(workers, 1),
        }
    }

    #[tokio::test]
    async fn a_topic_that_is_deleted_meanwhile_is_said_to_be_gone() {
        let jobs = furnished().await;
        let (terms, ask) = (terms(), ask(1, Duration::from_secs(50)));
        let delete = async {
            until_asked(&jobs).await;
            jobs.mill.delete_topic("orders").await.unwrap();
        };
        let (pulled, ()) = tokio::join!(jobs.pull(&terms, &ask), delete);
        assert_eq!(pulled.err().unwrap().status, StatusCode::NOT_FOUND);
    }
}
