//! [`World`]: what all participants of a history share, and the pushers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sawmill::{Context, ErrorKind, MessageId, Producer, Push, Sawmill, Timestamp};

use super::journals::Journals;
use super::plan::{MessagePlan, Plan, PushPlan};
use super::versions::Versions;
use crate::checker::{Checker, Intent};
use crate::control::{Control, NodeId};
use crate::faulty_log::FaultyLog;
use crate::features::Feature;
use crate::rng::Seeded;
use crate::store::SimStore;
use crate::tasks::lock;

/// The header of a message whose handler outlives the death of its worker.
pub(super) const LONG: &str = "long";
/// How often a push of unknown outcome is repeated.
const MAX_REPEATS: usize = 3;
/// The random stream of the participants.
const STREAM: u32 = 4;

/// How messages are pushed.
enum PushVia<'a> {
    Mill(&'a Sawmill),
    Producer(&'a Producer),
}

/// The state that all participants of a history share.
#[derive(Clone)]
pub(super) struct World {
    pub(super) plan: Arc<Plan>,
    pub(super) control: Control,
    pub(super) store: SimStore,
    pub(super) checker: Arc<Checker>,
    pub(super) versions: Arc<Mutex<Versions>>,
    /// The journals of at-most-once workers, if they have any.
    pub(super) journals: Arc<Mutex<Option<Journals>>>,
    rng: Arc<Mutex<Seeded>>,
    /// Repeated messages, by number, with the number of the plan that they share.
    again: Arc<Mutex<BTreeMap<usize, usize>>>,
    /// Messages of the deleted topic, by number, with their index in its plan.
    pub(super) temporary: Arc<Mutex<BTreeMap<usize, usize>>>,
    /// The number of the follow-up of the message with this payload.
    pub(super) followers: Arc<Mutex<BTreeMap<Bytes, usize>>>,
}

impl World {
    pub(super) fn new(
        plan: Arc<Plan>,
        control: Control,
        store: SimStore,
        checker: Arc<Checker>,
        versions: Arc<Mutex<Versions>>,
    ) -> Self {
        let rng = Arc::new(Mutex::new(control.rng(STREAM)));
        let journals = plan.extras.journals.then(Journals::new).flatten();
        let journals = Arc::new(Mutex::new(journals));
        Self {
            plan,
            control,
            store,
            checker,
            versions,
            journals,
            rng,
            again: Arc::default(),
            temporary: Arc::default(),
            followers: Arc::default(),
        }
    }

    pub(super) fn mill(&self, node: NodeId) -> Sawmill {
        let (log, ledger) = (self.store.log(node), self.store.ledger(node));
        let mill = Sawmill::from_parts(Arc::new(FaultyLog(log)), Arc::new(ledger), self.control.env(node));
        mill.understanding(self.format(node))
    }

    /// Starts a pusher in its own process. The returned flag becomes true at the end.
    pub(super) fn start_pusher(&self, number: usize, pushes: Vec<PushPlan>) -> Arc<Mutex<bool>> {
        let node = self.control.add_node(format!("pusher{number}"));
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done = Arc::new(Mutex::new(false));
        let done_flag = done.clone();
        self.control.spawn(node, async move {
            let mut producers = Vec::new();
            for topic in world.plan.topics.iter().filter(|_| world.plan.extras.producers) {
                producers.push(world.producer(&mill, &topic.name).await);
            }
            for push in pushes {
                env.sleep(push.pause).await;
                // Each call pushes to one topic.
                for topic in 0..world.plan.topics.len() {
                    let of = |number: &&usize| world.plan.messages[**number].topic == topic;
                    let numbers: Vec<usize> = push.messages.iter().filter(of).copied().collect();
                    match producers.get(topic) {
                        None => world.push(&PushVia::Mill(&mill), topic, numbers).await,
                        Some(producer) => {
                            let each = |number| world.push_one(producer, topic, number);
                            join_all(numbers.into_iter().map(each)).await;
                        }
                    }
                }
            }
            *lock(&done_flag) = true;
        });
        done
    }

    async fn producer(&self, mill: &Sawmill, topic: &str) -> Producer {
        loop {
            match mill.producer(topic).await {
                Ok(producer) => return producer,
                Err(_) => self.control.env(NodeId::WORLD).sleep(Duration::from_millis(300)).await,
            }
        }
    }

    async fn push_one(&self, producer: &Producer, topic: usize, number: usize) {
        self.push(&PushVia::Producer(producer), topic, vec![number]).await;
    }

    /// Pushes messages until the push is acknowledged or its outcome is unknown. A repeated push has new
    /// numbers but looks the same.
    async fn push(&self, via: &PushVia<'_>, topic: usize, mut numbers: Vec<usize>) {
        let env = self.control.env(NodeId::WORLD);
        let name = &self.plan.topics[topic].name;
        let mut repeats = if self.plan.extras.repeats { MAX_REPEATS } else { 0 };
        while !numbers.is_empty() {
            let (began, sent) = (env.wall(), self.control.now());
            let mut pushes: Vec<Push> = numbers.iter().map(|number| self.message(*number)).collect();
            let pushed = match (via, pushes.len()) {
                (PushVia::Producer(producer), _) => match pushes.pop() {
                    Some(one) => producer.push(one).await.map(|id| vec![id]),
                    None => return,
                },
                (PushVia::Mill(mill), 1) => match pushes.pop() {
                    Some(one) => mill.push(name, one).await.map(|id| vec![id]),
                    None => return,
                },
                (PushVia::Mill(mill), _) => mill.push_many(name, pushes).await,
            };
            if pushed.is_err() {
                numbers.iter().for_each(|number| self.checker.book().push_failed(*number));
            }
            match pushed {
                Ok(ids) => {
                    if matches!(via, PushVia::Producer(_)) {
                        self.control.used(Feature::Produced);
                    }
                    self.checker.book().answered(&numbers, &ids, sent);
                    self.count_refused(&numbers, &ids, began);
                    return self.checker.acknowledged(&numbers, &ids);
                }
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    if repeats == 0 {
                        return;
                    }
                    repeats -= 1;
                    self.control.used(Feature::Repeated);
                    numbers = numbers.iter().map(|number| self.again(*number)).collect();
                }
                Err(_) => env.sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Records another message that looks like this one, and returns its number.
    fn again(&self, number: usize) -> usize {
        let plan = lock(&self.again).get(&number).copied().unwrap_or(number);
        let message = &self.plan.messages[plan];
        let intent = Intent {
            topic: self.plan.topics[message.topic].name.clone(),
            key: message.key.clone(),
            headers: message.headers.clone(),
            due: None,
        };
        let mut book = self.checker.book();
        let new = book.intended(intent);
        if let Some(name) = &message.unique {
            match self.plan.extras.unique_for {
                None => book.named(new, name),
                Some(period) => book.named_for(new, name, period),
            }
        }
        lock(&self.again).insert(new, plan);
        new
    }

    /// Returns the plan of the message with this number.
    pub(super) fn plan_of(&self, number: usize) -> Option<&MessagePlan> {
        if let Some(nth) = lock(&self.temporary).get(&number) {
            return self.plan.extras.deletes.as_ref()?.messages.get(*nth);
        }
        let plan = lock(&self.again).get(&number).copied().unwrap_or(number);
        self.plan.messages.get(plan)
    }

    /// Draws a random number for the participants.
    pub(super) fn random_below(&self, bound: u64) -> u64 {
        lock(&self.rng).below(bound)
    }

    /// Pushes the follow-up of the message that is being handled, if it has one.
    pub(super) async fn push_follower(&self, node: NodeId, context: &Context) -> sawmill::Result<()> {
        let Some(number) = lock(&self.followers).get(context.payload()).copied() else { return Ok(()) };
        let topic = &self.plan.topics[0].name;
        let mut push = Push::new(Intent::payload(number)).follows(context.id(), "next");
        if let Some(key) = &context.message().key {
            push = push.key(key.clone());
        }
        let id = self.mill(node).push(topic, push).await?;
        self.control.used(Feature::Followed);
        self.checker.acknowledged(&[number], &[id]);
        Ok(())
    }

    /// Counts the pushes that returned the id of another message.
    fn count_refused(&self, numbers: &[usize], ids: &[MessageId], began: Timestamp) {
        for (number, id) in numbers.iter().zip(ids) {
            let now = self.control.env(NodeId::WORLD).wall();
            self.checker.book().check_answer_in_period(*number, *id, began, now);
        }
        if numbers.iter().any(|number| self.plan_of(*number).is_some_and(|plan| plan.unique.is_some())) {
            let others = self.checker.book().acknowledged_ids();
            let refused = ids.iter().filter(|id| others.iter().any(|(_, other)| other == *id));
            for _ in refused {
                self.control.used(Feature::UniqueRefused);
                if self.plan.extras.unique_for.is_some() {
                    self.control.used(Feature::UniqueFor);
                }
            }
        }
    }

    pub(super) fn message(&self, number: usize) -> Push {
        let Some(plan) = self.plan_of(number) else { return Push::new(Intent::payload(number)) };
        let mut push = Push::new(Intent::payload(number));
        if let Some(key) = &plan.key {
            push = push.key(key.clone());
        }
        for (name, value) in plan.headers.iter() {
            push = push.header(name, value.clone());
        }
        if let Some(name) = &plan.unique {
            push = match self.plan.extras.unique_for {
                None => push.unique(name.clone()),
                Some(period) => push.unique_for(name.clone(), period),
            };
        }
        if let Some(delay) = plan.delay {
            let due = self.control.env(NodeId::WORLD).wall() + delay;
            self.checker.book().due_at(number, due);
            push = push.at(due);
        }
        push
    }
}
