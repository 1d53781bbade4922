//! What people do in a history, while workers are at work and the store is in trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{ErrorKind, MessageId, Result, Sawmill, Since};

use super::people::World;
use super::plan::{Place, Task};
use crate::checker::Target;
use crate::features::Feature;
use crate::tasks::lock;

/// How often a person tries again what the store refuses.
const PATIENCE: usize = 20;

impl World {
    /// Sends a person on all errands, one after another; says when they are done.
    pub(super) fn start_errands(&self) -> Arc<Mutex<bool>> {
        let node = self.control.add_node("person");
        self.choose_version_of_people(node);
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done = Arc::new(Mutex::new(false));
        let said = done.clone();
        self.control.spawn(node, async move {
            for errand in &world.plan.errands {
                env.sleep(errand.pause).await;
                for _ in 0..PATIENCE {
                    match world.run_errand(&mill, errand.task).await {
                        Ok(()) => break,
                        // However often an older program tries.
                        Err(error) if error.kind() == ErrorKind::Outdated => break,
                        Err(_) => {}
                    }
                    env.sleep(Duration::from_millis(300)).await;
                }
            }
            *lock(&said) = true;
        });
        done
    }

    async fn run_errand(&self, mill: &Sawmill, task: Task) -> Result<()> {
        match task {
            Task::Cancel(nth) => {
                // Mostly one of the latest, which still waits.
                let latest = self.checker.book().acknowledged_ids().len().saturating_sub(8) as u64;
                let nth = if nth % 4 == 0 { nth } else { latest + nth % 8 };
                let Some((topic, id)) = self.pick(nth) else { return Ok(()) };
                self.checker.book().cancel_begins(id);
                mill.cancel(&topic, id).await?;
                self.checker.book().cancelled(id);
                Ok(())
            }
            Task::Pause { group, topic, time } => {
                let (name, topic) = (&self.plan.groups[group].name, &self.plan.topics[topic].name);
                let env = self.control.env(crate::control::NodeId::WORLD);
                self.checker.book().may_be_paused(group, topic);
                let paused = mill.pause(topic, name).await;
                if paused.is_ok() {
                    self.control.used(Feature::Pause);
                    self.checker.book().paused(group, topic, self.control.now());
                    env.sleep(time).await;
                }
                self.checker.book().resumed(group, topic);
                // What was paused, perhaps without an answer, must not stay so.
                while mill.resume(topic, name).await.is_err() {
                    env.sleep(Duration::from_millis(300)).await;
                }
                paused
            }
            Task::Seek { group, topic, place } => {
                let number = group;
                let (group, topic) = (&self.plan.groups[group].name, &self.plan.topics[topic].name);
                let since = match place {
                    Place::Start => Since::Start,
                    Place::Now => Since::Now,
                    Place::Message(nth) | Place::Time(nth) => match self.pick(nth) {
                        Some((of, id)) if of == *topic && matches!(place, Place::Message(_)) => Since::Id(id),
                        Some((_, id)) => Since::Time(id.created()),
                        None => Since::Start,
                    },
                };
                self.seek(mill, number, topic, group, since).await
            }
        }
    }

    async fn seek(
        &self,
        mill: &Sawmill,
        number: usize,
        topic: &str,
        group: &str,
        since: Since,
    ) -> Result<()> {
        let target = match since {
            Since::Start => Target::Start,
            Since::Time(time) => Target::Time(time),
            Since::Id(id) => Target::Message(id),
            Since::Now => Target::Now,
        };
        let known = topic.parse().ok().and_then(|name| self.store.topic(&name));
        if let Some(known) = &known {
            self.checker.book().seek_begins(number, known, target);
        }
        mill.seek(topic, group, since).await?;
        if known.is_some() {
            self.checker.book().seek_acknowledged();
        }
        Ok(())
    }

    /// One of the messages that were pushed and acknowledged.
    fn pick(&self, nth: u64) -> Option<(String, MessageId)> {
        let all = self.checker.book().acknowledged_ids();
        all.get((nth % (all.len() as u64).max(1)) as usize).cloned()
    }
}
