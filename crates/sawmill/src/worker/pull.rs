//! Pulling: the program takes messages itself, and says later what became of them.
//!
//! It is the same worker, with the program in the place of its slots. A message is taken from the bench in the moment in
//! which somebody asks for one, and a small task attends to it until it is answered or late.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use super::item::{Start, Verdict};
use super::recover::note_starts;
use super::slot::{self, Attempt, Ending, judge, late_text};
use super::{Shared, Work, Worker, WorkerBuilder};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::Context;
use crate::outcome::Outcome;
use crate::trace::HandleSpan;

/// How long a job may take if nothing else was said.
const LIMIT: Duration = Duration::from_secs(300);

impl WorkerBuilder {
    /// Joins the group, for a program that takes messages itself instead of having a handler called: for loops of its own,
    /// or for jobs that are done elsewhere and answered later.
    ///
    /// As many jobs as the worker has [slots](WorkerBuilder::slots) may be out at once. Each has to be answered within the
    /// [timeout](WorkerBuilder::timeout), 5 minutes if none is set, counted from when it was pulled.
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

/// A worker whose messages the program pulls; made by [`WorkerBuilder::pull`]. Dropping it stops the worker.
pub struct Puller {
    worker: Worker,
}

impl Puller {
    /// The next message, as soon as there is one. `None` when the worker has been stopped.
    ///
    /// Several may wait at once. To wait no longer loses nothing: no message is taken before it is returned.
    pub async fn pull(&self) -> Option<Job> {
        self.pull_for(self.worker.shared.builder.timeout.unwrap_or(LIMIT)).await
    }

    /// As [`pull`](Puller::pull), for a job that is to be answered within this time, whatever the
    /// [timeout](WorkerBuilder::timeout) is.
    pub async fn pull_for(&self, limit: Duration) -> Option<Job> {
        let shared = &self.worker.shared;
        if let Some(job) = take(shared, limit) {
            return Some(job);
        }
        let _asking = Asking::new(shared);
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

    /// The worker itself: to stop it, or to see what it does. Stopping waits for the jobs that were pulled. While nobody pulls
    /// it does not look for messages, and so never finds that it is [drained](Worker::drained).
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.worker.shared.stop_because(None);
    }
}

/// Somebody waits for a message.
struct Asking<'a> {
    shared: &'a Shared,
}

impl<'a> Asking<'a> {
    fn new(shared: &'a Shared) -> Self {
        if let Some(pulls) = &mut shared.bench().pulls {
            *pulls += 1;
        }
        shared.wake.notify_one();
        Self { shared }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(pulls) = &mut self.shared.bench().pulls {
            *pulls -= 1;
        }
    }
}

/// Takes a message from the bench, if one may start now.
fn take(shared: &Arc<Shared>, limit: Duration) -> Option<Job> {
    let now = shared.env().now();
    let start = {
        let mut bench = shared.bench();
        bench.has_free_slot().then(|| bench.next(now)).flatten()?
    };
    if !note_starts(shared, std::slice::from_ref(&start)) {
        return None;
    }
    let context = Attempt::new(shared, now).context(&start);
    let time = Arc::new(Time { until: Mutex::new(Some(now + limit)), limit });
    let (answer, answered) = oneshot::channel();
    let span = shared.saw_start(&start, now);
    let attended = Attended { start, span, context: context.clone(), time: time.clone() };
    shared.env().spawn(attend(shared.clone(), attended, answered));
    Some(Job { context, time, answer })
}

/// A message that was pulled. Say what became of it with [`done`](Job::done), [`failed`](Job::failed) or
/// [`outcome`](Job::outcome). One that is dropped without an answer has failed.
pub struct Job {
    context: Context,
    time: Arc<Time>,
    answer: oneshot::Sender<Answer>,
}

/// What the program says of a job.
enum Answer {
    /// What became of it, and where to say whether that counts.
    Ended(Outcome, oneshot::Sender<bool>),
    /// Nobody has begun with it.
    NotBegun,
}

/// Until when a job may be answered.
struct Time {
    /// `None` when it is too late.
    until: Mutex<Option<Moment>>,
    limit: Duration,
}

impl Time {
    fn until(&self) -> MutexGuard<'_, Option<Moment>> {
        self.until.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// How much time is left. When there is none, it stays so.
    fn left(&self, now: Moment) -> Option<Duration> {
        let mut until = self.until();
        *until = until.filter(|until| *until > now);
        until.map(|until| until.since(now))
    }
}

impl Job {
    /// The message, and what there is to know about it. Anything that a handler could take as an argument can be made from it:
    /// `Json::<Mail>::from_context(job.context())`.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// It is done. This returns when the worker has taken note of it; the store is told soon after.
    ///
    /// An error of the kind [`Late`](ErrorKind::Late) means that the answer does not count any more: the job was out of time,
    /// or its worker lost the claim or was aborted. The message is run again.
    pub async fn done(self) -> Result<()> {
        self.outcome(Outcome::Done).await
    }

    /// It failed: to be tried again as the group's policy says. See [`done`](Job::done) for when this returns.
    pub async fn failed(self, error: impl Display) -> Result<()> {
        self.outcome(Outcome::retry(error)).await
    }

    /// What became of it. See [`done`](Job::done) for when this returns.
    pub async fn outcome(self, outcome: Outcome) -> Result<()> {
        let Job { context, time, answer } = self;
        let (say, counts) = oneshot::channel();
        if answer.send(Answer::Ended(outcome, say)).is_ok() && counts.await == Ok(true) {
            return Ok(());
        }
        Err(time.late(&context))
    }

    /// Nobody has begun with it, nor will: it is the next to be pulled, as if it had never been taken. It does not count as an
    /// attempt, and an at-most-once group has it run, too.
    pub fn give_back(self) {
        // If the worker has ended meanwhile, it has given everything back by itself.
        let _ = self.answer.send(Answer::NotBegun);
    }

    /// Asks for more time: at least this much from now on. An error of the kind [`Late`](ErrorKind::Late) means what it means
    /// for [`done`](Job::done).
    pub fn extend(&self, more: Duration) -> Result<()> {
        let now = self.context.source.site.mill.env().now();
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
    /// The error of an answer that does not count.
    fn late(&self, context: &Context) -> Error {
        let (id, limit) = (context.id(), self.limit);
        let why = match self.left(context.source.site.mill.env().now()) {
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

/// A job as the worker sees it.
struct Attended {
    start: Start,
    span: HandleSpan,
    context: Context,
    time: Arc<Time>,
}

/// Waits until a job is answered, is late, or the worker is made to stop at once.
async fn attend(shared: Arc<Shared>, job: Attended, answered: oneshot::Receiver<Answer>) {
    let env = shared.env();
    let Attended { start, span, context, time } = job;
    let late = async {
        while let Some(left) = time.left(env.now()) {
            env.sleep(left).await;
        }
    };
    let mut counts = None;
    let ending = tokio::select! {
        biased;
        answer = answered => match answer {
            Ok(Answer::Ended(outcome, say)) => {
                counts = Some(say);
                Ending::Said(outcome)
            }
            // On the bench nobody would look again whether it was cancelled.
            Ok(Answer::NotBegun) if shared.site.cancels.borrow().contains(&start.item.message) => {
                Ending::Cancelled
            }
            Ok(Answer::NotBegun) => return put_back(&shared, start, &span),
            Err(_) => Ending::Failed("the job was dropped without an answer".to_owned()),
        },
        () = shared.abort.cancelled() => Ending::Dropped,
        () = late => {
            context.cancelled.cancel();
            Ending::Failed(late_text(Some(time.limit)))
        }
    };
    let verdict = judge(&shared, &start, ending, &span);
    let now = env.now();
    shared.saw_took(start.source, now.since(context.began));
    let wanted = {
        let mut bench = shared.bench();
        let wanted = !start.cancelled.is_cancelled();
        bench.finish(start.item, verdict, now.since(context.began), now);
        if bench.wants_foreman() {
            shared.wake.notify_one();
        }
        wanted
    };
    slot::fill(&shared);
    if let Some(say) = counts {
        // Whoever answered may not wait for this.
        let _ = say.send(wanted);
    }
}

/// A message that was taken for nothing goes back to the bench.
fn put_back(shared: &Arc<Shared>, start: Start, span: &HandleSpan) {
    shared.site.notes.ended(&start.item.message);
    shared.saw_end(&start, &Verdict::Untouched, span);
    shared.bench().put_back(start.item);
    shared.wake.notify_one();
    slot::fill(shared);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mill::Sawmill;
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
            let puller = mill.worker("orders").slots(1).delivery(delivery).pull().await.unwrap();
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
        let mut learnt = puller.worker().shared.site.cancels.subscribe();
        mill.cancel("orders", job.context().id()).await.unwrap();
        learnt.changed().await.unwrap();
        job.give_back();
        let counts = puller.worker().stop().await;
        assert_eq!((counts.done, counts.failed, counts.dead), (0, 0, 0));
        let status = mill.status("orders", "default").await.unwrap();
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
        // Lost without the end of the worker.
        let other = mill.worker("orders").pull().await.unwrap();
        let job = other.pull().await.unwrap();
        job.context.cancelled.cancel();
        assert_eq!(job.extend(Duration::from_secs(600)).unwrap_err().kind(), ErrorKind::Late);
    }
}
