//! A topic beside the others that is deleted while it is worked, and created again under the same name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sawmill::message::Headers;
use sawmill::topic::TopicSpec;
use sawmill::{ErrorKind, Sawmill};

use super::people::World;
use super::plan::{FOR_EVER, GroupPlan, Manner, MessagePlan, TopicPlan};
use crate::checker::Intent;
use crate::control::NodeId;
use crate::dice::Seeded;
use crate::features::Feature;
use crate::tasks::lock;

/// How many messages it has before it is deleted, and as many after.
const MESSAGES: usize = 20;
/// How long a person waits after an error.
const PAUSE: Duration = Duration::from_millis(300);

/// A topic to be deleted, and the group that works it.
#[derive(Debug, Clone)]
pub struct DeletePlan {
    /// The topic.
    pub topic: TopicPlan,
    /// The group that works it, and nothing else.
    pub group: GroupPlan,
    /// Its messages: the first half comes before it is deleted, the other half when it is there again.
    pub messages: Vec<MessagePlan>,
    /// The pause between two pushes, on average.
    pub pause: Duration,
}

impl DeletePlan {
    pub(super) fn roll(dice: &mut Seeded, time: Duration) -> Option<Self> {
        if dice.below(8) > 0 {
            return None;
        }
        let first = Duration::from_millis([5, 300, 2_000][dice.below(3) as usize]);
        let group = GroupPlan {
            name: "passengers".to_owned(),
            ordered: dice.below(3) == 0,
            once: false,
            retries: (1 + dice.below(3) as u32, dice.below(2) as u32),
            backoff: (first, first * 4),
            logs_failures: false,
            most_claimed: None,
            limit: None,
            rate: None,
        };
        let topic = TopicPlan {
            name: "passing".to_owned(),
            shards: [1, 2, 3][dice.below(3) as usize],
            // Messages may come before the group begins anew, and must not be trimmed before it could read them.
            retention: FOR_EVER,
        };
        let longest = [2, 50, 1_500][dice.below(3) as usize];
        let message = |_| MessagePlan {
            topic: 0,
            key: (dice.below(2) == 0).then(|| Bytes::from(format!("key {}", dice.below(4)))),
            headers: Headers::default(),
            delay: (dice.below(5) == 0).then(|| Duration::from_millis(dice.below(10_000))),
            takes: Duration::from_micros(1 + dice.below(longest * 1000)),
            manner: match dice.below(10) {
                0..4 => Manner::Fails(1 + dice.below(4) as u32),
                4 => Manner::Dead,
                _ => Manner::Done,
            },
            unique: None,
        };
        let messages = (0..2 * MESSAGES).map(message).collect();
        Some(Self { topic, group, messages, pause: time / (3 * MESSAGES as u32) })
    }

    /// How long its messages may take at most, one after another.
    pub(super) fn takes(&self) -> Duration {
        let starts = 1 + self.group.retries.0;
        self.messages.iter().map(|message| starts * (message.takes + self.group.backoff.1)).sum()
    }

    fn spec(&self) -> sawmill::Result<TopicSpec> {
        let (shards, retention) = (self.topic.shards, self.topic.retention);
        Ok(TopicSpec { shards, retention, ..TopicSpec::new(self.topic.name.parse()?) })
    }
}

impl World {
    pub(super) async fn create_passing_topic(&self, mill: &Sawmill, plan: &DeletePlan) {
        let Ok(spec) = plan.spec() else { return };
        while mill.create_topic_with(&spec).await.is_err() {
            self.control.env(NodeId::WORLD).sleep(PAUSE).await;
        }
    }

    /// Sends a person to the topic that is deleted: pushes, deletes, creates it again and pushes more; says when that is done.
    pub(super) fn start_deleter(&self) -> Arc<Mutex<bool>> {
        let done = Arc::new(Mutex::new(self.plan.extras.deletes.is_none()));
        let Some(plan) = self.plan.extras.deletes.clone() else { return done };
        let node = self.control.add_node("deleter");
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let said = done.clone();
        self.control.spawn(node, async move {
            world.push_passing(&mill, &plan, 0).await;
            env.sleep(plan.pause * world.roll(200) as u32 / 100).await;
            world.delete(&mill, &plan).await;
            env.sleep(plan.pause * world.roll(200) as u32 / 100).await;
            world.create_passing_topic(&mill, &plan).await;
            world.push_passing(&mill, &plan, MESSAGES).await;
            world.control.used(Feature::TopicDeleted);
            *lock(&said) = true;
        });
        done
    }

    /// Deletes the topic; again, if nobody knows what came of it.
    async fn delete(&self, mill: &Sawmill, plan: &DeletePlan) {
        let name = &plan.topic.name;
        loop {
            match mill.delete_topic(name).await {
                Ok(()) => break,
                // It was deleted before.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(_) => self.control.env(NodeId::WORLD).sleep(PAUSE).await,
            }
        }
        let left = self.store.contents(name);
        self.checker.book().deletion_acknowledged(name, &left);
    }

    async fn push_passing(&self, mill: &Sawmill, plan: &DeletePlan, first: usize) {
        let env = self.control.env(NodeId::WORLD);
        for (nth, message) in plan.messages.iter().enumerate().skip(first).take(MESSAGES) {
            env.sleep(plan.pause * self.roll(200) as u32 / 100).await;
            let (topic, key) = (plan.topic.name.clone(), message.key.clone());
            let intent = Intent { topic, key, headers: message.headers.clone(), due: None };
            let number = self.checker.book().intended(intent);
            lock(&self.passing).insert(number, nth);
            loop {
                match mill.push(&plan.topic.name, self.message(number)).await {
                    Ok(id) => self.checker.acknowledged(&[number], &[id]),
                    Err(error) if error.kind() == ErrorKind::Unknown => {}
                    Err(_) => {
                        env.sleep(PAUSE).await;
                        continue;
                    }
                }
                break;
            }
        }
    }
}
