//! The person who looks after dead letters: lists them, sends them back and drops them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{ErrorKind, Result, Sawmill, Which};

use super::extras::{LetterAction, LetterTask};
use super::people::World;
use crate::checker::Decision;
use crate::features::Feature;
use crate::tasks::lock;

/// How often the person tries again what the store refuses.
const PATIENCE: usize = 20;

impl World {
    /// Sends a person to the dead letters; says when all is done.
    pub(super) fn start_keeper(&self) -> Arc<Mutex<bool>> {
        let done = Arc::new(Mutex::new(self.plan.extras.letters.is_empty()));
        if *lock(&done) {
            return done;
        }
        let node = self.control.add_node("keeper");
        let (world, mill, env) = (self.clone(), self.mill(node), self.control.env(node));
        let said = done.clone();
        self.control.spawn(node, async move {
            for task in &world.plan.extras.letters {
                env.sleep(task.pause).await;
                for _ in 0..PATIENCE {
                    match world.look_after_letters(&mill, task).await {
                        // A letter that was listed is gone: what was to be done was done by an earlier try.
                        Err(error) if error.kind() != ErrorKind::NotFound => {}
                        _ => break,
                    }
                    env.sleep(Duration::from_millis(300)).await;
                }
            }
            *lock(&said) = true;
        });
        done
    }

    async fn look_after_letters(&self, mill: &Sawmill, task: &LetterTask) -> Result<()> {
        let (topic, group) = (&self.plan.topics[task.topic].name, &self.plan.groups[task.group].name);
        let letters = mill.dead_letters(topic, group).await?;
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
        let wish = self.checker.book().decision_begins(topic, group, chosen.as_deref(), decision);
        let which = chosen.map_or(Which::All, Which::Ids);
        let decided = match decision {
            Decision::Resent => letters.resend(which).await,
            Decision::Dropped => letters.drop(which).await,
        };
        if let Some(wish) = wish {
            match decided {
                Ok(_) => self.checker.book().decided(&wish),
                Err(_) => self.checker.book().decision_failed(&wish),
            }
        }
        decided.map(drop)
    }
}
