//! Those who take part in a history: workers with their handlers, and pushers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{
    Context, Delivery, ErrorKind, Limit, OnFailure, Outcome, Push, RetryPolicy, Sawmill, Worker,
    WorkerBuilder,
};

use super::plan::{Manner, Plan, PushPlan, SNOOZE, WorkerPlan};
use super::versions::Versions;
use crate::checker::{Checker, How, Intent, RunId};
use crate::control::{Control, NodeId};
use crate::store::SimStore;
use crate::tasks::lock;

/// The header of a message whose handler outlives the death of its worker.
pub(super) const LONG: &str = "long";

/// What everybody in a history shares.
#[derive(Clone)]
pub(super) struct World {
    pub(super) plan: Arc<Plan>,
    pub(super) control: Control,
    pub(super) store: SimStore,
    pub(super) checker: Arc<Checker>,
    pub(super) versions: Arc<Mutex<Versions>>,
}

/// A worker and the process it runs in.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) node: NodeId,
    pub(super) group: usize,
    worker: Arc<Mutex<Option<Worker>>>,
    /// It was told to leave.
    pub(super) leaving: Arc<Mutex<bool>>,
}

impl World {
    pub(super) fn mill(&self, node: NodeId) -> Sawmill {
        let (log, ledger) = (self.store.log(node), self.store.ledger(node));
        let mill = Sawmill::from_parts(Arc::new(log), Arc::new(ledger), self.control.env(node));
        mill.understanding(self.format(node))
    }

    /// Starts a worker in a process of its own.
    pub(super) fn start_worker(&self, number: usize, plan: WorkerPlan) -> Hand {
        let node = self.control.add_node(format!("worker{number}"));
        self.choose_version(node);
        let builder = self.builder(node, number, plan);
        let hand = Hand { node, group: plan.group, worker: Arc::default(), leaving: Arc::default() };
        let (world, started) = (self.clone(), hand.clone());
        self.control.spawn(node, async move {
            let env = world.control.env(node);
            while !*lock(&started.leaving) {
                let world = world.clone();
                match builder
                    .clone()
                    .start(move |context: Context| handle(world.clone(), node, context))
                    .await
                {
                    Ok(worker) => {
                        *lock(&started.worker) = Some(worker);
                        return;
                    }
                    // A newer program is needed: nobody starts this one again.
                    Err(error) if error.kind() == ErrorKind::Outdated => *lock(&started.leaving) = true,
                    Err(_) => env.sleep(Duration::from_millis(200)).await,
                }
            }
        });
        hand
    }

    fn builder(&self, node: NodeId, number: usize, worker: WorkerPlan) -> WorkerBuilder {
        let plan = &self.plan;
        let group = &plan.groups[worker.group];
        let (retries, immediate) = group.retries;
        let retry =
            RetryPolicy::retries(retries).immediate(immediate).backoff(group.backoff.0, group.backoff.1);
        let delivery = if group.once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
        let on_failure = if group.logs_failures { OnFailure::Log } else { OnFailure::Dead };
        let mut builder = self
            .mill(node)
            .worker_for(plan.topics.iter().map(|topic| topic.name.clone()))
            .group(&group.name)
            .name(format!("w{number}"))
            .slots(worker.slots)
            .delivery(delivery)
            .retry(retry)
            .on_failure(on_failure)
            .ttl(plan.ttl)
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
        builder
    }

    /// Starts a pusher in a process of its own; it says when it is done.
    pub(super) fn start_pusher(&self, number: usize, pushes: Vec<PushPlan>) -> Arc<Mutex<bool>> {
        let node = self.control.add_node(format!("pusher{number}"));
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done = Arc::new(Mutex::new(false));
        let said = done.clone();
        self.control.spawn(node, async move {
            for push in pushes {
                env.sleep(push.pause).await;
                // Those of one call go to one topic.
                for topic in 0..world.plan.topics.len() {
                    let of = |number: &&usize| world.plan.messages[**number].topic == topic;
                    let numbers: Vec<usize> = push.messages.iter().filter(of).copied().collect();
                    world.push(&mill, topic, &numbers).await;
                }
            }
            *lock(&said) = true;
        });
        done
    }

    /// Pushes messages until the push is acknowledged or nobody knows what came of it.
    async fn push(&self, mill: &Sawmill, topic: usize, numbers: &[usize]) {
        let env = self.control.env(NodeId::WORLD);
        let name = &self.plan.topics[topic].name;
        while !numbers.is_empty() {
            let began = self.control.now();
            let pushes: Vec<Push> = numbers.iter().map(|number| self.message(*number)).collect();
            let pushed = match pushes.as_slice() {
                [one] => mill.push(name, one.clone()).await.map(|id| vec![id]),
                _ => mill.push_many(name, pushes).await,
            };
            match pushed {
                Ok(ids) => {
                    self.checker.book().answered(numbers, &ids, began);
                    return self.checker.acknowledged(numbers, &ids);
                }
                Err(error) if error.kind() == ErrorKind::Unknown => return,
                Err(_) => env.sleep(Duration::from_millis(300)).await,
            }
        }
    }

    fn message(&self, number: usize) -> Push {
        let plan = &self.plan.messages[number];
        let mut push = Push::new(Intent::payload(number));
        if let Some(key) = &plan.key {
            push = push.key(key.clone());
        }
        for (name, value) in plan.headers.iter() {
            push = push.header(name, value.clone());
        }
        if let Some(name) = &plan.unique {
            push = push.unique(name.clone());
        }
        if let Some(delay) = plan.delay {
            let due = self.control.env(NodeId::WORLD).wall() + delay;
            self.checker.book().due_at(number, due);
            push = push.at(due);
        }
        push
    }
}

impl Hand {
    /// True if it works, and was not told to leave.
    pub(super) fn works(&self, control: &Control) -> bool {
        control.is_alive(self.node) && !*lock(&self.leaving) && !self.has_stopped()
    }

    fn has_stopped(&self) -> bool {
        let worker = lock(&self.worker);
        worker.as_ref().is_some_and(|worker| worker.counts().stopped_because.is_some())
    }

    /// Tells it to leave, in order or at once.
    pub(super) fn leave(&self, control: &Control, at_once: bool) -> Arc<Mutex<bool>> {
        *lock(&self.leaving) = true;
        let gone = Arc::new(Mutex::new(false));
        let said = gone.clone();
        match lock(&self.worker).take() {
            None => *lock(&said) = true,
            Some(worker) => control.spawn(self.node, async move {
                if at_once {
                    worker.abort().await;
                } else {
                    worker.stop().await;
                }
                *lock(&said) = true;
            }),
        }
        gone
    }
}

/// Tells the checker how a run ended, whatever happens.
struct Telling {
    world: World,
    node: NodeId,
    run: RunId,
    told: bool,
}

impl Telling {
    fn tell(&mut self, how: How) {
        self.told = true;
        self.world.checker.ended(self.node, self.run, how);
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if !self.told {
            self.tell(How::Dropped);
        }
    }
}

async fn handle(world: World, node: NodeId, context: Context) -> Outcome {
    let (run, before) = world.checker.started(node, &context);
    let number =
        std::str::from_utf8(context.payload()).ok().and_then(|text| text.rsplit(' ').next()?.parse().ok());
    let plan = number.and_then(|number: usize| world.plan.messages.get(number));
    let (takes, manner) = plan.map_or((Duration::ZERO, Manner::Done), |plan| (plan.takes, plan.manner));
    let takes = match context.message().headers.get(LONG) {
        Some(_) => world.plan.ttl + Duration::from_secs(8),
        None => takes,
    };
    // Who reads a message again fails again.
    let again = world.plan.seeks() > 0;
    let fails = |times: u32| if again { before % (times + 1) < times } else { before < times };
    let env = world.control.env(node);
    let mut telling = Telling { world, node, run, told: false };
    env.sleep(takes).await;
    match manner {
        Manner::Fails(times) if fails(times) => {
            telling.tell(How::Failed);
            Outcome::retry("planned failure")
        }
        Manner::Panics(times) if fails(times) => {
            telling.tell(How::Failed);
            // Unwinds as a panic does, without asking the hook.
            std::panic::resume_unwind(Box::new("planned panic"))
        }
        Manner::Snoozes if before == 0 => {
            telling.tell(How::Snoozed);
            Outcome::Snooze(SNOOZE)
        }
        Manner::Dead => {
            telling.tell(How::GaveUp);
            Outcome::dead("planned death")
        }
        Manner::Stops if before == 0 => {
            telling.tell(How::Stopped);
            Outcome::stop("planned stop")
        }
        _ => {
            telling.tell(How::Done);
            Outcome::Done
        }
    }
}
