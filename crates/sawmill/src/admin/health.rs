//! Judges whether a group keeps up, from two samples of it, as a pure function.

use std::fmt;
use std::time::Duration;

use sawmill_engine::humanize;

/// A group is not behind while its oldest waiting message is younger than this.
const MAX_PROMPT_AGE: Duration = Duration::from_secs(5);
/// Changes of up to this many messages per second count as steady.
const STEADY_RATE: f64 = 0.1;

/// The counts of a group at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Sample {
    /// Due, and not handed out.
    pub(crate) waiting: u64,
    /// The age of the oldest waiting message.
    pub(crate) oldest: Duration,
    /// Not due yet.
    pub(crate) scheduled: u64,
    /// Held by workers.
    pub(crate) claimed: u64,
    /// Failed, and to be retried.
    pub(crate) retrying: u64,
    /// Done, dead, dropped or cancelled.
    pub(crate) finished: u64,
    pub(crate) workers: u64,
    pub(crate) paused: bool,
}

/// Changes between two samples, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    /// Finished messages.
    pub(crate) finished: f64,
    /// Growth of the waiting messages; negative if they become fewer.
    pub(crate) growth: f64,
    /// The time between the samples.
    pub(crate) over: Duration,
}

impl Rates {
    /// Computes the rates; `None` if no time has passed.
    pub(crate) fn between(before: &Sample, now: &Sample, over: Duration) -> Option<Self> {
        let seconds = over.as_secs_f64();
        // Dead letters that were retried in between lower the count, but undo no work.
        let finished = now.finished.saturating_sub(before.finished) as f64;
        let growth = now.waiting as f64 - before.waiting as f64;
        (seconds > 0.0).then(|| Self { finished: finished / seconds, growth: growth / seconds, over })
    }

    fn is_growing(&self) -> bool {
        self.growth > STEADY_RATE
    }

    fn is_shrinking(&self) -> bool {
        self.growth < -STEADY_RATE
    }
}

/// The verdict on a group: how well it keeps up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// There is nothing to do.
    Idle,
    /// Messages are handled soon after they are due.
    KeepingUp,
    /// Messages wait too long.
    Behind(Behind),
    /// An operator has paused the group.
    Paused { waiting: u64 },
    /// There are messages to handle, and no workers.
    NoWorkers { waiting: u64, oldest: Duration },
    /// The topic has no group.
    NoGroups { waiting: u64 },
}

/// How far a group is behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Behind {
    pub(crate) waiting: u64,
    pub(crate) oldest: Duration,
    pub(crate) rates: Option<Rates>,
    pub(crate) outlook: Outlook,
}

/// When a group that is behind will catch up, if the rates stay as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outlook {
    /// Not known: there is only one sample.
    Unknown,
    /// Nothing was finished between the samples: the time was too short, or all messages are stuck.
    NothingFinished,
    /// It catches up after this time.
    DoneIn(Duration),
    /// It catches up only with this many more workers.
    Never { more_workers: u64 },
}

/// Judges a group by a sample, and by the rates since the sample before it.
pub(crate) fn judge(now: &Sample, rates: Option<Rates>) -> Verdict {
    let in_work = now.claimed + now.retrying;
    if now.paused {
        return Verdict::Paused { waiting: now.waiting };
    }
    if now.workers == 0 && now.waiting + in_work + now.scheduled > 0 {
        return Verdict::NoWorkers { waiting: now.waiting, oldest: now.oldest };
    }
    if now.waiting == 0 {
        let is_still = rates.is_none_or(|rates| rates.finished == 0.0);
        return if in_work == 0 && is_still { Verdict::Idle } else { Verdict::KeepingUp };
    }
    // A delayed message is old as soon as it is due, so its age alone does not mean that the group is behind.
    let soon_done =
        rates.is_some_and(|rates| now.waiting as f64 <= rates.finished * MAX_PROMPT_AGE.as_secs_f64());
    if now.oldest < MAX_PROMPT_AGE || soon_done {
        return Verdict::KeepingUp;
    }
    let outlook = rates.map_or(Outlook::Unknown, |rates| outlook(now, rates));
    Verdict::Behind(Behind { waiting: now.waiting, oldest: now.oldest, rates, outlook })
}

fn outlook(now: &Sample, rates: Rates) -> Outlook {
    if rates.is_shrinking() {
        return Outlook::DoneIn(seconds(now.waiting as f64 / -rates.growth));
    }
    if rates.finished == 0.0 {
        return Outlook::NothingFinished;
    }
    // Each added worker is assumed to finish as much as each present one. Together they must exceed the
    // growth.
    let by_each = rates.finished / now.workers.max(1) as f64;
    Outlook::Never { more_workers: ((rates.growth.max(0.0) / by_each).floor() as u64).saturating_add(1) }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Verdict {
    /// The stable name of the verdict, for scripts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::KeepingUp => "keeping-up",
            Self::Behind(_) => "behind",
            Self::Paused { .. } => "paused",
            Self::NoWorkers { .. } => "no-workers",
            Self::NoGroups { .. } => "no-groups",
        }
    }

    pub(crate) fn outlook(&self) -> Outlook {
        match self {
            Self::Behind(behind) => behind.outlook,
            _ => Outlook::Unknown,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = |waiting: u64| {
            format!("{} wait{}", humanize::counted(waiting, "message"), if waiting == 1 { "s" } else { "" })
        };
        match self {
            Self::Idle => f.write_str("idle"),
            Self::KeepingUp => f.write_str("keeping up"),
            Self::Behind(behind) => behind.fmt(f),
            Self::Paused { waiting: 0 } => f.write_str("paused"),
            Self::Paused { waiting } => write!(f, "paused; {}", wait(*waiting)),
            Self::NoWorkers { waiting: 0, .. } => f.write_str("no workers"),
            Self::NoWorkers { waiting, oldest } => {
                write!(f, "no workers; {}, oldest {}", wait(*waiting), humanize::span(*oldest))
            }
            Self::NoGroups { waiting: 0 } => f.write_str("no groups yet"),
            Self::NoGroups { waiting } => write!(f, "no groups yet; {}", wait(*waiting)),
        }
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "behind by {}", humanize::counted(self.waiting, "message"))?;
        match self.rates {
            Some(rates) if rates.is_growing() => write!(f, ", growing {}", humanize::rate(rates.growth))?,
            Some(rates) if rates.is_shrinking() => {
                write!(f, ", shrinking {}", humanize::rate(-rates.growth))?
            }
            Some(_) => f.write_str(", neither growing nor shrinking")?,
            None => {}
        }
        write!(f, "; oldest {}", humanize::span(self.oldest))?;
        match (self.outlook, self.rates) {
            (Outlook::Unknown, _) => Ok(()),
            (Outlook::NothingFinished, Some(Rates { over, .. })) => {
                write!(f, "; nothing was finished in {}", humanize::span(over))
            }
            (Outlook::NothingFinished, None) => Ok(()),
            (Outlook::DoneIn(time), _) => write!(f, "; at this rate done in {}", humanize::span(time)),
            (Outlook::Never { more_workers }, _) => {
                write!(f, "; at this rate never, {} would do", humanize::counted(more_workers, "more worker"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A busy group of four workers with a backlog.
    fn busy() -> Sample {
        Sample { waiting: 12_400, oldest: SECOND * 245, claimed: 16, workers: 4, ..Sample::default() }
    }

    fn rates(finished: f64, growth: f64) -> Option<Rates> {
        Some(Rates { finished, growth, over: SECOND })
    }

    fn said(now: Sample, rates: Option<Rates>) -> String {
        judge(&now, rates).to_string()
    }

    #[test]
    fn q17_who_has_nothing_to_do_is_idle() {
        let idle = Sample { workers: 2, ..Sample::default() };
        assert_eq!(said(idle, rates(0.0, 0.0)), "idle");
        assert_eq!(said(idle, None), "idle");
        assert_eq!(said(Sample::default(), rates(0.0, 0.0)), "idle", "without workers, too");
        assert_eq!(
            said(Sample { scheduled: 5, ..idle }, None),
            "idle",
            "messages that are not due do not count"
        );
    }

    #[test]
    fn q17_who_works_without_letting_anything_wait_for_long_keeps_up() {
        let busy = Sample { workers: 2, ..Sample::default() };
        assert_eq!(said(busy, rates(50.0, 0.0)), "keeping up");
        assert_eq!(said(Sample { claimed: 1, ..busy }, rates(0.0, 0.0)), "keeping up");
        assert_eq!(said(Sample { retrying: 1, ..busy }, None), "keeping up");
        let prompt = Sample { waiting: 900, oldest: SECOND * 4, ..busy };
        assert_eq!(said(prompt, rates(0.0, 100.0)), "keeping up");
        assert_eq!(said(prompt, None), "keeping up");
    }

    #[test]
    fn q17_what_was_due_late_is_not_behind_if_it_is_soon_done() {
        let late = Sample { waiting: 100, oldest: SECOND * 3600, workers: 1, ..Sample::default() };
        assert_eq!(said(late, rates(20.0, 0.0)), "keeping up");
        assert!(said(late, rates(19.0, 0.0)).starts_with("behind by 100 messages"));
        assert!(said(late, None).starts_with("behind by 100 messages"));
    }

    #[test]
    fn q17_who_falls_behind_is_told_by_how_much_and_what_would_do() {
        assert_eq!(
            said(busy(), rates(480.0, 300.0)),
            "behind by 12,400 messages, growing 300/s; oldest 4 min; at this rate never, 3 more workers would do"
        );
        // Three more workers would only stop the growth.
        assert_eq!(judge(&busy(), rates(400.0, 300.0)).outlook(), Outlook::Never { more_workers: 4 });
        assert_eq!(judge(&busy(), rates(400.0, 1.0)).outlook(), Outlook::Never { more_workers: 1 });
        assert_eq!(
            said(busy(), rates(400.0, 0.0)),
            "behind by 12,400 messages, neither growing nor shrinking; oldest 4 min; at this rate never, 1 more worker would do"
        );
    }

    #[test]
    fn q17_who_catches_up_is_told_when() {
        assert_eq!(
            said(busy(), rates(480.0, -100.0)),
            "behind by 12,400 messages, shrinking 100/s; oldest 4 min; at this rate done in 2 min"
        );
        let slow = Sample { waiting: 1, ..busy() };
        assert_eq!(
            said(slow, rates(0.0, -0.5)),
            "behind by 1 message, shrinking 0.5/s; oldest 4 min; at this rate done in 2 s",
            "waiting messages were taken, though none was finished"
        );
    }

    #[test]
    fn q17_without_rates_nothing_is_foretold() {
        assert_eq!(said(busy(), None), "behind by 12,400 messages; oldest 4 min");
        assert_eq!(
            said(busy(), rates(0.0, 0.0)),
            "behind by 12,400 messages, neither growing nor shrinking; oldest 4 min; nothing was finished in 1 s"
        );
    }

    #[test]
    fn q17_pauses_and_missing_workers_are_said_before_anything_else() {
        let paused = Sample { paused: true, workers: 0, ..busy() };
        assert_eq!(said(paused, rates(0.0, 300.0)), "paused; 12,400 messages wait");
        assert_eq!(said(Sample { paused: true, ..Sample::default() }, None), "paused");
        let alone = Sample { workers: 0, claimed: 0, waiting: 1, ..busy() };
        assert_eq!(said(alone, rates(0.0, 0.0)), "no workers; 1 message waits, oldest 4 min");
        for left in [
            Sample { claimed: 1, ..Sample::default() },
            Sample { retrying: 1, ..Sample::default() },
            Sample { scheduled: 1, ..Sample::default() },
        ] {
            assert_eq!(said(left, None), "no workers", "{left:?}");
        }
        assert_eq!(Verdict::NoGroups { waiting: 2 }.to_string(), "no groups yet; 2 messages wait");
    }

    #[test]
    fn q17_rates_are_what_happened_per_second() {
        let before = Sample { waiting: 100, finished: 40, ..Sample::default() };
        let now = Sample { waiting: 90, finished: 60, ..Sample::default() };
        assert_eq!(
            Rates::between(&before, &now, SECOND * 2),
            Some(Rates { finished: 10.0, growth: -5.0, over: SECOND * 2 })
        );
        assert_eq!(Rates::between(&before, &now, Duration::ZERO), None);
        let resent = Sample { finished: 30, ..now };
        assert_eq!(Rates::between(&before, &resent, SECOND).map(|rates| rates.finished), Some(0.0));
    }

    #[test]
    fn q17_no_number_is_too_large() {
        let most = Sample { waiting: u64::MAX, oldest: Duration::MAX, workers: 1, ..Sample::default() };
        for rates in [rates(f64::MIN_POSITIVE, f64::MAX), rates(1.0, -0.2), rates(1e-9, 1e12)] {
            assert!(said(most, rates).starts_with("behind"));
        }
    }
}
