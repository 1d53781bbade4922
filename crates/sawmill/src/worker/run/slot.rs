//! A slot: the capacity that running messages use. It is free again when its task ends, even by a panic.

use std::sync::Arc;

use sawmill_engine::runtime::Moment;

use super::disposition::after_failure;
use crate::worker::Shared;
use crate::worker::inflight::message::{Disposition, Start};

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
                // A task that is dropped and does not panic ends with its runtime: others take the message over.
                let disposition = match std::thread::panicking() {
                    true => after_failure(shared, &start, ABANDONED.to_owned(), None),
                    false => Disposition::Untouched,
                };
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
    use crate::Sawmill;
    use crate::worker::Delivery;

    #[tokio::test]
    async fn a_message_whose_task_panics_has_failed_and_its_slot_is_free() {
        for (delivery, counts) in [(Delivery::AtLeastOnce, (1, 0)), (Delivery::AtMostOnce, (0, 1))] {
            let mill = Sawmill::open("memory:").await.unwrap();
            mill.create_topic("orders").await.unwrap();
            let worker =
                mill.worker("orders").concurrency(1).delivery(delivery).poll(Duration::from_millis(10));
            let puller = worker.pull().await.unwrap();
            mill.push("orders", "x").await.unwrap();
            // The message is taken as a job, then its task disappears.
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
            assert_eq!(puller.worker().state().busy, 1);
            let slot = Slot::of_message(shared.clone(), start, shared.env().now());
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _slot = slot;
                panic!("as a recorder of metrics may");
            }));
            assert!(panicked.is_err());
            if let Some(pulls) = &mut shared.inflight().pulls {
                *pulls -= 1;
            }
            assert_eq!(puller.worker().state().busy, 0, "{delivery:?}");
            if delivery == Delivery::AtLeastOnce {
                let job = puller.pull().await.unwrap();
                assert_eq!(job.context().attempt(), 2);
                job.done().await.unwrap();
            }
            puller.worker().stop().await;
            let status = mill.admin().status("orders", "default").await.unwrap();
            assert_eq!((status.done, status.dead), counts, "{delivery:?}");
        }
    }
}
