//! Pulling: the program takes messages itself, and answers them later.
//!
//! The worker is the same, with the program in the place of its slots. A message is taken at the moment when
//! a caller asks for one, and a small task waits until it is answered or late.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sawmill_engine::runtime::Moment;
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::admission::admit;
use super::attempt::{Attempt, HandlerEnd, late_text};
use super::disposition::conclude;
use super::slot::Slot;
use crate::handler::{Context, Outcome};
use crate::telemetry::HandleSpan;
use crate::worker::inflight::message::Disposition;
use crate::worker::{Shared, Work, Worker, WorkerBuilder, run};

/// How long a job may take if no timeout is set.
const LIMIT: Duration = Duration::from_secs(300);

impl WorkerBuilder {
    /// Joins the group without a handler: the program takes messages itself, in a loop of its own or for jobs
    /// that are done elsewhere and answered later.
    ///
    /// At most as many jobs as the worker has [slots](WorkerBuilder::concurrency) may be unanswered at once.
    /// Each must be answered within the [timeout](WorkerBuilder::timeout) after it was pulled, 5 minutes if
    /// none is set.
    ///
    /// ```
    /// use sawmill::Sawmill;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// mill.push("reports", "2026-01").await?;
    /// let puller = mill.worker("reports").pull().await?;
    /// while let Some(job) = puller.pull().await {
    ///     println!("writing {:?}", job.context().payload());
    ///     job.done().await?;
    /// #   break;
    /// }
    /// assert_eq!(puller.worker().stop().await.done, 1);
    /// # Ok(()) }
    /// ```
    pub async fn pull(mut self) -> Result<Puller> {
        self.timeout = self.timeout.or(Some(LIMIT));
        let worker = self.launch(Work::Pull).await?;
        Ok(Puller { worker })
    }
}

/// A worker whose messages the program pulls; made by [`WorkerBuilder::pull`]. Dropping it tells the
/// worker to stop.
pub struct Puller {
    worker: Worker,
}

impl Puller {
    /// Waits for the next message. Returns `None` when the worker has been stopped.
    ///
    /// Several callers may wait at once. Dropping this future loses nothing: no message is taken before it is
    /// returned.
    pub async fn pull(&self) -> Option<Job> {
        self.pull_with_timeout(self.worker.shared.builder.timeout.unwrap_or(LIMIT)).await
    }

    /// Waits like [`pull`](Puller::pull), for a job that must be answered within this time instead of the
    /// [timeout](WorkerBuilder::timeout).
    pub async fn pull_with_timeout(&self, limit: Duration) -> Option<Job> {
        let shared = &self.worker.shared;
        if let Some(job) = take(shared, limit) {
            return Some(job);
        }
        let _asking = PullRequest::new(shared);
        loop {
            let mut more = std::pin::pin!(shared.more.notified());
            more.as_mut().enable();
            if shared.stop.is_cancelled() {
                return None;
            }
            if let Some(job) = take(shared, limit) {
                return Some(job);
            }
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => {}
                () = more => {}
            }
        }
    }

    /// Returns the worker, to stop it or to see what it does. Stopping waits for the jobs that were pulled.
    /// While no caller pulls, the worker does not look for messages, and so never finds that it is
    /// [drained](Worker::drained).
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
}

/// Counts a caller that waits for a message.
struct PullRequest<'a> {
    shared: &'a Shared,
}

impl<'a> PullRequest<'a> {
    fn new(shared: &'a Shared) -> Self {
        if let Some(pulls) = &mut shared.inflight().pulls {
            *pulls += 1;
        }
        shared.wake.notify_one();
        Self { shared }
    }
}

impl Drop for PullRequest<'_> {
    fn drop(&mut self) {
        if let Some(pulls) = &mut self.shared.inflight().pulls {
            *pulls -= 1;
        }
    }
}

/// Takes a message that may start now, as a job.
fn take(shared: &Arc<Shared>, limit: Duration) -> Option<Job> {
    let now = shared.env().now();
    let start = {
        let mut inflight = shared.inflight();
        inflight.has_free_slot().then(|| inflight.next(now)).flatten()?
    };
    let mut slot = Slot::of_message(shared.clone(), start, now);
    if !admit(shared, &mut slot.running) {
        return None;
    }
    let start = slot.running.first()?;
    let context = Attempt::new(shared, now).context(start);
    let time = Arc::new(Time { until: Mutex::new(Some(now + limit)), limit });
    let (answer, answered) = oneshot::channel();
    let span = shared.record_start(start, now);
    let message = PulledMessage { slot, span, context: context.clone(), time: time.clone() };
    shared.env().spawn(await_answer(message, answered));
    Some(Job { context, time, answer })
}

/// A message that was pulled. Answer it with [`done`](Job::done), [`failed`](Job::failed) or
/// [`outcome`](Job::outcome). A job that is dropped without an answer has failed.
pub struct Job {
    context: Context,
    time: Arc<Time>,
    answer: oneshot::Sender<Answer>,
}

/// The program's answer to a job.
enum Answer {
    /// The outcome, and a sender for whether the answer counts.
    Ended(Outcome, oneshot::Sender<bool>),
    /// The job was given back before anyone had begun with it.
    NotBegun,
}

/// The time that is left to answer a job.
struct Time {
    /// The deadline; `None` when it has passed.
    until: Mutex<Option<Moment>>,
    limit: Duration,
}

impl Time {
    fn until(&self) -> MutexGuard<'_, Option<Moment>> {
        self.until.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns how much time is left. Once there is none, there never is any again.
    fn left(&self, now: Moment) -> Option<Duration> {
        let mut until = self.until();
        *until = until.filter(|until| *until > now);
        until.map(|until| until.since(now))
    }
}

impl Job {
    /// Returns the message with its context. Anything that a handler could take as an argument can be made
    /// from it: `Json::<Mail>::from_context(job.context())`.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Answers that the job is done. Returns when the worker has recorded the answer; it is written to the
    /// store soon after.
    ///
    /// An error of the kind [`Late`](ErrorKind::Late) means that the answer does not count: the job was out
    /// of time, or its worker lost the claim or was aborted. The message is run again.
    pub async fn done(self) -> Result<()> {
        self.outcome(Outcome::Done).await
    }

    /// Answers that the job failed: it is retried as the group's policy says. See [`done`](Job::done) for
    /// when this returns.
    pub async fn failed(self, error: impl Display) -> Result<()> {
        self.outcome(Outcome::retry(error)).await
    }

    /// Answers with an outcome. See [`done`](Job::done) for when this returns.
    pub async fn outcome(self, outcome: Outcome) -> Result<()> {
        let Job { context, time, answer } = self;
        let (say, counts) = oneshot::channel();
        if answer.send(Answer::Ended(outcome, say)).is_ok() && counts.await == Ok(true) {
            return Ok(());
        }
        Err(time.late(&context))
    }

    /// Gives back a job that nobody has begun with: it is the next to be pulled, as if it had never been
    /// taken. It does not count as an attempt, and runs later in at-most-once groups too.
    pub fn give_back(self) {
        // A worker that has ended meanwhile has given everything back itself.
        let _ = self.answer.send(Answer::NotBegun);
    }

    /// Extends the time to answer to at least this much from now on. An error of the kind
    /// [`Late`](ErrorKind::Late) means the same as for [`done`](Job::done).
    pub fn extend(&self, more: Duration) -> Result<()> {
        let now = self.context.source.site.store.env().now();
        if self.answer.is_closed() || self.context.cancelled.is_cancelled() {
            return Err(self.time.late(&self.context));
        }
        let mut until = self.time.until();
        match &mut *until {
            Some(until) if *until > now => {
                *until = (*until).max(now + more);
                Ok(())
            }
            _ => {
                drop(until);
                Err(self.time.late(&self.context))
            }
        }
    }
}

impl Time {
    /// Makes the error of an answer that does not count.
    fn late(&self, context: &Context) -> Error {
        let (id, limit) = (context.id(), self.limit);
        let why = match self.left(context.source.site.store.env().now()) {
            None => {
                format!("it was not answered within its time limit of {limit:?} (see `extend` and `timeout`)")
            }
            Some(_) => "its worker lost the claim or was aborted".to_owned(),
        };
        let what = format!(
            "the answer to job {id} comes too late and does not count, because {why}; it is run again"
        );
        Error::new(ErrorKind::Late, what)
    }
}

/// The worker's side of a job.
struct PulledMessage {
    slot: Slot,
    span: HandleSpan,
    context: Context,
    time: Arc<Time>,
}

/// Waits until a job is answered or late, or the worker is aborted.
async fn await_answer(message: PulledMessage, answered: oneshot::Receiver<Answer>) {
    let PulledMessage { mut slot, span, context, time } = message;
    let shared = slot.shared.clone();
    let env = shared.env();
    let Some(start) = slot.running.first() else { return };
    let late = async {
        while let Some(left) = time.left(env.now()) {
            env.sleep(left).await;
        }
    };
    let mut counts = None;
    let end = tokio::select! {
        biased;
        answer = answered => match answer {
            Ok(Answer::Ended(outcome, say)) => {
                counts = Some(say);
                HandlerEnd::Said(outcome)
            }
            // Once the message is ready again, its cancellation would not be noticed.
            Ok(Answer::NotBegun) if shared.site.cancellations.borrow().contains(&start.held.message) => {
                HandlerEnd::Cancelled
            }
            Ok(Answer::NotBegun) => return put_back(slot, &span),
            Err(_) => HandlerEnd::Failed("the job was dropped without an answer".to_owned()),
        },
        () = shared.abort.cancelled() => HandlerEnd::Dropped,
        () = late => {
            context.cancelled.cancel();
            HandlerEnd::Failed(late_text(Some(time.limit)))
        }
    };
    let disposition = conclude(&shared, start, end, &span);
    let now = env.now();
    shared.record_took(start.source, now.since(context.began));
    let mut wanted = false;
    if let Some(start) = slot.running.pop() {
        let mut inflight = shared.inflight();
        wanted = !start.cancelled.is_cancelled();
        inflight.finish(start.held, disposition, now.since(context.began), now);
        if inflight.wants_coordinator() {
            shared.wake.notify_one();
        }
    }
    run::fill(&shared);
    if let Some(say) = counts {
        // The caller may have stopped waiting for this.
        let _ = say.send(wanted);
    }
}

/// Puts back a message that was not begun.
fn put_back(mut slot: Slot, span: &HandleSpan) {
    let shared = slot.shared.clone();
    if let Some(start) = slot.running.pop() {
        shared.site.notes.ended(&start.held.message);
        shared.record_end(&start, &Disposition::Untouched, span);
        shared.inflight().put_back(start.held);
    }
    shared.wake.notify_one();
    run::fill(&shared);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sawmill;
    use crate::worker::Delivery;

    async fn furnished() -> Sawmill {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        mill.push("orders", "x").await.unwrap();
        mill
    }

    #[tokio::test]
    async fn what_is_given_back_is_pulled_again_as_if_nothing_had_been() {
        for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
            let mill = furnished().await;
            let puller = mill.worker("orders").concurrency(1).delivery(delivery).pull().await.unwrap();
            for _ in 0..3 {
                let job = puller.pull().await.unwrap();
                assert_eq!(job.context().attempt(), 1);
                job.give_back();
            }
            puller.pull().await.unwrap().done().await.unwrap();
            let counts = puller.worker().stop().await;
            assert_eq!((counts.done, counts.failed, counts.dead), (1, 0, 0));
        }
    }

    #[tokio::test]
    async fn what_was_cancelled_meanwhile_is_not_given_back() {
        let mill = furnished().await;
        let puller = mill.worker("orders").poll(Duration::from_millis(10)).pull().await.unwrap();
        let job = puller.pull().await.unwrap();
        let mut learnt = puller.worker().shared.site.cancellations.subscribe();
        mill.cancel("orders", job.context().id()).await.unwrap();
        learnt.changed().await.unwrap();
        job.give_back();
        let counts = puller.worker().stop().await;
        assert_eq!((counts.done, counts.failed, counts.dead), (0, 0, 0));
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!(status.waiting + status.claimed + status.retrying, 0, "{status:?}");
    }

    #[tokio::test]
    async fn what_is_given_back_by_one_that_leaves_is_anothers() {
        let mill = furnished().await;
        let puller = mill.worker("orders").pull().await.unwrap();
        let job = puller.pull().await.unwrap();
        let stop = async {
            puller.worker().stop().await;
        };
        let give_back = async { job.give_back() };
        tokio::join!(stop, give_back);
        let other = mill.worker("orders").pull().await.unwrap();
        assert_eq!(other.pull().await.unwrap().context().attempt(), 1);
    }

    #[tokio::test]
    async fn there_is_no_more_time_for_what_is_lost() {
        let mill = furnished().await;
        let puller = mill.worker("orders").pull().await.unwrap();
        let job = puller.pull().await.unwrap();
        job.extend(Duration::from_secs(600)).unwrap();
        puller.worker().abort().await;
        assert_eq!(job.extend(Duration::from_secs(600)).unwrap_err().kind(), ErrorKind::Late);
        // The claim is lost while the worker runs on.
        let other = mill.worker("orders").pull().await.unwrap();
        let job = other.pull().await.unwrap();
        job.context.cancelled.cancel();
        assert_eq!(job.extend(Duration::from_secs(600)).unwrap_err().kind(), ErrorKind::Late);
    }
}
