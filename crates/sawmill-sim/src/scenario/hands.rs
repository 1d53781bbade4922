//! Workers, each in a process of its own: handlers of single messages, of batches, and programs that pull.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{
    Batch, Context, Delivery, ErrorKind, Job, Limit, OnFailure, Outcome, Puller, RetryPolicy, Worker,
    WorkerBuilder,
};

use super::extras::Style;
use super::people::{LONG, World};
use super::plan::{Manner, SNOOZE, WorkerPlan};
use crate::checker::{How, RunId};
use crate::control::{Control, NodeId};
use crate::features::Feature;
use crate::tasks::lock;

/// How long a pulled job may take if nothing else was said.
const PULL_LIMIT: Duration = Duration::from_secs(300);

/// A worker and the process it runs in.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) number: usize,
    pub(super) node: NodeId,
    pub(super) group: usize,
    worker: Arc<Mutex<Option<AtWork>>>,
    /// It was told to leave.
    pub(super) leaving: Arc<Mutex<bool>>,
}

/// A worker, however it gets its messages.
#[derive(Clone)]
pub(super) enum AtWork {
    Handles(Arc<Worker>),
    Pulls(Arc<Puller>),
}

impl AtWork {
    fn worker(&self) -> &Worker {
        match self {
            AtWork::Handles(worker) => worker,
            AtWork::Pulls(puller) => puller.worker(),
        }
    }
}

impl World {
    /// Starts a worker in a process of its own.
    pub(super) fn start_worker(&self, number: usize, plan: WorkerPlan) -> Hand {
        let node = self.control.add_node(format!("worker{number}"));
        self.choose_version(node);
        if let Some(pace) = self.plan.extras.pace(number) {
            self.control.set_pace(node, pace);
        }
        let builder = self.builder(node, number, plan);
        let style = self.plan.extras.style(number);
        let hand = Hand { number, node, group: plan.group, worker: Arc::default(), leaving: Arc::default() };
        let (world, started) = (self.clone(), hand.clone());
        self.control.spawn(node, async move {
            let env = world.control.env(node);
            while !*lock(&started.leaving) {
                match world.start(node, builder.clone(), style).await {
                    Ok(at_work) => {
                        *lock(&started.worker) = Some(at_work);
                        return;
                    }
                    // A newer program is needed: nobody starts this one again.
                    Err(error) if error.kind() == ErrorKind::Outdated => {
                        world.control.used(Feature::Outdated);
                        *lock(&started.leaving) = true;
                    }
                    Err(_) => env.sleep(Duration::from_millis(200)).await,
                }
            }
        });
        hand
    }

    async fn start(&self, node: NodeId, builder: WorkerBuilder, style: Style) -> sawmill::Result<AtWork> {
        let world = self.clone();
        match style {
            Style::Each => {
                let handler = move |context: Context| handle(world.clone(), node, context);
                Ok(AtWork::Handles(Arc::new(builder.start(handler).await?)))
            }
            Style::Batch(size, linger) => {
                let handler = move |batch: Vec<Context>| handle_batch(world.clone(), node, batch);
                let worker = builder.start_batch(Batch::of(size).linger(linger), handler).await?;
                Ok(AtWork::Handles(Arc::new(worker)))
            }
            Style::Pull => {
                let puller = Arc::new(builder.pull().await?);
                self.control.spawn(node, pull(world, node, puller.clone()));
                Ok(AtWork::Pulls(puller))
            }
        }
    }

    fn builder(&self, node: NodeId, number: usize, worker: WorkerPlan) -> WorkerBuilder {
        let plan = &self.plan;
        let group = plan.group(worker.group);
        let (retries, immediate) = group.retries;
        let retry =
            RetryPolicy::retries(retries).immediate(immediate).backoff(group.backoff.0, group.backoff.1);
        let delivery = if group.once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
        let on_failure = if group.logs_failures { OnFailure::Log } else { OnFailure::Dead };
        let mut builder = self
            .mill(node)
            .worker_for(plan.topics_of(worker.group))
            .group(&group.name)
            .name(format!("w{number}"))
            .slots(worker.slots)
            .delivery(delivery)
            .retry(retry)
            .on_failure(on_failure)
            .ttl(plan.extras.ttl(number).unwrap_or(plan.ttl))
            .poll(plan.poll);
        if group.ordered {
            builder = builder.ordered();
        }
        if let Some(most) = group.most_claimed {
            builder = builder.most_claimed(most);
        }
        if let Some(limit) = group.limit {
            builder = builder.limit(Limit::running(limit));
        }
        if let Some(rate) = group.rate {
            builder = builder.limit(Limit::per_second(rate));
        }
        if let Some(rate) = plan.extras.per_key.filter(|_| group.ordered) {
            builder = builder.limit_per_key(Limit::per_second(rate));
        }
        if let Some(journals) = lock(&self.journals).as_mut().filter(|_| group.once) {
            let (number, path) = journals.take(node, worker.group);
            self.checker.book().keeps_journal(node, number);
            builder = builder.journal(path);
        }
        if let Some(timeout) = plan.extras.timeout {
            builder = builder.timeout(timeout);
        }
        builder
    }

    /// The process of a worker ends, if the message is one that does this.
    async fn perhaps_die(&self, node: NodeId, manner: Manner) {
        if manner == Manner::Kills {
            self.control.crash(node);
            std::future::pending::<()>().await;
        }
    }

    /// How the run of a message is to end, and how long that takes.
    fn part(&self, context: &Context, before: u32) -> (Duration, Manner) {
        let plan = std::str::from_utf8(context.payload())
            .ok()
            .and_then(|text| text.rsplit(' ').next()?.parse().ok())
            .and_then(|number: usize| self.plan_of(number));
        let (takes, manner) = plan.map_or((Duration::ZERO, Manner::Done), |plan| (plan.takes, plan.manner));
        let takes = match context.message().headers.get(LONG) {
            Some(_) => self.plan.longest_ttl() + Duration::from_secs(8),
            None => takes,
        };
        // Who reads a message again fails again.
        let again = self.plan.seeks() > 0;
        let fails = |times: u32| if again { before % (times + 1) < times } else { before < times };
        let manner = match manner {
            Manner::Fails(times) | Manner::Panics(times) if !fails(times) => Manner::Done,
            Manner::Snoozes | Manner::Stops if before > 0 => Manner::Done,
            manner => manner,
        };
        (takes, manner)
    }
}

impl Hand {
    /// True if it works, and was not told to leave.
    pub(super) fn works(&self, control: &Control) -> bool {
        control.is_alive(self.node) && !*lock(&self.leaving) && !self.has_stopped()
    }

    fn has_stopped(&self) -> bool {
        let worker = lock(&self.worker);
        worker.as_ref().is_some_and(|at_work| at_work.worker().counts().stopped_because.is_some())
    }

    /// Tells it to leave, in order or at once.
    pub(super) fn leave(&self, control: &Control, at_once: bool) -> Arc<Mutex<bool>> {
        *lock(&self.leaving) = true;
        let gone = Arc::new(Mutex::new(false));
        let said = gone.clone();
        match lock(&self.worker).take() {
            None => *lock(&said) = true,
            Some(at_work) => control.spawn(self.node, async move {
                if at_once {
                    at_work.worker().abort().await;
                } else {
                    at_work.worker().stop().await;
                }
                *lock(&said) = true;
            }),
        }
        gone
    }

    /// Its process ends at once, and its journal is there for the next.
    pub(super) fn crash(&self, world: &World) {
        world.control.crash(self.node);
        // What the process had open is closed.
        drop(lock(&self.worker).take());
        if let Some(journals) = lock(&world.journals).as_mut() {
            journals.leave(self.node, self.group);
        }
    }

    /// Waits for the worker to report that it is drained; the returned flag becomes true then. `counts`: whether this counts as a
    /// use of [`Feature::Drain`].
    pub(super) fn drain(&self, world: &World, counts: bool) -> Arc<Mutex<bool>> {
        let drained = Arc::new(Mutex::new(false));
        let said = drained.clone();
        let at_work = lock(&self.worker).clone();
        match at_work {
            None => *lock(&said) = true,
            Some(at_work) => {
                let (world, hand) = (world.clone(), self.clone());
                world.control.clone().spawn(self.node, async move {
                    at_work.worker().drained().await;
                    // One that has ended meanwhile says nothing.
                    if hand.works(&world.control) {
                        let tells_ends = matches!(at_work, AtWork::Handles(_));
                        world.checker.book().says_drained(hand.node, tells_ends);
                        counts.then(|| world.control.used(Feature::Drain));
                    }
                    *lock(&said) = true;
                });
            }
        }
        drained
    }
}

/// Tells the checker how a run ended, whatever happens.
struct RunReport {
    world: World,
    node: NodeId,
    run: RunId,
    /// From when on the run counts as failed, because it took too long.
    late_at: Option<Arc<Mutex<Duration>>>,
    told: bool,
}

/// A job that is late if it is not answered in time.
struct Late {
    world: World,
    node: NodeId,
    run: RunId,
    until: Arc<Mutex<Duration>>,
}

impl Late {
    /// Tells the checker if the time is over; what was told before stays. True if it is.
    fn tell_if_late(&self) -> bool {
        let late = self.world.control.now() + Duration::from_micros(1) >= *lock(&self.until);
        if late {
            self.world.checker.has_ended(self.node, self.run, How::Failed);
        }
        late
    }
}

impl RunReport {
    fn begin(world: &World, node: NodeId, context: &Context, limit: Option<Duration>) -> (Self, u32) {
        let (run, before) = world.checker.started(node, context);
        let late_at = limit.map(|limit| world.control.now() + world.control.as_long(node, limit));
        let late_at = late_at.map(|at| Arc::new(Mutex::new(at)));
        (Self { world: world.clone(), node, run, late_at, told: false }, before)
    }

    fn is_late(&self) -> bool {
        // Two clocks of different speeds are not compared to the nanosecond.
        self.late_at
            .as_ref()
            .is_some_and(|at| self.world.control.now() + Duration::from_micros(1) >= *lock(at))
    }

    /// What can tell that it is late, beside the run itself.
    fn late(&self) -> Late {
        let until = self.late_at.clone().unwrap_or_else(|| Arc::new(Mutex::new(Duration::MAX)));
        Late { world: self.world.clone(), node: self.node, run: self.run, until }
    }

    fn tell(&mut self, how: How) {
        self.told = true;
        self.world.checker.ended(self.node, self.run, how);
    }

    /// Tells the planned end, and gives the outcome to return.
    fn end(&mut self, manner: Manner) -> Outcome {
        let (how, outcome) = match manner {
            Manner::Fails(_) | Manner::Panics(_) => (How::Failed, Outcome::retry("planned failure")),
            Manner::Snoozes => (How::Snoozed, Outcome::Snooze(SNOOZE)),
            Manner::Dead => (How::GaveUp, Outcome::dead("planned death")),
            Manner::Stops => (How::Stopped, Outcome::stop("planned stop")),
            Manner::Done | Manner::Kills => (How::Done, Outcome::Done),
        };
        self.tell(how);
        outcome
    }
}

impl Drop for RunReport {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        if self.is_late() {
            self.world.control.used(Feature::Timeout);
            self.tell(How::Failed);
        } else {
            self.tell(How::Dropped);
        }
    }
}

async fn handle(world: World, node: NodeId, context: Context) -> Outcome {
    let (mut telling, before) = RunReport::begin(&world, node, &context, world.plan.extras.timeout);
    let (takes, manner) = world.part(&context, before);
    world.control.env(node).sleep(takes).await;
    world.perhaps_die(node, manner).await;
    if let Err(error) = world.push_follower(node, &context).await {
        telling.tell(How::Failed);
        return Outcome::retry(error);
    }
    let outcome = telling.end(manner);
    if matches!(manner, Manner::Panics(_)) {
        // Unwinds as a panic does, without asking the hook.
        std::panic::resume_unwind(Box::new("planned panic"))
    }
    outcome
}

async fn handle_batch(world: World, node: NodeId, batch: Vec<Context>) -> Vec<Outcome> {
    if batch.len() > 1 {
        world.control.used(Feature::Batch);
    }
    let mut runs = Vec::new();
    let mut longest = Duration::ZERO;
    for context in &batch {
        let (telling, before) = RunReport::begin(&world, node, context, world.plan.extras.timeout);
        let (takes, manner) = world.part(context, before);
        longest = longest.max(takes);
        runs.push((telling, manner));
    }
    world.control.env(node).sleep(longest).await;
    for (_, manner) in &runs {
        world.perhaps_die(node, *manner).await;
    }
    runs.into_iter().map(|(mut telling, manner)| telling.end(manner)).collect()
}

/// A program that pulls messages and answers them later.
async fn pull(world: World, node: NodeId, puller: Arc<Puller>) {
    // A job that is late is run again at once, perhaps before the program looks at it.
    let mut open: Vec<Late> = Vec::new();
    while let Some(job) = puller.pull().await {
        world.control.used(Feature::Pull);
        if world.roll(10) == 0 {
            world.control.used(Feature::PullGivenBack);
            job.give_back();
            // Or it would be the next that is pulled, at once and for ever.
            world.control.env(node).sleep(Duration::from_millis(5)).await;
            continue;
        }
        let limit = world.plan.extras.timeout.unwrap_or(PULL_LIMIT);
        open.retain(|run| !run.tell_if_late());
        let (telling, before) = RunReport::begin(&world, node, job.context(), Some(limit));
        open.push(telling.late());
        world.control.spawn(node, answer(world.clone(), node, job, telling, before));
    }
}

async fn answer(world: World, node: NodeId, job: Job, mut telling: RunReport, before: u32) {
    // A job that is dropped without an answer has failed.
    let env = world.control.env(node);
    let (mut takes, manner) = world.part(job.context(), before);
    let cancelled = job.context().clone();
    if world.roll(8) == 0 {
        let more = takes + Duration::from_millis(500);
        takes /= 2;
        if env.within(takes, cancelled.cancelled()).await.is_some() {
            return telling.tell(How::Failed);
        }
        if job.extend(more).is_ok() {
            let until = world.control.now() + world.control.as_long(node, more);
            if let Some(at) = &telling.late_at {
                let mut at = lock(at);
                *at = until.max(*at);
            }
            world.control.used(Feature::PullExtended);
        }
    }
    if env.within(takes, cancelled.cancelled()).await.is_some() {
        // The worker lost the claim, was aborted, or the job is late: the answer would not count.
        return telling.tell(How::Failed);
    }
    world.perhaps_die(node, manner).await;
    if telling.is_late() {
        drop(telling);
        let _ = job.failed("too late").await;
        return;
    }
    let outcome = telling.end(manner);
    match manner {
        Manner::Panics(_) => drop(job),
        _ => drop(job.outcome(outcome).await),
    }
}
