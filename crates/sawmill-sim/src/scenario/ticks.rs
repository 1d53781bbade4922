//! A schedule that ticks often in a history, while workers change and ticks are missed.

use std::time::Duration;

use sawmill::engine::model::Headers;
use sawmill::{Missed, Push, Schedule};

use super::world::World;
use crate::checker::Intent;
use crate::control::NodeId;
use crate::network::Seam;

/// The name of the schedule.
const NAME: &str = "often";
/// The key of its messages, shared with other messages.
const KEY: &str = "key 0";

/// The plan of a schedule.
#[derive(Debug, Clone, Copy)]
pub struct TickPlan {
    /// Its period.
    pub period: Duration,
    /// The policy for missed ticks.
    pub missed: Missed,
    /// How long the log is out at the end, so that ticks are missed.
    pub outage: Duration,
}

impl World {
    /// Adds the schedule to the first topic.
    pub(super) async fn schedule_often(&self, plan: TickPlan) {
        let topic = &self.plan.topics[0].name;
        let key = Some(KEY.into());
        let intent = Intent { topic: topic.clone(), key, headers: Headers::default(), due: None };
        let number = self.checker.book().intended(intent);
        self.checker.book().ticks(number, NAME, plan.period, plan.missed);
        if let Ok(schedule) = Schedule::every(NAME, plan.period) {
            let schedule = schedule.message(Push::new(Intent::payload(number)).key(KEY)).missed(plan.missed);
            // The store is calm, so this cannot fail.
            let _ = self.mill(NodeId::WORLD).schedule(topic, schedule).await;
        }
    }

    /// Takes the log out for a while.
    pub(super) async fn miss_ticks(&self) {
        let Some(plan) = self.plan.extras.ticks.filter(|plan| !plan.outage.is_zero()) else { return };
        let env = self.control.env(NodeId::WORLD);
        self.store.set_out(Seam::Log, true);
        env.sleep(plan.outage).await;
        self.store.set_out(Seam::Log, false);
    }

    /// Removes the schedule, so that the backlog can drain.
    pub(super) async fn unschedule_often(&self) {
        let _ = self.mill(NodeId::WORLD).unschedule(&self.plan.topics[0].name, NAME).await;
    }
}
