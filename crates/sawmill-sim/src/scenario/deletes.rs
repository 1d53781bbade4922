//! An extra topic that is deleted while it is worked, and created again under the same name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Headers;
use sawmill::{ErrorKind, Sawmill, TopicSpec};

use super::plan::{FOR_EVER, GroupPlan, Manner, MessagePlan, TopicPlan};
use super::world::World;
use crate::checker::Intent;
use crate::control::NodeId;
use crate::features::Feature;
use crate::rng::Seeded;
use crate::tasks::lock;

/// The number of messages before the deletion, and again after it.
const MESSAGES: usize = 20;
/// How long a user waits after an error.
const PAUSE: Duration = Duration::from_millis(300);

/// A topic that is deleted, and the group that works it.
#[derive(Debug, Clone)]
pub struct DeletePlan {
    /// The topic.
    pub topic: TopicPlan,
    /// The group that works it, and nothing else.
    pub group: GroupPlan,
    /// Its messages: the first half is pushed before the deletion, the second half after the topic exists
    /// again.
    pub messages: Vec<MessagePlan>,
    /// The average pause between two pushes.
    pub pause: Duration,
}

impl DeletePlan {
    pub(super) fn draw(rng: &mut Seeded, time: Duration) -> Option<Self> {
        if rng.below(8) > 0 {
            return None;
        }
        let first = Duration::from_millis([5, 300, 2_000][rng.below(3) as usize]);
        let group = GroupPlan {
            name: "passengers".to_owned(),
            ordered: rng.below(3) == 0,
            once: false,
            retries: (1 + rng.below(3) as u32, rng.below(2) as u32),
            backoff: (first, first * 4),
            logs_failures: false,
            max_in_flight: None,
            limit: None,
            rate: None,
        };
        let topic = TopicPlan {
            name: "passing".to_owned(),
            shards: [1, 2, 3][rng.below(3) as usize],
            // Messages may arrive before the group starts again, and must not be trimmed before it can read
            // them.
            retention: FOR_EVER,
        };
        let longest = [2, 50, 1_500][rng.below(3) as usize];
        let message = |_| MessagePlan {
            topic: 0,
            key: (rng.below(2) == 0).then(|| Bytes::from(format!("key {}", rng.below(4)))),
            headers: Headers::default(),
            delay: (rng.below(5) == 0).then(|| Duration::from_millis(rng.below(10_000))),
            takes: Duration::from_micros(1 + rng.below(longest * 1000)),
            manner: match rng.below(10) {
                0..4 => Manner::Fails(1 + rng.below(4) as u32),
                4 => Manner::Dead,
                _ => Manner::Done,
            },
            unique: None,
        };
        let messages = (0..2 * MESSAGES).map(message).collect();
        Some(Self { topic, group, messages, pause: time / (3 * MESSAGES as u32) })
    }

    /// Returns the maximum time that its messages take, one after another.
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
    pub(super) async fn create_temporary_topic(&self, mill: &Sawmill, plan: &DeletePlan) {
        let Ok(spec) = plan.spec() else { return };
        while mill.create_topic_with(&spec).await.is_err() {
            self.control.env(NodeId::WORLD).sleep(PAUSE).await;
        }
    }

    /// Starts a user who pushes, deletes the topic, creates it again and pushes more. The returned flag
    /// becomes true at the end.
    pub(super) fn start_deleter(&self) -> Arc<Mutex<bool>> {
        let done = Arc::new(Mutex::new(self.plan.extras.deletes.is_none()));
        let Some(plan) = self.plan.extras.deletes.clone() else { return done };
        let node = self.control.add_node("deleter");
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done_flag = done.clone();
        self.control.spawn(node, async move {
            world.push_temporary(&mill, &plan, 0).await;
            env.sleep(plan.pause * world.random_below(200) as u32 / 100).await;
            world.delete(&mill, &plan).await;
            env.sleep(plan.pause * world.random_below(200) as u32 / 100).await;
            world.create_temporary_topic(&mill, &plan).await;
            world.push_temporary(&mill, &plan, MESSAGES).await;
            world.control.used(Feature::TopicDeleted);
            *lock(&done_flag) = true;
        });
        done
    }

    /// Deletes the topic, repeating the call if its outcome is unknown.
    async fn delete(&self, mill: &Sawmill, plan: &DeletePlan) {
        let name = &plan.topic.name;
        loop {
            match mill.admin().delete_topic(name).await {
                Ok(()) => break,
                // It was deleted by an earlier call.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(_) => self.control.env(NodeId::WORLD).sleep(PAUSE).await,
            }
        }
        let left = self.store.contents(name);
        self.checker.book().deletion_acknowledged(name, &left);
    }

    async fn push_temporary(&self, mill: &Sawmill, plan: &DeletePlan, first: usize) {
        let env = self.control.env(NodeId::WORLD);
        for (nth, message) in plan.messages.iter().enumerate().skip(first).take(MESSAGES) {
            env.sleep(plan.pause * self.random_below(200) as u32 / 100).await;
            let (topic, key) = (plan.topic.name.clone(), message.key.clone());
            let intent = Intent { topic, key, headers: message.headers.clone(), due: None };
            let number = self.checker.book().intended(intent);
            lock(&self.temporary).insert(number, nth);
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
