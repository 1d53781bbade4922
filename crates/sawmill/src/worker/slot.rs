//! Slots: each takes the next message from the bench, runs its handler, and says what came of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::Instrument;

use super::item::{Copy, Item, Start, Verdict};
use super::{Delivery, OnFailure, Shared};
use crate::handler::Context;
use crate::observe::{TARGET, event};
use crate::outcome::Outcome;
use crate::retry::{Failure, Next};
use crate::shard::Fate;

/// After how many messages a slot lets other tasks run, in case its handlers never wait.
const BREATH: u32 = 32;

/// Starts as many slots as there are messages ready for them.
pub(super) fn fill(shared: &Arc<Shared>) {
    let wanted = {
        let mut bench = shared.bench();
        let wanted = bench.runners_wanted(shared.env().now());
        bench.runners += wanted;
        wanted
    };
    for _ in 0..wanted {
        shared.env().spawn(run(shared.clone()));
    }
}

async fn run(shared: Arc<Shared>) {
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
        let span = shared.saw_start(&start, now);
        let ending = handle(&shared, &start).instrument(span.clone()).await;
        let verdict = span.in_scope(|| judge(&shared, &start, ending));
        shared.saw_end(&start, &verdict, &span);
        finished = Some((start.source, start.item, verdict, now));
    }
}

/// How a handler ended.
enum Ending {
    Said(Outcome),
    Panicked(String),
    /// The worker was made to stop at once.
    Dropped,
}

async fn handle(shared: &Shared, start: &Start) -> Ending {
    let context = Context {
        message: start.item.message.clone(),
        source: shared.sources[start.source].origin.clone(),
        attempt: start.item.attempt(),
        token: start.token,
        cancelled: start.cancelled.clone(),
        stopping: shared.stop.clone(),
    };
    // A handler that panics while it makes its future fails that message, as does one whose future panics.
    let called = std::panic::catch_unwind(AssertUnwindSafe(|| shared.handler.call(context)));
    let future = match called {
        Ok(future) => AssertUnwindSafe(future).catch_unwind(),
        Err(panic) => return Ending::Panicked(panic_text(&*panic)),
    };
    tokio::select! {
        biased;
        ended = future => match ended {
            Ok(outcome) => Ending::Said(outcome),
            Err(panic) => Ending::Panicked(panic_text(&*panic)),
        },
        () = shared.abort.cancelled() => Ending::Dropped,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("(no message)"))
}

/// What follows from how a handler ended, by the group's rules.
fn judge(shared: &Shared, start: &Start, ending: Ending) -> Verdict {
    let once = shared.builder.delivery == Delivery::AtMostOnce;
    let ordered = shared.builder.ordered;
    let item = &start.item;
    let failure = |error: &str| {
        let bench = shared.bench();
        let worker = bench.me().map_or("", |me| me.as_str());
        Failure::new(item.attempt(), shared.env().wall(), worker, error)
    };
    let dead = |reason: String| Verdict::Copy(Copy::Dead { reason }, None);
    let (error, after) = match ending {
        Ending::Said(Outcome::Done) => return Verdict::Settled(Fate::Done),
        Ending::Said(Outcome::Snooze(after)) if once => {
            let reason =
                format!("snoozed for {after:?}, but an at-most-once group never starts a message again");
            return dead(reason);
        }
        Ending::Said(Outcome::Snooze(after)) if ordered => return Verdict::Again { after, failure: None },
        Ending::Said(Outcome::Snooze(after)) => {
            return Verdict::Copy(Copy::Retry { after, counted: false }, None);
        }
        Ending::Said(Outcome::Dead(reason)) => {
            shared.counts().failed += 1;
            let failure = failure(&reason);
            return give_up(shared, item, reason, failure);
        }
        Ending::Said(Outcome::Stop(reason)) => {
            tracing::warn!(name: event::STOP, target: TARGET, id = %item.message.origin(), reason, "a handler stops the worker");
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
        Ending::Panicked(error) => (error, None),
    };
    shared.counts().failed += 1;
    let failure = failure(&error);
    if once {
        return give_up(shared, item, format!("{error} (an at-most-once group does not retry)"), failure);
    }
    let wait = match (shared.builder.retry.after(item.failed.saturating_add(1), shared.env().dice()), after) {
        (Next::GiveUp, _) => {
            return give_up(
                shared,
                item,
                format!("out of attempts after {}: {error}", item.failed + 1),
                failure,
            );
        }
        (_, Some(after)) => after,
        (Next::AtOnce, None) => Duration::ZERO,
        (Next::After(after), None) => after,
    };
    if ordered || wait.is_zero() {
        Verdict::Again { after: wait, failure: Some(failure) }
    } else {
        Verdict::Copy(Copy::Retry { after: wait, counted: true }, Some(failure))
    }
}

fn give_up(shared: &Shared, item: &Item, reason: String, failure: Failure) -> Verdict {
    match shared.builder.on_failure {
        OnFailure::Dead => Verdict::Copy(Copy::Dead { reason }, Some(failure)),
        OnFailure::Log => {
            tracing::error!(name: event::DROP, target: TARGET, id = %item.message.origin(), reason, attempt = failure.attempt, "message given up");
            Verdict::Settled(Fate::Dropped)
        }
    }
}

/// Lets other tasks run.
async fn breathe() {
    let mut breathed = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut breathed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
