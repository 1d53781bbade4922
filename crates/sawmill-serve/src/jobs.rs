//! Jobs that are out: workers in this process whose messages are pulled over HTTP, and the receipts by which they are answered.
//!
//! There is one worker for each topic, group and set of rules that is asked for. It joins with the first pull, and leaves when
//! nobody has asked for a while: what it has in hand goes to others, and what is out can still be answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Delivery, Job, Puller, RetryPolicy, Sawmill};
use tokio::sync::OnceCell;

use crate::answer::{Answer, Problem};
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

/// A job that is handed out.
pub(crate) struct Handed {
    pub(crate) receipt: String,
    pub(crate) context: sawmill::Context,
}

pub(crate) struct Jobs {
    mill: Sawmill,
    env: Env,
    idle: Duration,
    workers: Mutex<BTreeMap<Terms, Arc<PullWorker>>>,
    out: Mutex<HashMap<String, Out>>,
}

struct PullWorker {
    puller: OnceCell<Puller>,
    asking: AtomicUsize,
    asked: Mutex<Moment>,
}

/// A job that is out.
struct Out {
    topic: String,
    job: Job,
    until: Moment,
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
        Self { mill, env, idle: IDLE, workers: Mutex::default(), out: Mutex::default() }
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
                    return Err(error.into());
                }
            };
            let mut pulls: FuturesUnordered<_> = (0..ask.most).map(|_| puller.pull_for(ask.limit)).collect();
            let left = until.since(self.env.now());
            match self.env.within(left, pulls.next()).await {
                None | Some(None) => return Ok(Vec::new()),
                // It has stopped: it was idle in the moment before, or its topic is gone, which the next one is told.
                Some(Some(None)) => self.forget(terms, &asking.worker),
                Some(Some(Some(job))) => {
                    let mut handed = vec![self.hand_out(terms, job, ask.limit)];
                    while let Some(Some(Some(job))) = self.env.within(LINGER, pulls.next()).await {
                        handed.push(self.hand_out(terms, job, ask.limit));
                    }
                    return Ok(handed);
                }
            }
        }
    }

    fn ask(&self, terms: &Terms) -> Answer<Asking<'_>> {
        let mut workers = locked(&self.workers);
        if workers.len() >= MOST_WORKERS && !workers.contains_key(terms) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("this server pulls for {MOST_WORKERS} groups already"),
                "try again later, or start another server",
            ));
        }
        let worker = workers.entry(terms.clone()).or_insert_with(|| {
            let asked = Mutex::new(self.env.now());
            Arc::new(PullWorker { puller: OnceCell::new(), asking: AtomicUsize::new(0), asked })
        });
        worker.asking.fetch_add(1, Ordering::SeqCst);
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
        }
    }

    fn hand_out(&self, terms: &Terms, job: Job, limit: Duration) -> Handed {
        let dice = self.env.dice();
        let receipt = format!("{:016x}{:016x}", dice.roll(), dice.roll());
        let context = job.context().clone();
        let out = Out { topic: terms.topic.clone(), job, until: self.env.now() + limit };
        locked(&self.out).insert(receipt.clone(), out);
        Handed { receipt, context }
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
        let mut leaving = Vec::new();
        locked(&self.workers).retain(|_, worker| {
            let is_idle =
                worker.asking.load(Ordering::SeqCst) == 0 && now.since(*locked(&worker.asked)) > self.idle;
            if is_idle {
                leaving.push(worker.clone());
            }
            !is_idle
        });
        for worker in leaving {
            self.env.spawn(async move {
                if let Some(puller) = worker.puller.get() {
                    puller.worker().stop().await;
                }
            });
        }
    }

    /// Has all workers leave, and gives back what is out.
    pub(crate) async fn close(&self) {
        let workers: Vec<_> = std::mem::take(&mut *locked(&self.workers)).into_values().collect();
        for worker in workers {
            if let Some(puller) = worker.puller.get() {
                puller.worker().abort().await;
            }
        }
        locked(&self.out).clear();
    }
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

    async fn until(jobs: &Jobs, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let waiting = async {
            while !holds().await {
                jobs.env.sleep(Duration::from_millis(10)).await;
            }
        };
        jobs.env.within(Duration::from_secs(60), waiting).await.expect(what);
    }

    #[tokio::test]
    async fn a_worker_that_nobody_asks_leaves_and_what_is_out_can_still_be_answered() {
        let jobs = furnished().await;
        jobs.mill.push("orders", "x").await.unwrap();
        let handed = jobs.pull(&terms(), &ask(1, Duration::from_secs(50))).await.unwrap();
        jobs.env.sleep(Duration::from_millis(5)).await;
        jobs.look();
        assert!(locked(&jobs.workers).is_empty());
        jobs.take("orders", &handed[0].receipt).unwrap().done().await.unwrap();
        until(&jobs, "it has left", async || jobs.mill.members("default").await.unwrap().is_empty()).await;
        assert_eq!(jobs.mill.status("orders", "default").await.unwrap().done, 1);
    }

    #[tokio::test]
    async fn a_worker_that_is_asked_stays() {
        let jobs = furnished().await;
        let (terms, ask) = (terms(), ask(3, Duration::from_millis(300)));
        let look = async {
            jobs.env.sleep(Duration::from_millis(100)).await;
            jobs.look();
            locked(&jobs.workers).len()
        };
        let (pulled, workers) = tokio::join!(jobs.pull(&terms, &ask), look);
        assert_eq!((pulled.unwrap().len(), workers), (0, 1));
    }

    #[tokio::test]
    async fn a_topic_that_is_deleted_meanwhile_is_said_to_be_gone() {
        let jobs = furnished().await;
        let (terms, ask) = (terms(), ask(1, Duration::from_secs(50)));
        let delete = async {
            jobs.env.sleep(Duration::from_millis(300)).await;
            jobs.mill.delete_topic("orders").await.unwrap();
        };
        let (pulled, ()) = tokio::join!(jobs.pull(&terms, &ask), delete);
        assert_eq!(pulled.err().unwrap().status, StatusCode::NOT_FOUND);
    }
}
