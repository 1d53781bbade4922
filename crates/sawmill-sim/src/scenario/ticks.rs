//! A schedule that ticks many times in a history, while workers come and go and ticks are missed.

use std::time::Duration;

use sawmill::message::Headers;
use sawmill::{Missed, Push, Schedule};

use super::people::World;
use crate::checker::Intent;
use crate::control::NodeId;

/// The name of the schedule.
const NAME: &str = "often";
/// The key of its messages, which other messages have, too.
const KEY: &str = "key 0";

/// A schedule to be.
#[derive(Debug, Clone, Copy)]
pub struct TickPlan {
    /// How often it ticks.
    pub period: Duration,
    /// All ticks that were missed are pushed, and not only the latest.
    pub all: bool,
}

impl World {
    /// Adds the schedule to the first topic.
    pub(super) async fn schedule_often(&self, plan: TickPlan) {
        let topic = &self.plan.topics[0].name;
        let key = Some(KEY.into());
        let intent = Intent { topic: topic.clone(), key, headers: Headers::default(), due: None };
        let number = self.checker.book().intended(intent);
        self.checker.book().ticks(number, plan.period, !plan.all);
        if let Ok(schedule) = Schedule::every(NAME, plan.period) {
            let missed = if plan.all { Missed::All } else { Missed::Once };
            let schedule = schedule.message(Push::new(Intent::payload(number)).key(KEY)).missed(missed);
            // The store is calm: this cannot fail.
            let _ = self.mill(NodeId::WORLD).schedule(topic, schedule).await;
        }
    }

    /// Removes the schedule, so that the backlog can drain.
    pub(super) async fn unschedule_often(&self) {
        if self.plan.extras.ticks.is_some() {
            let _ = self.mill(NodeId::WORLD).unschedule(&self.plan.topics[0].name, NAME).await;
        }
    }
}
