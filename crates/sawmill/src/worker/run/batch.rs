//! Slots that run several messages at once.

use std::time::Duration;

use sawmill_engine::runtime::{Moment, yield_now};

use super::admission::admit;
use super::attempt::{Attempt, HandlerEnd};
use super::disposition::conclude;
use super::slot::Slot;
use crate::handler::{Batch, Context, share_out};
use crate::telemetry::HandleSpan;
use crate::worker::inflight::message::Start;
use crate::worker::{Shared, Work};

/// Runs one batch after another until nothing is ready.
pub(super) async fn run(mut slot: Slot, batch: Batch) {
    let shared = slot.shared.clone();
    loop {
        yield_now().await;
        if !batch.linger.is_zero() {
            linger(&shared, batch).await;
        }
        let now = shared.env().now();
        {
            let mut inflight = shared.inflight();
            slot.began = now;
            // Messages of one key wait behind one another, so at most one of them is ready.
            slot.running.extend(std::iter::from_fn(|| inflight.next(now)).take(batch.size));
            if slot.running.is_empty() {
                inflight.tasks -= 1;
                slot.is_task = false;
                shared.wake.notify_one();
                return;
            }
        }
        if !admit(&shared, &mut slot.running) {
            continue;
        }
        let starts = &slot.running;
        let spans: Vec<HandleSpan> = starts.iter().map(|start| shared.record_start(start, now)).collect();
        let ends = handle(&shared, starts, now).await;
        let ends = starts.iter().zip(ends).zip(&spans);
        let dispositions: Vec<_> =
            ends.map(|((start, end), span)| conclude(&shared, start, end, span)).collect();
        let ended = shared.env().now();
        for start in &slot.running {
            shared.record_took(start.source, ended.since(now));
        }
        let mut inflight = shared.inflight();
        for (start, disposition) in slot.running.drain(..).zip(dispositions) {
            inflight.finish(start.held, disposition, ended.since(now), ended);
        }
        if inflight.wants_coordinator() {
            shared.wake.notify_one();
        }
    }
}

/// Runs the handler for a batch. Returns how each of its messages ended.
async fn handle(shared: &Shared, starts: &[Start], now: Moment) -> Vec<HandlerEnd> {
    let Work::Batch(_, handler) = &shared.work else { return Vec::new() };
    let mut attempt = Attempt::new(shared, now);
    let contexts: Vec<Context> = starts.iter().map(|start| attempt.context(start)).collect();
    let mut refused = Vec::with_capacity(starts.len());
    // A cancelled message must not end the others: it ends with them.
    let ending = attempt.run(|| handler.call(&contexts, &mut refused), std::future::pending()).await;
    refused.resize(starts.len(), None);
    let each = |ending: &dyn Fn() -> HandlerEnd| {
        refused.iter().map(|refused| refused.clone().map_or_else(ending, HandlerEnd::Said)).collect()
    };
    match ending {
        HandlerEnd::Failed(error) => each(&|| HandlerEnd::Failed(error.clone())),
        HandlerEnd::Dropped | HandlerEnd::Cancelled => each(&|| HandlerEnd::Dropped),
        HandlerEnd::Said(said) => share_out(refused, said).into_iter().map(HandlerEnd::Said).collect(),
    }
}

/// Waits until there are enough messages for a full batch, or for the batch's linger time. The messages stay
/// ready meanwhile: none is started that might not run.
async fn linger(shared: &Shared, batch: Batch) {
    let env = shared.env();
    let until = env.now() + batch.linger;
    let enough = || !(1..batch.size).contains(&shared.inflight().ready(env.now()));
    shared.inflight().lingering += 1;
    loop {
        let mut more = std::pin::pin!(shared.more.notified());
        more.as_mut().enable();
        let left = until.since(env.now());
        if enough() || left == Duration::ZERO || shared.stop.is_cancelled() {
            break;
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            () = more => {}
            () = env.sleep(left) => {}
        }
    }
    shared.inflight().lingering -= 1;
}
