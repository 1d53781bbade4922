//! Workers, each in its own process: handlers of single messages, of batches, and programs that pull.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{
    Batch, Context, Delivery, ErrorKind, Job, Limit, OnFailure, Outcome, Puller, RetryPolicy, Worker,
    WorkerBuilder,
};

use super::extras::Style;
use super::plan::{Manner, SNOOZE, WorkerPlan};
use super::world::{LONG, World};
use crate::checker::{How, RunId};
use crate::control::{Control, NodeId};
use crate::features::Feature;
use crate::tasks::lock;

/// The time limit of a pulled job without a timeout in the plan.
const PULL_LIMIT: Duration = Duration::from_secs(300);

/// A worker and its process.
#[derive(Clone)]
pub(super) struct WorkerProcess {
    pub(super) number: usize,
    pub(super) node: NodeId,
    pub(super) group: usize,
    worker: Arc<Mutex<Option<RunningWorker>>>,
    /// The worker was told to leave.
    pub(super) leaving: Arc<Mutex<bool>>,
}

/// A running worker, by how it gets its messages.
#[derive(Clone)]
pub(super) enum RunningWorker {
    Handles(Arc<Worker>),
    Pulls(Arc<Puller>),
}

impl RunningWorker {
    fn worker(&self) -> &Worker {
        match self {
            RunningWorker::Handles(worker) => worker,
            RunningWorker::Pulls(puller) => puller.worker(),
        }
    }
}

impl World {
    /// Starts a worker in its own process.
    pub(super) fn start_worker(&self, number: usize, plan: WorkerPlan) -> WorkerProcess {
        let node = self.control.add_node(format!("worker{number}"));
        self.choose_version(node);
        if let Some(pace) = self.plan.extras.pace(number) {
            self.control.set_pace(node, pace);
        }
        let builder = self.builder(node, number, plan);
        let style = self.plan.extras.style(number);
        let process = WorkerProcess {
            number,
            node,
            group: plan.group,
            worker: Arc::default(),
            leaving: Arc::default(),
        };
        let (world, started) = (self.clone(), process.clone());
        self.control.spawn(node, async move {
            let env = world.control.env(node);
            while !*lock(&started.leaving) {
                match world.start(node, builder.clone(), style).await {
                    Ok(running) => {
                        *lock(&started.worker) = Some(running);
                        return;
                    }
                    // A newer program is needed, so this one is not restarted.
                    Err(error) if error.kind() == ErrorKind::Outdated => {
                        world.control.used(Feature::Outdated);
                        *lock(&started.leaving) = true;
                    }
                    Err(_) => env.sleep(Duration::from_millis(200)).await,
                }
            }
        });
        process
    }

    async fn start(
        &self,
        node: NodeId,
        builder: WorkerBuilder,
        style: Style,
    ) -> sawmill::Result<RunningWorker> {
        let world = self.clone();
        match style {
            Style::Each => {
                let handler = move |context: Context| handle(world.clone(), node, context);
                Ok(RunningWorker::Handles(Arc::new(builder.start(handler).await?)))
            }
            Style::Batch(size, linger) => {
                let handler = move |batch: Vec<Context>| handle_batch(world.clone(), node, batch);
                let worker = builder.start_batch(Batch::of(size).linger(linger), handler).await?;
                Ok(RunningWorker::Handles(Arc::new(worker)))
            }
            Style::Pull => {
                let puller = Arc::new(builder.pull().await?);
                self.control.spawn(node, pull(world, node, puller.clone()));
                Ok(RunningWorker::Pulls(puller))
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
            .concurrency(worker.slots)
            .delivery(delivery)
            .retry(retry)
            .on_failure(on_failure)
            .ttl(plan.extras.ttl(number).unwrap_or(plan.ttl))
            .poll(plan.poll);
        if group.ordered {
            builder = builder.ordered();
        }
        if let Some(most) = group.max_in_flight {
            builder = builder.max_in_flight(most);
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

    /// Crashes the worker's process if the message is planned to do so.
    async fn crash_if_planned(&self, node: NodeId, manner: Manner) {
        if manner == Manner::Kills {
            self.control.crash(node);
            std::future::pending::<()>().await;
        }
    }

    /// Returns how long this run takes and how it ends.
    fn planned_run(&self, context: &Context, before: u32) -> (Duration, Manner) {
        let plan = std::str::from_utf8(context.payload())
            .ok()
            .and_then(|text| text.rsplit(' ').next()?.parse().ok())
            .and_then(|number: usize| self.plan_of(number));
        let (takes, manner) = plan.map_or((Duration::ZERO, Manner::Done), |plan| (plan.takes, plan.manner));
        let takes = match context.message().headers.get(LONG) {
            Some(_) => self.plan.longest_ttl() + Duration::from_secs(8),
            None => takes,
        };
        // After a seek, a message fails again.
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

impl WorkerProcess {
    /// Returns true if the worker runs and was not told to leave.
    pub(super) fn works(&self, control: &Control) -> bool {
        control.is_alive(self.node) && !*lock(&self.leaving) && !self.has_stopped()
    }

    fn has_stopped(&self) -> bool {
        let worker = lock(&self.worker);
        worker.as_ref().is_some_and(|running| running.worker().counts().stopped_because.is_some())
    }

    /// Tells the worker to leave, gracefully or at once. The returned flag becomes true when it is gone.
    pub(super) fn leave(&self, control: &Control, at_once: bool) -> Arc<Mutex<bool>> {
        *lock(&self.leaving) = true;
        let gone = Arc::new(Mutex::new(false));
        let done_flag = gone.clone();
        match lock(&self.worker).take() {
            None => *lock(&done_flag) = true,
            Some(running) => control.spawn(self.node, async move {
                if at_once {
                    running.worker().abort().await;
                } else {
                    running.worker().stop().await;
                }
                *lock(&done_flag) = true;
            }),
        }
        gone
    }

    /// Crashes the process. The next worker can use its journal.
    pub(super) fn crash(&self, world: &World) {
        world.control.crash(self.node);
        // Closes what the process had open.
        drop(lock(&self.worker).take());
        if let Some(journals) = lock(&world.journals).as_mut() {
            journals.leave(self.node, self.group);
        }
    }

    /// Waits for the worker to report that it is drained; the returned flag becomes true then. `counts`:
    /// whether this counts as a use of [`Feature::Drain`].
    pub(super) fn drain(&self, world: &World, counts: bool) -> Arc<Mutex<bool>> {
        let drained = Arc::new(Mutex::new(false));
        let done_flag = drained.clone();
        let running = lock(&self.worker).clone();
        match running {
            None => *lock(&done_flag) = true,
            Some(running) => {
                let (world, process) = (world.clone(), self.clone());
                world.control.clone().spawn(self.node, async move {
                    running.worker().drained().await;
                    // A worker that has ended meanwhile reports nothing.
                    if process.works(&world.control) {
                        let tells_ends = matches!(running, RunningWorker::Handles(_));
                        world.checker.book().says_drained(process.node, tells_ends);
                        counts.then(|| world.control.used(Feature::Drain));
                    }
                    *lock(&done_flag) = true;
                });
            }
        }
        drained
    }
}

/// Reports the end of a run to the checker, even if the handler is dropped.
struct RunReport {
    world: World,
    node: NodeId,
    run: RunId,
    /// The time from which the run counts as failed, because of its timeout.
    late_at: Option<Arc<Mutex<Duration>>>,
    is_reported: bool,
}

/// The deadline of a pulled job.
struct JobDeadline {
    world: World,
    node: NodeId,
    run: RunId,
    until: Arc<Mutex<Duration>>,
}

impl JobDeadline {
    /// Reports a failure if the deadline is over; an earlier report stays. Returns true if it is over.
    fn report_if_late(&self) -> bool {
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
        (Self { world: world.clone(), node, run, late_at, is_reported: false }, before)
    }

    fn is_late(&self) -> bool {
        // Allows for rounding between two clocks of different rates.
        self.late_at
            .as_ref()
            .is_some_and(|at| self.world.control.now() + Duration::from_micros(1) >= *lock(at))
    }

    /// Returns the deadline of the run, which can be checked without the run itself.
    fn deadline(&self) -> JobDeadline {
        let until = self.late_at.clone().unwrap_or_else(|| Arc::new(Mutex::new(Duration::MAX)));
        JobDeadline { world: self.world.clone(), node: self.node, run: self.run, until }
    }

    fn report_end(&mut self, how: How) {
        self.is_reported = true;
        self.world.checker.ended(self.node, self.run, how);
    }

    /// Reports the planned end and returns the matching outcome.
    fn end(&mut self, manner: Manner) -> Outcome {
        let (how, outcome) = match manner {
            Manner::Fails(_) | Manner::Panics(_) => (How::Failed, Outcome::retry("planned failure")),
            Manner::Snoozes => (How::Snoozed, Outcome::Snooze(SNOOZE)),
            Manner::Dead => (How::GaveUp, Outcome::dead("planned death")),
            Manner::Stops => (How::Stopped, Outcome::stop("planned stop")),
            Manner::Done | Manner::Kills => (How::Done, Outcome::Done),
        };
        self.report_end(how);
        outcome
    }
}

impl Drop for RunReport {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        if self.is_late() {
            self.world.control.used(Feature::Timeout);
            self.report_end(How::Failed);
        } else {
            self.report_end(How::Dropped);
        }
    }
}

async fn handle(world: World, node: NodeId, context: Context) -> Outcome {
    let (mut report, before) = RunReport::begin(&world, node, &context, world.plan.extras.timeout);
    let (takes, manner) = world.planned_run(&context, before);
    world.control.env(node).sleep(takes).await;
    world.crash_if_planned(node, manner).await;
    if let Err(error) = world.push_follower(node, &context).await {
        report.report_end(How::Failed);
        return Outcome::retry(error);
    }
    let outcome = report.end(manner);
    if matches!(manner, Manner::Panics(_)) {
        // Unwinds like a panic, without calling the panic hook.
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
        let (report, before) = RunReport::begin(&world, node, context, world.plan.extras.timeout);
        let (takes, manner) = world.planned_run(context, before);
        longest = longest.max(takes);
        runs.push((report, manner));
    }
    world.control.env(node).sleep(longest).await;
    for (_, manner) in &runs {
        world.crash_if_planned(node, *manner).await;
    }
    runs.into_iter().map(|(mut report, manner)| report.end(manner)).collect()
}

/// Runs a program that pulls messages and answers them later.
async fn pull(world: World, node: NodeId, puller: Arc<Puller>) {
    // A late job is run again at once, perhaps before the program notices.
    let mut open: Vec<JobDeadline> = Vec::new();
    while let Some(job) = puller.pull().await {
        world.control.used(Feature::Pull);
        if world.random_below(10) == 0 {
            world.control.used(Feature::PullGivenBack);
            job.give_back();
            // Without a pause, the same message would be pulled again at once, endlessly.
            world.control.env(node).sleep(Duration::from_millis(5)).await;
            continue;
        }
        let limit = world.plan.extras.timeout.unwrap_or(PULL_LIMIT);
        open.retain(|run| !run.report_if_late());
        let (report, before) = RunReport::begin(&world, node, job.context(), Some(limit));
        open.push(report.deadline());
        world.control.spawn(node, answer(world.clone(), node, job, report, before));
    }
}

async fn answer(world: World, node: NodeId, job: Job, mut report: RunReport, before: u32) {
    // A job that is dropped without an answer has failed.
    let env = world.control.env(node);
    let (mut takes, manner) = world.planned_run(job.context(), before);
    let cancelled = job.context().clone();
    if world.random_below(8) == 0 {
        let more = takes + Duration::from_millis(500);
        takes /= 2;
        if env.within(takes, cancelled.cancelled()).await.is_some() {
            return report.report_end(How::Failed);
        }
        if job.extend(more).is_ok() {
            let until = world.control.now() + world.control.as_long(node, more);
            if let Some(at) = &report.late_at {
                let mut at = lock(at);
                *at = until.max(*at);
            }
            world.control.used(Feature::PullExtended);
        }
    }
    if env.within(takes, cancelled.cancelled()).await.is_some() {
        // The worker lost the claim or was aborted, or the job is late: the answer would not count.
        return report.report_end(How::Failed);
    }
    world.crash_if_planned(node, manner).await;
    if report.is_late() {
        drop(report);
        let _ = job.failed("too late").await;
        return;
    }
    let outcome = report.end(manner);
    match manner {
        Manner::Panics(_) => drop(job),
        _ => drop(job.outcome(outcome).await),
    }
}
