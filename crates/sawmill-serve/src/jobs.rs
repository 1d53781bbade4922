//! Runs the workers whose messages are pulled over HTTP, and keeps the jobs that clients hold, by receipt.
//!
//! There is one worker for each topic, group and set of settings that clients ask for. It starts with the
//! first pull and leaves after a time without pulls. Messages it had only prefetched then go to other
//! workers. Jobs that clients hold can still be answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use sawmill::engine::runtime::{Env, Moment};
use sawmill::{Delivery, ErrorKind, Job, Puller, RetryPolicy, Sawmill};
use tokio::sync::OnceCell;

use crate::answer::{Answer, Problem};
use crate::body::{MemoryBudget, Reservation};
use crate::{App, locked};

/// The maximum number of outstanding jobs per worker, and of workers.
const MAX_JOBS: usize = 1_000;
const MAX_WORKERS: usize = 200;
/// A worker leaves after this long without a pull; idle workers are searched for at this interval.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long the receipt of a timed-out job is kept, so that a late answer gets the reason why it does not
/// count.
const KEEP_RECEIPT: Duration = Duration::from_secs(60);
/// How long a pull that has one message waits for more.
const LINGER: Duration = Duration::from_millis(10);
/// A pull that has this many bytes of messages gets no more.
const MAX_PULL_BYTES: usize = 16 << 20;
/// The maximum total size of outstanding jobs. Each is kept until it is answered or times out.
const MAX_BYTES: usize = 256 << 20;

/// The settings of a worker. Pulls with the same settings share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PullSettings {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) ordered: bool,
    pub(crate) at_most_once: bool,
    pub(crate) retries: u32,
}

/// The parameters of one pull.
pub(crate) struct PullRequest {
    pub(crate) max: usize,
    pub(crate) wait: Duration,
    pub(crate) limit: Duration,
}

/// A job that was pulled but not yet sent to the client. Dropping it before [`sent`](PulledJob::sent) gives
/// the job back: a client that hung up never received it.
pub(crate) struct PulledJob {
    pub(crate) receipt: String,
    pub(crate) context: sawmill::Context,
    worker: Arc<PullWorker>,
    outstanding: Arc<Mutex<HashMap<String, OutstandingJob>>>,
    is_sent: bool,
}

impl PulledJob {
    /// Marks the response with the receipt as sent.
    pub(crate) fn sent(mut self) {
        self.is_sent = true;
    }
}

impl Drop for PulledJob {
    fn drop(&mut self) {
        if self.is_sent {
            return;
        }
        let outstanding = locked(&self.outstanding).remove(&self.receipt);
        if let Some(outstanding) = outstanding {
            self.worker.has_returned.store(true, Ordering::SeqCst);
            outstanding.job.give_back();
        }
    }
}

pub(crate) struct Jobs {
    mill: Sawmill,
    env: Env,
    idle: Duration,
    linger: Duration,
    memory: MemoryBudget,
    workers: Mutex<BTreeMap<PullSettings, Arc<PullWorker>>>,
    /// Workers that are stopping and wait for their outstanding jobs.
    leaving: Arc<Mutex<Vec<Arc<PullWorker>>>>,
    outstanding: Arc<Mutex<HashMap<String, OutstandingJob>>>,
}

struct PullWorker {
    puller: OnceCell<Puller>,
    waiting: AtomicUsize,
    last_pull: Mutex<Moment>,
    /// A job was given back and no pull has come since. The worker then leaves early, so that other workers
    /// get the message soon.
    has_returned: AtomicBool,
}

impl PullWorker {
    fn is_idle(&self, now: Moment, idle: Duration) -> bool {
        let is_long = || now.since(*locked(&self.last_pull)) > idle;
        self.waiting.load(Ordering::SeqCst) == 0 && (self.has_returned.load(Ordering::SeqCst) || is_long())
    }
}

/// A job that a client holds.
struct OutstandingJob {
    topic: String,
    job: Job,
    until: Moment,
    _reservation: Reservation,
}

/// Counts a pull as waiting while it exists.
struct WaitingPull<'a> {
    jobs: &'a Jobs,
    worker: Arc<PullWorker>,
}

impl Drop for WaitingPull<'_> {
    fn drop(&mut self) {
        *locked(&self.worker.last_pull) = self.jobs.env.now();
        self.worker.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Jobs {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        let (workers, leaving, outstanding) = (Mutex::default(), Arc::default(), Arc::default());
        Self {
            mill,
            env,
            idle: IDLE_TIMEOUT,
            linger: LINGER,
            memory: MemoryBudget::new(MAX_BYTES),
            workers,
            leaving,
            outstanding,
        }
    }

    /// Returns the next messages, or none if none arrive within the wait.
    pub(crate) async fn pull(
        &self,
        settings: &PullSettings,
        request: &PullRequest,
    ) -> Answer<Vec<PulledJob>> {
        let until = self.env.now() + request.wait;
        loop {
            let waiting = self.register_pull(settings)?;
            let puller = match waiting.worker.puller.get_or_try_init(|| self.start(settings)).await {
                Ok(puller) => puller,
                Err(error) => {
                    self.remove_worker(settings, &waiting.worker);
                    let is_other = error.kind() == ErrorKind::Invalid;
                    let problem = Problem::from(error);
                    // All other settings were validated before. Other workers of this group have different
                    // rules.
                    return Err(if is_other {
                        Problem { status: StatusCode::CONFLICT, ..problem }
                    } else {
                        problem
                    });
                }
            };
            let mut pulls: FuturesUnordered<_> =
                (0..request.max).map(|_| puller.pull_with_timeout(request.limit)).collect();
            let left = until.since(self.env.now());
            match self.env.within(left, pulls.next()).await {
                None | Some(None) => return Ok(Vec::new()),
                // The worker has stopped: it was just found idle, or its topic was deleted. The next one will
                // find out which.
                Some(Some(None)) => self.remove_worker(settings, &waiting.worker),
                Some(Some(Some(job))) => {
                    let mut bytes = job.context().payload().len();
                    let Some(first) = self.hand_out(&waiting, settings, job, request.limit) else {
                        return Err(too_many_outstanding());
                    };
                    let mut pulled = vec![first];
                    while bytes < MAX_PULL_BYTES
                        && let Some(Some(Some(job))) = self.env.within(self.linger, pulls.next()).await
                    {
                        bytes += job.context().payload().len();
                        let Some(next) = self.hand_out(&waiting, settings, job, request.limit) else { break };
                        pulled.push(next);
                    }
                    return Ok(pulled);
                }
            }
        }
    }

    fn register_pull(&self, settings: &PullSettings) -> Answer<WaitingPull<'_>> {
        let mut workers = locked(&self.workers);
        if workers.len() + locked(&self.leaving).len() >= MAX_WORKERS && !workers.contains_key(settings) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("this server pulls for {MAX_WORKERS} groups already"),
                "try again later, or start another server",
            ));
        }
        let worker = workers.entry(settings.clone()).or_insert_with(|| {
            let last_pull = Mutex::new(self.env.now());
            let (puller, waiting, has_returned) = Default::default();
            Arc::new(PullWorker { puller, waiting, last_pull, has_returned })
        });
        worker.waiting.fetch_add(1, Ordering::SeqCst);
        worker.has_returned.store(false, Ordering::SeqCst);
        Ok(WaitingPull { jobs: self, worker: worker.clone() })
    }

    async fn start(&self, settings: &PullSettings) -> sawmill::Result<Puller> {
        let mut builder = self
            .mill
            .worker(&settings.topic)
            .group(&settings.group)
            .name("http")
            .concurrency(MAX_JOBS)
            // An immediate retry would stay claimed until the next pull, which may never come.
            .retry(RetryPolicy::retries(settings.retries).immediate(0));
        if settings.ordered {
            builder = builder.ordered();
        }
        if settings.at_most_once {
            builder = builder.delivery(Delivery::AtMostOnce);
        }
        builder.pull().await
    }

    fn remove_worker(&self, settings: &PullSettings, worker: &Arc<PullWorker>) {
        let mut workers = locked(&self.workers);
        if workers.get(settings).is_some_and(|there| Arc::ptr_eq(there, worker)) {
            workers.remove(settings);
            self.stop_when_done(worker.clone());
        }
    }

    /// Stops a worker once its outstanding jobs are answered or timed out. It stays in `leaving` until then,
    /// because `close` may have to stop it at once.
    fn stop_when_done(&self, worker: Arc<PullWorker>) {
        locked(&self.leaving).push(worker.clone());
        let leaving = self.leaving.clone();
        self.env.spawn(async move {
            if let Some(puller) = worker.puller.get() {
                puller.worker().stop().await;
            }
            locked(&leaving).retain(|other| !Arc::ptr_eq(other, &worker));
        });
    }

    /// Hands out a job, or gives it back if there is no memory for it.
    fn hand_out(
        &self,
        waiting: &WaitingPull<'_>,
        settings: &PullSettings,
        job: Job,
        limit: Duration,
    ) -> Option<PulledJob> {
        let mut reservation = Reservation::default();
        if !self.memory.grow(&mut reservation, job.context().payload().len()) {
            waiting.worker.has_returned.store(true, Ordering::SeqCst);
            job.give_back();
            return None;
        }
        let rng = self.env.rng();
        let receipt = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let context = job.context().clone();
        let outstanding = OutstandingJob {
            topic: settings.topic.clone(),
            job,
            until: self.env.now() + limit,
            _reservation: reservation,
        };
        locked(&self.outstanding).insert(receipt.clone(), outstanding);
        let worker = waiting.worker.clone();
        Some(PulledJob { receipt, context, worker, outstanding: self.outstanding.clone(), is_sent: false })
    }

    /// Takes a job to answer it.
    pub(crate) fn take(&self, topic: &str, receipt: &str) -> Answer<Job> {
        let mut outstanding = locked(&self.outstanding);
        match outstanding.get(receipt) {
            Some(there) if there.topic == topic => {}
            _ => return Err(unknown(receipt)),
        }
        outstanding.remove(receipt).map(|outstanding| outstanding.job).ok_or_else(|| unknown(receipt))
    }

    /// Gives a job more time.
    pub(crate) fn extend(&self, topic: &str, receipt: &str, more: Duration) -> Answer<()> {
        let mut outstanding = locked(&self.outstanding);
        let there = outstanding.get_mut(receipt).filter(|there| there.topic == topic);
        let there = there.ok_or_else(|| unknown(receipt))?;
        there.job.extend(more)?;
        there.until = there.until.max(self.env.now() + more);
        Ok(())
    }

    /// Stops workers without pulls and forgets jobs that were never answered.
    fn sweep(&self) {
        let now = self.env.now();
        locked(&self.outstanding).retain(|_, outstanding| outstanding.until + KEEP_RECEIPT > now);
        locked(&self.workers).retain(|_, worker| {
            let is_idle = worker.is_idle(now, self.idle);
            if is_idle {
                self.stop_when_done(worker.clone());
            }
            !is_idle
        });
    }

    /// Stops all workers and gives back outstanding jobs.
    pub(crate) async fn close(&self) {
        let mut workers: Vec<_> = std::mem::take(&mut *locked(&self.workers)).into_values().collect();
        workers.extend(locked(&self.leaving).iter().cloned());
        join_all(workers.iter().filter_map(|worker| Some(worker.puller.get()?.worker().abort()))).await;
        locked(&self.outstanding).clear();
    }
}

fn too_many_outstanding() -> Problem {
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

/// Runs the maintenance of the jobs for as long as the server exists.
pub(crate) async fn maintain(app: Weak<App>) {
    while let Some(env) = app.upgrade().map(|app| app.env.clone()) {
        env.sleep(SWEEP_INTERVAL).await;
        if let Some(app) = app.upgrade() {
            app.jobs.sweep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn jobs_with_topic() -> Jobs {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        Jobs { idle: Duration::ZERO, ..Jobs::new(mill, Env::system()) }
    }

    fn settings() -> PullSettings {
        let (topic, group) = ("orders".to_owned(), "default".to_owned());
        PullSettings { topic, group, ordered: false, at_most_once: false, retries: 1 }
    }

    fn request(max: usize, wait: Duration) -> PullRequest {
        PullRequest { max, wait, limit: Duration::from_secs(60) }
    }

    /// Pulls one job, marks it as sent and returns its receipt.
    async fn pull_one(jobs: &Jobs) -> String {
        let mut pulled = jobs.pull(&settings(), &request(1, Duration::from_secs(50))).await.unwrap();
        let pulled = pulled.remove(0);
        let receipt = pulled.receipt.clone();
        pulled.sent();
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
        let jobs = jobs_with_topic().await;
        jobs.mill.push("orders", "x").await.unwrap();
        let receipt = pull_one(&jobs).await;
        jobs.env.sleep(Duration::from_millis(5)).await;
        jobs.sweep();
        assert!(locked(&jobs.workers).is_empty());
        jobs.take("orders", &receipt).unwrap().done().await.unwrap();
        until(&jobs, "it has left", async || jobs.mill.admin().workers("default").await.unwrap().is_empty())
            .await;
        assert_eq!(jobs.mill.admin().status("orders", "default").await.unwrap().done, 1);
        until(&jobs, "it is forgotten", async || locked(&jobs.leaving).is_empty()).await;
    }

    /// Pulls the one message and returns its attempt number.
    async fn attempt(jobs: &Jobs) -> u32 {
        let mut pulled = jobs.pull(&settings(), &request(1, Duration::from_secs(50))).await.unwrap();
        pulled.remove(0).context.attempt()
    }

    #[tokio::test]
    async fn what_is_out_of_a_worker_that_leaves_is_given_back_when_the_server_stops() {
        let jobs = jobs_with_topic().await;
        jobs.mill.push("orders", "x").await.unwrap();
        let receipt = pull_one(&jobs).await;
        jobs.env.sleep(Duration::from_millis(5)).await;
        jobs.sweep();
        assert_eq!((locked(&jobs.workers).len(), locked(&jobs.leaving).len()), (0, 1));
        jobs.close().await;
        assert!(jobs.mill.admin().workers("default").await.unwrap().is_empty(), "its end was waited for");
        assert!(jobs.take("orders", &receipt).is_err());
        assert_eq!(jobs.mill.admin().status("orders", "default").await.unwrap().retrying, 0);
        assert_eq!(attempt(&jobs).await, 1, "it has not failed");
    }

    #[tokio::test]
    async fn who_hangs_up_before_the_answer_has_taken_nothing() {
        for at_most_once in [false, true] {
            let jobs = Jobs { linger: Duration::from_secs(60), ..jobs_with_topic().await };
            let settings = PullSettings { at_most_once, ..settings() };
            jobs.mill.push("orders", "x").await.unwrap();
            {
                let request = request(2, Duration::from_secs(50));
                let taken = until(&jobs, "it is taken", async || !locked(&jobs.outstanding).is_empty());
                tokio::select! {
                    _ = jobs.pull(&settings, &request) => unreachable!("it waits for a second message"),
                    () = taken => {}
                }
            }
            assert!(locked(&jobs.outstanding).is_empty());
            let mut pulled = jobs.pull(&settings, &request(1, Duration::from_secs(50))).await.unwrap();
            assert_eq!(pulled.remove(0).context.attempt(), 1);
            // No pull waits any more: other workers must get the message without waiting for the idle time.
            let jobs = Jobs { idle: Duration::from_secs(3600), ..jobs };
            jobs.sweep();
            until(&jobs, "it has left", async || {
                jobs.mill.admin().workers("default").await.unwrap().is_empty()
            })
            .await;
            let status = jobs.mill.admin().status("orders", "default").await.unwrap();
            assert_eq!((status.dead, status.retrying, status.done), (0, 0, 0), "{status:?}");
        }
    }

    #[tokio::test]
    async fn long_messages_are_not_all_handed_out_at_once() {
        let jobs = jobs_with_topic().await;
        let long = "x".repeat(MAX_PULL_BYTES / 2);
        for _ in 0..4 {
            jobs.mill.push("orders", long.clone()).await.unwrap();
        }
        let pulled = jobs.pull(&settings(), &request(4, Duration::from_secs(50))).await.unwrap();
        assert!((1..=2).contains(&pulled.len()), "{}", pulled.len());
    }

    #[tokio::test]
    async fn what_is_out_has_the_room_there_is() {
        let jobs = Jobs { memory: MemoryBudget::new(3 << 10), ..jobs_with_topic().await };
        for _ in 0..2 {
            jobs.mill.push("orders", "x".repeat(2 << 10)).await.unwrap();
        }
        let first = pull_one(&jobs).await;
        let refused = jobs.pull(&settings(), &request(1, Duration::from_secs(50))).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        jobs.take("orders", &first).unwrap().done().await.unwrap();
        // The message was given back without counting an attempt.
        let second = jobs.pull(&settings(), &request(1, Duration::from_secs(50))).await.unwrap();
        assert_eq!(second[0].context.attempt(), 1);
    }

    /// Waits until a pull is waiting and its worker has started.
    async fn until_waiting(jobs: &Jobs) {
        let is_waiting = |worker: &Arc<PullWorker>| {
            worker.waiting.load(Ordering::SeqCst) > 0 && worker.puller.get().is_some()
        };
        until(jobs, "it is asked", async || locked(&jobs.workers).values().any(is_waiting)).await;
    }

    #[tokio::test]
    async fn a_worker_that_is_asked_stays() {
        let jobs = jobs_with_topic().await;
        let (settings, request) = (settings(), request(3, Duration::from_secs(50)));
        let sweep = async {
            until_waiting(&jobs).await;
            jobs.sweep();
            locked(&jobs.workers).len()
        };
        tokio::select! {
            pulled = jobs.pull(&settings, &request) => panic!("{} came of nothing", pulled.map_or(0, |jobs| jobs.len())),
            workers = sweep => assert_eq!(workers, 1),
        }
    }

    #[tokio::test]
    async fn a_topic_that_is_deleted_meanwhile_is_said_to_be_gone() {
        let jobs = jobs_with_topic().await;
        let (settings, request) = (settings(), request(1, Duration::from_secs(50)));
        let delete = async {
            until_waiting(&jobs).await;
            jobs.mill.admin().delete_topic("orders").await.unwrap();
        };
        let (pulled, ()) = tokio::join!(jobs.pull(&settings, &request), delete);
        assert_eq!(pulled.err().unwrap().status, StatusCode::NOT_FOUND);
    }
}
