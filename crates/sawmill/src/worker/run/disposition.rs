//! Decides what becomes of a message when its handler has ended, by the rules of the group.

use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{Failure, Fate, NextAttempt};

use super::attempt::{HandlerEnd, LATE};
use crate::handler::Outcome;
use crate::telemetry::{HandleSpan, TARGET, event};
use crate::worker::inflight::message::{Disposition, LaneCopy, Start};
use crate::worker::{Delivery, OnFailure, Shared};

/// The error of an exactly-once handler that returns done without having finished the message.
const UNFINISHED: &str = "the handler has not finished the message within its transaction, which exactly-once needs: call the \
    engine's `finish_within` in it";

/// Decides what follows from how a handler ended, and records it.
pub(super) fn conclude(shared: &Shared, start: &Start, end: HandlerEnd, span: &HandleSpan) -> Disposition {
    let disposition = span.in_scope(|| disposition_of(shared, start, end));
    shared.record_end(start, &disposition, span);
    disposition
}

/// Decides what follows from how a handler ended.
pub(super) fn disposition_of(shared: &Shared, start: &Start, end: HandlerEnd) -> Disposition {
    shared.site.notes.ended(&start.held.message);
    let once = shared.builder.delivery == Delivery::AtMostOnce;
    let ordered = shared.builder.ordered;
    let held = &start.held;
    let unfinished =
        shared.builder.delivery == Delivery::ExactlyOnce && !shared.site.finishes.take(&held.message);
    // A cancelled message gets no other attempt, however this one ended.
    let unwanted = shared.site.cancellations.borrow().contains(&held.message);
    let dead = |reason: String| Disposition::OnLane(LaneCopy::Dead { reason }, None);
    let (error, after) = match end {
        HandlerEnd::Said(Outcome::Done) if unfinished => (UNFINISHED.to_owned(), None),
        HandlerEnd::Said(Outcome::Done) => return Disposition::Settled(Fate::Done),
        HandlerEnd::Cancelled => return Disposition::Settled(Fate::Cancelled),
        HandlerEnd::Said(Outcome::Retry { .. } | Outcome::Snooze(_) | Outcome::Dead(_))
        | HandlerEnd::Failed(_)
            if unwanted =>
        {
            return Disposition::Settled(Fate::Cancelled);
        }
        HandlerEnd::Said(Outcome::Snooze(after)) if once => {
            let reason =
                format!("snoozed for {after:?}, but an at-most-once group never starts a message again");
            return dead(reason);
        }
        HandlerEnd::Said(Outcome::Snooze(after)) if ordered => {
            let after = if fault!(SnoozeIgnored) { Duration::ZERO } else { after };
            return Disposition::Again { after, failure: None };
        }
        HandlerEnd::Said(Outcome::Snooze(after)) => {
            return Disposition::OnLane(LaneCopy::Retry { after, counted: false }, None);
        }
        HandlerEnd::Said(Outcome::Dead(reason)) => {
            shared.counts().failed += 1;
            let failure = failure(shared, start, &reason);
            return give_up(shared, start, reason, failure);
        }
        HandlerEnd::Said(Outcome::Stop(reason)) => {
            let source = &shared.sources[start.source].origin;
            tracing::warn!(name: event::STOP, target: TARGET, topic = %source.topic, group = %source.group, id = %held.message.origin(), reason, "a handler stops the worker");
            shared.stop_because(Some(reason.clone()));
            return if once {
                dead(format!("its handler stopped the worker: {reason}"))
            } else {
                Disposition::Untouched
            };
        }
        HandlerEnd::Dropped if once => return dead("lost: its worker was aborted while it ran".to_owned()),
        HandlerEnd::Dropped => return Disposition::Untouched,
        HandlerEnd::Said(Outcome::Retry { error, after }) => (error, after),
        HandlerEnd::Failed(error) if error.starts_with(LATE) && fault!(TimedOutStaysInHand) => {
            return Disposition::Untouched;
        }
        HandlerEnd::Failed(error) => (error, None),
    };
    after_failure(shared, start, error, after)
}

/// Decides what follows when an attempt has failed. `after` is the wait that the handler asked for.
fn after_failure(shared: &Shared, start: &Start, error: String, after: Option<Duration>) -> Disposition {
    let (held, ordered) = (&start.held, shared.builder.ordered);
    shared.counts().failed += 1;
    let failure = failure(shared, start, &error);
    if shared.builder.delivery == Delivery::AtMostOnce {
        return give_up(shared, start, format!("{error} (an at-most-once group does not retry)"), failure);
    }
    let attempt = match () {
        () if fault!(GivesUpEarly) => held.failed + 2,
        () if fault!(OneRetryMore) => held.failed,
        () => held.failed.saturating_add(1),
    };
    let wait = match (shared.builder.retry.after(attempt, shared.env().rng()), after) {
        (NextAttempt::GiveUp, _) => {
            return give_up(
                shared,
                start,
                format!("out of attempts after {}: {error}", held.failed + 1),
                failure,
            );
        }
        (_, Some(after)) => after,
        (NextAttempt::AtOnce, None) => Duration::ZERO,
        (NextAttempt::After(after), None) => after,
    };
    if ordered || wait.is_zero() {
        let after = if fault!(WaitsInVain) { Duration::ZERO } else { wait };
        Disposition::Again { after, failure: Some(failure) }
    } else {
        Disposition::OnLane(LaneCopy::Retry { after: wait, counted: true }, Some(failure))
    }
}

fn failure(shared: &Shared, start: &Start, error: &str) -> Failure {
    let inflight = shared.inflight();
    let worker = inflight.me().map_or("", |me| me.as_str());
    Failure::new(start.held.attempt(), shared.env().wall(), worker, error)
}

fn give_up(shared: &Shared, start: &Start, reason: String, failure: Failure) -> Disposition {
    match shared.builder.on_failure {
        OnFailure::Dead => Disposition::OnLane(LaneCopy::Dead { reason }, Some(failure)),
        OnFailure::Log => {
            let source = &shared.sources[start.source].origin;
            tracing::error!(name: event::DROP, target: TARGET, topic = %source.topic, group = %source.group, id = %start.held.message.origin(), reason, attempt = failure.attempt, "message given up");
            Disposition::Settled(Fate::Dropped)
        }
    }
}
