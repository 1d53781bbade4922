//! Running messages: slots, batches, and pulled jobs.
//!
//! A slot is a task that takes the next message in hand, runs its handler and decides what follows. It ends
//! when no message is ready.

mod admission;
mod attempt;
mod batch;
mod disposition;
mod pull;
mod slot;

use std::sync::Arc;

use sawmill_engine::runtime::yield_now;

use super::{Shared, Work};
use crate::store::cancel::cancelled;
use admission::admit;
use attempt::Attempt;
use disposition::conclude;
pub use pull::{Job, Puller};
use slot::Slot;

/// After this many messages a slot yields to other tasks, in case its handlers never wait.
const YIELD_AFTER: u32 = 32;

/// Starts as many slots as there are messages ready for them.
pub(crate) fn fill(shared: &Arc<Shared>) {
    if !matches!(shared.work, Work::Each(_)) {
        shared.more.notify_waiters();
    }
    if matches!(shared.work, Work::Pull) {
        // Messages that are due become ready now. The program may not pull for a long time, and a message
        // that stays due would wake the coordinator again and again.
        shared.inflight().wake_due(shared.env().now());
        return;
    }
    let wanted = {
        let mut inflight = shared.inflight();
        let wanted = inflight.tasks_wanted(shared.env().now());
        inflight.tasks += wanted;
        wanted
    };
    for _ in 0..wanted {
        let slot = Slot::of_task(shared.clone());
        match shared.work {
            Work::Batch(batch, _) => shared.env().spawn(batch::run(slot, batch)),
            _ => shared.env().spawn(run(slot)),
        }
    }
}

/// Runs one message after another until none is ready.
async fn run(mut slot: Slot) {
    let shared = slot.shared.clone();
    let Work::Each(handler) = &shared.work else { return };
    let env = shared.env();
    let mut finished = None;
    let mut run_on_end = 0;
    loop {
        run_on_end += 1;
        if run_on_end % YIELD_AFTER == 0 {
            yield_now().await;
        }
        let now = env.now();
        if let Some(start) = slot.running.first() {
            shared.record_took(start.source, now.since(slot.began));
        }
        {
            // The end of one message and the start of the next take the lock once.
            let mut inflight = shared.inflight();
            if let (Some(disposition), Some(start)) = (finished.take(), slot.running.pop()) {
                inflight.finish(start.held, disposition, now.since(slot.began), now);
                if inflight.wants_coordinator() {
                    shared.wake.notify_one();
                }
            }
            slot.began = now;
            slot.running.extend(inflight.next(now));
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
        let Some(start) = slot.running.first() else { continue };
        let span = shared.record_start(start, now);
        let mut attempt = Attempt::new(&shared, now);
        let context = attempt.context(start);
        let unwanted = cancelled(&shared.site.cancellations, &start.held.message);
        let end = span.around(attempt.run(|| handler.call(context), unwanted)).await;
        finished = Some(conclude(&shared, start, end, &span));
    }
}
