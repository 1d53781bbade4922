//! A slot: the capacity that running messages use. It is free again when its task ends, even by a panic.

use std::sync::Arc;

use sawmill_engine::runtime::Moment;

use super::attempt::HandlerEnd;
use super::disposition::disposition_of;
use crate::worker::Shared;
use crate::worker::inflight::message::Start;

/// The error of a message whose task ended before it had decided what becomes of the message.
const ABANDONED: &str = "the task that ran the message ended unexpectedly";

/// The messages that a task runs. If the slot is dropped while it has some, their attempts have failed.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    pub(super) running: Vec<Start>,
    pub(super) began: Moment,
    /// The task counts among those that take messages until none is ready.
    pub(super) is_task: bool,
}

impl Slot {
    /// Makes the slot of a task that takes messages until none is ready. It was counted when it was spawned.
    pub(super) fn of_task(shared: Arc<Shared>) -> Self {
        Self { shared, running: Vec::new(), began: Moment::default(), is_task: true }
    }

    /// Makes the slot of one message that was pulled.
    pub(super) fn of_message(shared: Arc<Shared>, start: Start, began: Moment) -> Self {
        Self { shared, running: vec![start], began, is_task: false }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.running.is_empty() && !self.is_task {
            return;
        }
        let shared = &self.shared;
        let now = shared.env().now();
        let failed: Vec<_> = self
            .running
            .drain(..)
            .map(|start| {
                // A task that is dropped while the worker stops is aborted. Otherwise the runtime that polled it
                // has ended, but not the worker's: the program has pulled the message on another one.
                let end = match std::thread::panicking() || !shared.stop.is_cancelled() {
                    true => HandlerEnd::Failed(ABANDONED.to_owned()),
                    false => HandlerEnd::Dropped,
                };
                let disposition = disposition_of(shared, &start, end);
                (start.held, disposition)
            })
            .collect();
        let mut inflight = shared.inflight();
        for (held, disposition) in failed {
            inflight.finish(held, disposition, now.since(self.began), now);
        }
        inflight.tasks -= usize::from(self.is_task);
        drop(inflight);
        shared.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker::Delivery;
    use crate::{Context, Puller, Sawmill};

    /// A worker that has one message, and a puller that has taken it.
    async fn started(mill: &Sawmill, delivery: Delivery) -> (Puller, Slot) {
        mill.create_topic("orders").await.unwrap();
        let worker = mill.worker("orders").concurrency(1).delivery(delivery).poll(Duration::from_millis(10));
        let puller = worker.pull().await.unwrap();
        mill.push("orders", "x").await.unwrap();
        let shared = &puller.worker().shared;
        if let Some(pulls) = &mut shared.inflight().pulls {
            *pulls += 1;
        }
        shared.wake.notify_one();
        let start = loop {
            let mut more = std::pin::pin!(shared.more.notified());
            more.as_mut().enable();
            let next = shared.inflight().next(shared.env().now());
            match next {
                Some(start) => break start,
                None => more.await,
            }
        };
        if let Some(pulls) = &mut shared.inflight().pulls {
            *pulls -= 1;
        }
        assert_eq!(puller.worker().state().busy, 1);
        let slot = Slot::of_message(shared.clone(), start, shared.env().now());
        (puller, slot)
    }

    async fn counts(mill: &Sawmill) -> (u64, u64) {
        let status = mill.admin().status("orders", "default").await.unwrap();
        (status.done, status.dead)
    }

    /// The task panics, as a recorder of metrics may; or its runtime ends, and the worker's does not.
    #[tokio::test]
    async fn a_message_whose_task_disappears_has_failed_and_its_slot_is_free() {
        for panics in [true, false] {
            for (delivery, expected) in [(Delivery::AtLeastOnce, (1, 0)), (Delivery::AtMostOnce, (0, 1))] {
                let mill = Sawmill::open("memory:").await.unwrap();
                let (puller, slot) = started(&mill, delivery).await;
                let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _slot = slot;
                    assert!(!panics, "on purpose");
                }));
                assert_eq!(dropped.is_err(), panics);
                assert_eq!(puller.worker().state().busy, 0, "{delivery:?}");
                if delivery == Delivery::AtLeastOnce {
                    let job = puller.pull().await.unwrap();
                    assert_eq!(job.context().attempt(), 2);
                    job.done().await.unwrap();
                }
                puller.worker().stop().await;
                assert_eq!(counts(&mill).await, expected, "{delivery:?}, panics: {panics}");
            }
        }
    }

    /// Under at-most-once nobody starts it again: it is lost.
    #[tokio::test]
    async fn a_message_whose_task_disappears_while_the_worker_stops_is_left_to_others() {
        for (delivery, expected) in [(Delivery::AtLeastOnce, (1, 0)), (Delivery::AtMostOnce, (0, 1))] {
            let mill = Sawmill::open("memory:").await.unwrap();
            let (puller, slot) = started(&mill, delivery).await;
            puller.worker().shared.stop_because(None);
            drop(slot);
            puller.worker().stop().await;
            let other = mill.worker("orders").delivery(delivery).start(|_: Context| async {}).await.unwrap();
            other.drained().await;
            other.stop().await;
            assert_eq!(counts(&mill).await, expected, "{delivery:?}");
        }
    }

    #[tokio::test]
    async fn a_cancelled_message_whose_task_disappears_gets_no_other_attempt() {
        let mill = Sawmill::open("memory:").await.unwrap();
        let (puller, slot) = started(&mill, Delivery::AtLeastOnce).await;
        let id = slot.running[0].held.message.id;
        mill.cancel("orders", id).await.unwrap();
        let mut cancelled = puller.worker().shared.site.cancellations.subscribe();
        cancelled.wait_for(|cancelled| cancelled.contains(&slot.running[0].held.message)).await.unwrap();
        drop(slot);
        puller.worker().stop().await;
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.cancelled, status.retrying + status.claimed + status.waiting), (1, 0));
    }
}
