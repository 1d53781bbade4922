//! The actions of users in a history, while workers run and the store has faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::admin::ReplayFrom;
use sawmill::{ErrorKind, MessageId, Result, Sawmill};

use super::plan::{SeekPlace, UserAction};
use super::world::World;
use crate::checker::Target;
use crate::features::Feature;
use crate::tasks::lock;

/// How often a user repeats an action that the store refuses.
const MAX_TRIES: usize = 20;

impl World {
    /// Starts a user who does all actions one after another. The returned flag becomes true at the end.
    pub(super) fn start_user_tasks(&self) -> Arc<Mutex<bool>> {
        let node = self.control.add_node("person");
        self.choose_version_of_people(node);
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done = Arc::new(Mutex::new(false));
        let done_flag = done.clone();
        self.control.spawn(node, async move {
            for user_task in &world.plan.user_tasks {
                env.sleep(user_task.pause).await;
                for _ in 0..MAX_TRIES {
                    match world.run_user_task(&mill, user_task.task).await {
                        Ok(()) => break,
                        // An older program can never succeed.
                        Err(error) if error.kind() == ErrorKind::Outdated => break,
                        Err(_) => {}
                    }
                    env.sleep(Duration::from_millis(300)).await;
                }
            }
            *lock(&done_flag) = true;
        });
        done
    }

    async fn run_user_task(&self, mill: &Sawmill, task: UserAction) -> Result<()> {
        match task {
            UserAction::Cancel(nth) => {
                // Usually picks one of the latest messages, which is still waiting.
                let latest = self.checker.book().acknowledged_ids().len().saturating_sub(8) as u64;
                let nth = if nth % 4 == 0 { nth } else { latest + nth % 8 };
                let Some((topic, id)) = self.pick(nth) else { return Ok(()) };
                self.checker.book().cancel_begins(id);
                mill.cancel(&topic, id).await?;
                self.checker.book().cancelled(id);
                Ok(())
            }
            UserAction::Pause { group, topic, time } => {
                let (name, topic) = (&self.plan.groups[group].name, &self.plan.topics[topic].name);
                let env = self.control.env(crate::control::NodeId::WORLD);
                self.checker.book().may_be_paused(group, topic);
                let paused = mill.admin().pause(topic, name).await;
                if paused.is_ok() {
                    self.control.used(Feature::Pause);
                    self.checker.book().paused(group, topic, self.control.now());
                    env.sleep(time).await;
                }
                self.checker.book().resumed(group, topic);
                // A group must not stay paused, even if the pause returned no answer.
                while mill.admin().resume(topic, name).await.is_err() {
                    env.sleep(Duration::from_millis(300)).await;
                }
                paused
            }
            UserAction::Seek { group, topic, place } => {
                let number = group;
                let (group, topic) = (&self.plan.groups[group].name, &self.plan.topics[topic].name);
                let since = match place {
                    SeekPlace::Start => ReplayFrom::Start,
                    SeekPlace::Now => ReplayFrom::Now,
                    SeekPlace::Message(nth) | SeekPlace::Time(nth) => match self.pick(nth) {
                        Some((of, id)) if of == *topic && matches!(place, SeekPlace::Message(_)) => {
                            ReplayFrom::Id(id)
                        }
                        Some((_, id)) => ReplayFrom::Time(id.created()),
                        None => ReplayFrom::Start,
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
        since: ReplayFrom,
    ) -> Result<()> {
        let target = match since {
            ReplayFrom::Start => Target::Start,
            ReplayFrom::Time(time) => Target::Time(time),
            ReplayFrom::Id(id) => Target::Message(id),
            ReplayFrom::Now => Target::Now,
        };
        let known = topic.parse().ok().and_then(|name| self.store.topic(&name));
        if let Some(known) = &known {
            self.checker.book().seek_begins(number, known, target);
        }
        mill.admin().replay(topic, group, since).await?;
        if known.is_some() {
            self.checker.book().seek_acknowledged();
        }
        Ok(())
    }

    /// Returns one of the messages whose push was acknowledged.
    fn pick(&self, nth: u64) -> Option<(String, MessageId)> {
        let all = self.checker.book().acknowledged_ids();
        all.get((nth % (all.len() as u64).max(1)) as usize).cloned()
    }
}
