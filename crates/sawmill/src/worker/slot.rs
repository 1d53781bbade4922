//! Slots: each takes the next message from the bench, runs its handler, and says what came of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::item::{Copy, Start, Verdict};
use super::recover::note_starts;
use super::{Delivery, OnFailure, Shared, Work, batch};
use crate::cancel;
use crate::clock::Moment;
use crate::env::breathe;
use crate::handler::Context;
use crate::observe::{TARGET, event};
use crate::outcome::Outcome;
use crate::planted::{self, Bug};
use crate::retry::{Failure, Next};
use crate::shard::Fate;
use crate::trace::HandleSpan;

/// After how many messages a slot lets other tasks run, in case its handlers never wait.
const BREATH: u32 = 32;

/// Starts as many slots as there are messages ready for them.
pub(super) fn fill(shared: &Arc<Shared>) {
    if !matches!(shared.work, Work::Each(_)) {
        shared.more.notify_waiters();
    }
    if matches!(shared.work, Work::Pull) {
        // Make due messages ready now. A puller may not ask for a long time, and a message that stays due would wake the foreman
        // again and again.
        shared.bench().ripen(shared.env().now());
        return;
    }
    let wanted = {
        let mut bench = shared.bench();
        let wanted = bench.runners_wanted(shared.env().now());
        bench.runners += wanted;
        wanted
    };
    for _ in 0..wanted {
        match shared.work {
            Work::Batch(batch, _) => shared.env().spawn(batch::run(shared.clone(), batch)),
            _ => shared.env().spawn(run(shared.clone())),
        }
    }
}

async fn run(shared: Arc<Shared>) {
    let Work::Each(handler) = &shared.work else { return };
    let env = shared.env().clone();
    let mut finished = None;
    let mut since_breath = 0;
    loop {
        since_breath += 1;
        if since_breath % BREATH == 0 {
            breathe().await;
        }
        let (start, now) = {
            let now = env.now();
            let mut bench = shared.bench();
            if let Some((source, item, verdict, began)) = finished.take() {
                shared.saw_took(source, now.since(began));
                bench.finish(item, verdict, now.since(began), now);
                if bench.wants_foreman() {
                    shared.wake.notify_one();
                }
            }
            match bench.next(now) {
                Some(start) => (start, now),
                None => {
                    bench.runners -= 1;
                    shared.wake.notify_one();
                    return;
                }
            }
        };
        if !note_starts(&shared, std::slice::from_ref(&start)) {
            continue;
        }
        let span = shared.saw_start(&start, now);
        let mut attempt = Attempt::new(&shared, now);
        let context = attempt.context(&start);
        let unwanted = cancel::cancelled(&shared.site.cancels, &start.item.message);
        let ending = span.around(attempt.run(|| handler.call(context), unwanted)).await;
        let verdict = judge(&shared, &start, ending, &span);
        finished = Some((start.source, start.item, verdict, now));
    }
}

/// One call of a handler, for one message or several.
pub(super) struct Attempt<'a> {
    shared: &'a Shared,
    began: Moment,
    /// If it may be late: what tells the handler so.
    cancelled: Vec<Arc<CancellationToken>>,
}

/// How a handler ended.
pub(super) enum Ending<T = Outcome> {
    Said(T),
    /// It panicked, or was late.
    Failed(String),
    /// The worker was made to stop at once.
    Dropped,
    /// A person has cancelled the message.
    Cancelled,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(shared: &'a Shared, began: Moment) -> Self {
        Self { shared, began, cancelled: Vec::new() }
    }

    /// What the handler may know of this message.
    pub(super) fn context(&mut self, start: &Start) -> Context {
        let mut cancelled = start.cancelled.clone();
        if self.shared.builder.timeout.is_some() {
            cancelled = Arc::new(cancelled.child_token());
            self.cancelled.push(cancelled.clone());
        }
        Context {
            message: start.item.message.clone(),
            source: self.shared.sources[start.source].origin.clone(),
            attempt: start.item.attempt(),
            token: start.token,
            began: self.began,
            cancelled,
        }
    }

    /// Calls the handler and waits for its end, unless it takes too long, is not wanted any more, or the worker is made to
    /// stop at once.
    pub(super) async fn run<T>(
        self,
        call: impl FnOnce() -> BoxFuture<'static, T>,
        unwanted: impl Future<Output = ()>,
    ) -> Ending<T> {
        let env = self.shared.env();
        // A handler that panics while it makes its future fails that message, as does one whose future panics.
        let future = match std::panic::catch_unwind(AssertUnwindSafe(call)) {
            Ok(future) => AssertUnwindSafe(future).catch_unwind(),
            Err(panic) => return Ending::Failed(panic_text(&*panic)),
        };
        let late = async {
            match self.shared.builder.timeout {
                Some(limit) => env.sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = future => match ended {
                Ok(said) => Ending::Said(said),
                Err(panic) => Ending::Failed(panic_text(&*panic)),
            },
            () = self.shared.abort.cancelled() => Ending::Dropped,
            () = unwanted => Ending::Cancelled,
            () = late => {
                self.cancelled.iter().for_each(|cancelled| cancelled.cancel());
                Ending::Failed(late_text(self.shared.builder.timeout))
            }
        }
    }
}

/// How the error of an attempt begins that took too long.
const LATE: &str = "it took longer than its timeout";

/// The error of an attempt that took too long.
pub(super) fn late_text(limit: Option<Duration>) -> String {
    format!("{LATE} of {:?}", limit.unwrap_or_default())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("(no message)"))
}

/// The error of a handler of an exactly-once group that says that it is done and has not finished.
const UNFINISHED: &str = "the handler has not finished the message within its transaction, which exactly-once needs: call the \
    engine's `finish_within` in it";

/// What follows from how a handler ended, by the group's rules.
pub(super) fn judge(shared: &Shared, start: &Start, ending: Ending, span: &HandleSpan) -> Verdict {
    let verdict = span.in_scope(|| verdict(shared, start, ending));
    shared.saw_end(start, &verdict, span);
    verdict
}

fn verdict(shared: &Shared, start: &Start, ending: Ending) -> Verdict {
    shared.site.notes.ended(&start.item.message);
    let once = shared.builder.delivery == Delivery::AtMostOnce;
    let ordered = shared.builder.ordered;
    let item = &start.item;
    let unfinished =
        shared.builder.delivery == Delivery::ExactlyOnce && !shared.site.finishes.take(&item.message);
    // Whatever became of this attempt: there will be no other.
    let unwanted = shared.site.cancels.borrow().contains(&item.message);
    let failure = |error: &str| {
        let bench = shared.bench();
        let worker = bench.me().map_or("", |me| me.as_str());
        Failure::new(item.attempt(), shared.env().wall(), worker, error)
    };
    let dead = |reason: String| Verdict::Copy(Copy::Dead { reason }, None);
    let (error, after) = match ending {
        Ending::Said(Outcome::Done) if unfinished => (UNFINISHED.to_owned(), None),
        Ending::Said(Outcome::Done) => return Verdict::Settled(Fate::Done),
        Ending::Cancelled => return Verdict::Settled(Fate::Cancelled),
        Ending::Said(Outcome::Retry { .. } | Outcome::Snooze(_) | Outcome::Dead(_)) | Ending::Failed(_)
            if unwanted =>
        {
            return Verdict::Settled(Fate::Cancelled);
        }
        Ending::Said(Outcome::Snooze(after)) if once => {
            let reason =
                format!("snoozed for {after:?}, but an at-most-once group never starts a message again");
            return dead(reason);
        }
        Ending::Said(Outcome::Snooze(after)) if ordered => {
            let after = if planted::is(Bug::SnoozeIgnored) { Duration::ZERO } else { after };
            return Verdict::Again { after, failure: None };
        }
        Ending::Said(Outcome::Snooze(after)) => {
            return Verdict::Copy(Copy::Retry { after, counted: false }, None);
        }
        Ending::Said(Outcome::Dead(reason)) => {
            shared.counts().failed += 1;
            let failure = failure(&reason);
            return give_up(shared, start, reason, failure);
        }
        Ending::Said(Outcome::Stop(reason)) => {
            let source = &shared.sources[start.source].origin;
            tracing::warn!(name: event::STOP, target: TARGET, topic = %source.topic, group = %source.group, id = %item.message.origin(), reason, "a handler stops the worker");
            shared.stop_because(Some(reason.clone()));
            return if once {
                dead(format!("its handler stopped the worker: {reason}"))
            } else {
                Verdict::Untouched
            };
        }
        Ending::Dropped if once => return dead("lost: its worker was aborted while it ran".to_owned()),
        Ending::Dropped => return Verdict::Untouched,
        Ending::Said(Outcome::Retry { error, after }) => (error, after),
        Ending::Failed(error) if error.starts_with(LATE) && planted::is(Bug::TimedOutStaysInHand) => {
            return Verdict::Untouched;
        }
        Ending::Failed(error) => (error, None),
    };
    shared.counts().failed += 1;
    let failure = failure(&error);
    if once {
        return give_up(shared, start, format!("{error} (an at-most-once group does not retry)"), failure);
    }
    let attempt = match () {
        () if planted::is(Bug::GivesUpEarly) => item.failed + 2,
        () if planted::is(Bug::OneRetryMore) => item.failed,
        () => item.failed.saturating_add(1),
    };
    let wait = match (shared.builder.retry.after(attempt, shared.env().dice()), after) {
        (Next::GiveUp, _) => {
            return give_up(
                shared,
                start,
                format!("out of attempts after {}: {error}", item.failed + 1),
                failure,
            );
        }
        (_, Some(after)) => after,
        (Next::AtOnce, None) => Duration::ZERO,
        (Next::After(after), None) => after,
    };
    if ordered || wait.is_zero() {
        let after = if planted::is(Bug::WaitsInVain) { Duration::ZERO } else { wait };
        Verdict::Again { after, failure: Some(failure) }
    } else {
        Verdict::Copy(Copy::Retry { after: wait, counted: true }, Some(failure))
    }
}

fn give_up(shared: &Shared, start: &Start, reason: String, failure: Failure) -> Verdict {
    match shared.builder.on_failure {
        OnFailure::Dead => Verdict::Copy(Copy::Dead { reason }, Some(failure)),
        OnFailure::Log => {
            let source = &shared.sources[start.source].origin;
            tracing::error!(name: event::DROP, target: TARGET, topic = %source.topic, group = %source.group, id = %start.item.message.origin(), reason, attempt = failure.attempt, "message given up");
            Verdict::Settled(Fate::Dropped)
        }
    }
}
