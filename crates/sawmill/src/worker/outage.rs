//! Outages of the store, in the log: one line when an outage begins, one now and then while it lasts, and one
//! when it is over. A worker tries several times a second, and a line for each attempt would flood the log.

use std::time::Duration;

use sawmill_engine::Error;
use sawmill_engine::runtime::Moment;

use crate::telemetry::{TARGET, event};
use crate::worker::Shared;

/// How often an outage that lasts is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Tracks whether one of a worker's tasks has an outage, and when it was last logged.
#[derive(Default)]
pub(super) struct Outage {
    ongoing: Option<Ongoing>,
}

#[derive(Clone, Copy)]
struct Ongoing {
    since: Moment,
    logged: Moment,
}

impl Outage {
    /// Notes a failure. Returns how long the outage has lasted, if it is to be logged now.
    fn lasts(&mut self, now: Moment) -> Option<Duration> {
        let Some(ongoing) = &mut self.ongoing else {
            self.ongoing = Some(Ongoing { since: now, logged: now });
            return Some(Duration::ZERO);
        };
        if now.since(ongoing.logged) < LOG_INTERVAL {
            return None;
        }
        ongoing.logged = now;
        Some(now.since(ongoing.since))
    }

    /// Notes a success. Returns how long the outage lasted, if there was one.
    fn ends(&mut self, now: Moment) -> Option<Duration> {
        self.ongoing.take().map(|ongoing| now.since(ongoing.since))
    }
}

impl Shared {
    /// Records that the store could not be used.
    pub(super) fn record_outage(&self, outage: &mut Outage, error: &Error, what: &str) {
        if let Some(lasting) = outage.lasts(self.env().now()) {
            let (group, lasting_ms) = (&self.group, lasting.as_millis() as u64);
            tracing::warn!(name: event::TROUBLE, target: TARGET, %group, lasting_ms, %error, "{what}");
        }
    }

    /// Records that the store could be used.
    pub(super) fn record_recovery(&self, outage: &mut Outage) {
        if let Some(lasted) = outage.ends(self.env().now()) {
            let (group, lasted_ms) = (&self.group, lasted.as_millis() as u64);
            tracing::info!(name: event::RECOVERED, target: TARGET, %group, lasted_ms, "the store can be used again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_when_it_begins_now_and_then_and_when_it_ends() {
        let at = |seconds| Moment::at(Duration::from_secs(seconds));
        let mut outage = Outage::default();
        assert_eq!(outage.ends(at(5)), None);
        assert_eq!(outage.lasts(at(10)), Some(Duration::ZERO));
        assert_eq!((outage.lasts(at(11)), outage.lasts(at(69))), (None, None));
        assert_eq!((outage.lasts(at(71)), outage.lasts(at(72))), (Some(Duration::from_secs(61)), None));
        assert_eq!(outage.ends(at(80)), Some(Duration::from_secs(70)));
        assert_eq!((outage.ends(at(81)), outage.lasts(at(82))), (None, Some(Duration::ZERO)));
    }
}
