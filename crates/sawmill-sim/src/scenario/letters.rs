//! The user who handles dead letters: lists, resends and drops them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::admin::DeadLetterSelection;
use sawmill::{ErrorKind, Result, Sawmill};

use super::extras::{LetterAction, LetterTask};
use super::world::World;
use crate::checker::Decision;
use crate::features::Feature;
use crate::tasks::lock;

/// How often the user repeats an action that the store refuses.
const MAX_TRIES: usize = 20;

impl World {
    /// Starts the user who handles dead letters. The returned flag becomes true at the end.
    pub(super) fn start_letter_tasks(&self) -> Arc<Mutex<bool>> {
        let done = Arc::new(Mutex::new(self.plan.extras.letters.is_empty()));
        if *lock(&done) {
            return done;
        }
        let node = self.control.add_node("keeper");
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let done_flag = done.clone();
        self.control.spawn(node, async move {
            for task in &world.plan.extras.letters {
                env.sleep(task.pause).await;
                for _ in 0..MAX_TRIES {
                    match world.look_after_letters(&mill, task).await {
                        // A listed letter is gone: an earlier attempt has succeeded.
                        Err(error) if error.kind() != ErrorKind::NotFound => {}
                        _ => break,
                    }
                    env.sleep(Duration::from_millis(300)).await;
                }
            }
            *lock(&done_flag) = true;
        });
        done
    }

    async fn look_after_letters(&self, mill: &Sawmill, task: &LetterTask) -> Result<()> {
        let (topic, group) = (&self.plan.topics[task.topic].name, &self.plan.groups[task.group].name);
        let letters = mill.admin().dead_letters(topic, group).await?;
        let ids: Vec<_> = letters.list(usize::MAX).await?.iter().map(|letter| letter.id()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.control.used(Feature::LettersListed);
        let chosen = task.nth.map(|nth| vec![ids[(nth % ids.len() as u64) as usize]]);
        let decision = match task.what {
            LetterAction::List => return Ok(()),
            LetterAction::Resend => Decision::Resent,
            LetterAction::Drop => Decision::Dropped,
        };
        let pending = self.checker.book().decision_begins(topic, group, chosen.as_deref(), decision);
        let which = chosen.map_or(DeadLetterSelection::All, DeadLetterSelection::Ids);
        let decided = match decision {
            Decision::Resent => letters.retry(which).await,
            Decision::Dropped => letters.drop(which).await,
        };
        if let Some(pending) = pending {
            match decided {
                Ok(_) => self.checker.book().decided(&pending),
                Err(_) => self.checker.book().decision_failed(&pending),
            }
        }
        decided.map(drop)
    }
}
