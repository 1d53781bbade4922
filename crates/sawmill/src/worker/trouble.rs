//! Trouble with the store, as it is told: when it begins, now and then while it lasts, and when it is over. A worker tries
//! several times a second, and nobody wants to read each of these.

use std::time::Duration;

use super::Shared;
use crate::clock::Moment;
use crate::error::Error;
use crate::observe::{TARGET, event};

/// How often trouble that lasts is told again.
const AGAIN: Duration = Duration::from_secs(60);

/// Whether one of a worker's tasks is in trouble, and what was told of it.
#[derive(Default)]
pub(super) struct Trouble {
    lasting: Option<Lasting>,
}

#[derive(Clone, Copy)]
struct Lasting {
    since: Moment,
    told: Moment,
}

impl Trouble {
    /// There is trouble now. How long it has lasted if that is to be told.
    fn lasts(&mut self, now: Moment) -> Option<Duration> {
        let Some(lasting) = &mut self.lasting else {
            self.lasting = Some(Lasting { since: now, told: now });
            return Some(Duration::ZERO);
        };
        if now.since(lasting.told) < AGAIN {
            return None;
        }
        lasting.told = now;
        Some(now.since(lasting.since))
    }

    /// There is no trouble now. How long it has lasted if there was.
    fn ends(&mut self, now: Moment) -> Option<Duration> {
        self.lasting.take().map(|lasting| now.since(lasting.since))
    }
}

impl Shared {
    /// The store could not be used.
    pub(super) fn saw_trouble(&self, trouble: &mut Trouble, error: &Error, what: &str) {
        if let Some(lasting) = trouble.lasts(self.env().now()) {
            let (group, lasting_ms) = (&self.group, lasting.as_millis() as u64);
            tracing::warn!(name: event::TROUBLE, target: TARGET, %group, lasting_ms, %error, "{what}");
        }
    }

    /// The store could be used.
    pub(super) fn saw_no_trouble(&self, trouble: &mut Trouble) {
        if let Some(lasted) = trouble.ends(self.env().now()) {
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
        let mut trouble = Trouble::default();
        assert_eq!(trouble.ends(at(5)), None);
        assert_eq!(trouble.lasts(at(10)), Some(Duration::ZERO));
        assert_eq!((trouble.lasts(at(11)), trouble.lasts(at(69))), (None, None));
        assert_eq!((trouble.lasts(at(71)), trouble.lasts(at(72))), (Some(Duration::from_secs(61)), None));
        assert_eq!(trouble.ends(at(80)), Some(Duration::from_secs(70)));
        assert_eq!((trouble.ends(at(81)), trouble.lasts(at(82))), (None, Some(Duration::ZERO)));
    }
}
