//! Slots that take several messages at once.

use std::sync::Arc;
use std::time::Duration;

use super::item::Start;
use super::recover::note_starts;
use super::slot::{Attempt, Ending, judge};
use super::{Shared, Work};
use crate::clock::Moment;
use crate::env::breathe;
use crate::handler::{Batch, Context, share_out};
use crate::trace::HandleSpan;

/// Takes batches from the bench until nothing is ready.
pub(super) async fn run(shared: Arc<Shared>, batch: Batch) {
    loop {
        breathe().await;
        if !batch.linger.is_zero() {
            linger(&shared, batch).await;
        }
        let now = shared.env().now();
        let starts: Vec<Start> = {
            let mut bench = shared.bench();
            // Messages of one key stand in line, so that no two of them are ready.
            let starts: Vec<Start> = std::iter::from_fn(|| bench.next(now)).take(batch.size).collect();
            if starts.is_empty() {
                bench.runners -= 1;
                shared.wake.notify_one();
                return;
            }
            starts
        };
        if !note_starts(&shared, &starts) {
            continue;
        }
        let spans: Vec<HandleSpan> = starts.iter().map(|start| shared.saw_start(start, now)).collect();
        let endings = handle(&shared, &starts, now).await;
        let ends = starts.iter().zip(endings).zip(&spans);
        let verdicts: Vec<_> =
            ends.map(|((start, ending), span)| judge(&shared, start, ending, span)).collect();
        let (ended, mut bench) = (shared.env().now(), shared.bench());
        for (start, verdict) in starts.into_iter().zip(verdicts) {
            shared.saw_took(start.source, ended.since(now));
            bench.finish(start.item, verdict, ended.since(now), ended);
        }
        if bench.wants_foreman() {
            shared.wake.notify_one();
        }
    }
}

/// Runs the handler for a batch, and says how each of its messages ended.
async fn handle(shared: &Shared, starts: &[Start], now: Moment) -> Vec<Ending> {
    let Work::Batch(_, handler) = &shared.work else { return Vec::new() };
    let mut attempt = Attempt::new(shared, now);
    let contexts: Vec<Context> = starts.iter().map(|start| attempt.context(start)).collect();
    let mut refused = Vec::with_capacity(starts.len());
    // One that is cancelled must not take the others along: it ends with them.
    let ending = attempt.run(|| handler.call(&contexts, &mut refused), std::future::pending()).await;
    refused.resize(starts.len(), None);
    let each = |ending: &dyn Fn() -> Ending| {
        refused.iter().map(|refused| refused.clone().map_or_else(ending, Ending::Said)).collect()
    };
    match ending {
        Ending::Failed(error) => each(&|| Ending::Failed(error.clone())),
        Ending::Dropped | Ending::Cancelled => each(&|| Ending::Dropped),
        Ending::Said(said) => share_out(refused, said).into_iter().map(Ending::Said).collect(),
    }
}

/// Waits until there are enough messages for a full batch, or for as long as the first ones may wait. They stay where they
/// are meanwhile: nothing is started that might not be run.
async fn linger(shared: &Shared, batch: Batch) {
    let env = shared.env();
    let until = env.now() + batch.linger;
    let enough = || !(1..batch.size).contains(&shared.bench().ready(env.now()));
    shared.bench().lingering += 1;
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
    shared.bench().lingering -= 1;
}
