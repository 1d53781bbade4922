//! A schedule that ticks many times in a history, while workers come and go and ticks are missed.

use std::time::Duration;

use sawmill::message::Headers;
use sawmill::{Missed, Push, Schedule};

use super::people::World;
use crate::checker::Intent;
use crate::control::NodeId;
use crate::network::Seam;

/// The name of the schedule.
const NAME: &str = "often";
/// The key of its messages, which other messages have, too.
const KEY: &str = "key 0";

/// A schedule to be.
#[derive(Debug, Clone, Copy)]
pub struct TickPlan {
    /// How often it ticks.
    pub period: Duration,
    /// What becomes of ticks that were missed.
    pub missed: Missed,
    /// For how long the log is out at the end, so that ticks are missed.
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
            // The store is calm: this cannot fail.
            let _ = self.mill(NodeId::WORLD).schedule(topic, schedule).await;
        }
    }

    /// The log is out for a while.
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
