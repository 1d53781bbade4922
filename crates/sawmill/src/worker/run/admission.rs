//! Admission: the last check before messages start.

use crate::worker::Shared;
use crate::worker::inflight::message::Start;

/// Writes into the journal, if there is one, that these messages start now. False if they must not start:
/// then they are ready again.
pub(super) fn admit(shared: &Shared, starts: &mut Vec<Start>) -> bool {
    let may = may_start(shared, starts);
    if may && shared.inflight().is_spent() {
        // They are the last that this worker may start.
        shared.stop_because(None);
    }
    may
}

fn may_start(shared: &Shared, starts: &mut Vec<Start>) -> bool {
    let Some(journal) = &shared.journal else { return true };
    let noted = journal.started(starts.iter().map(|start| (start.held.message.id, start.held.pass)));
    if let Err(error) = &noted {
        tracing::error!(%error, "the worker stops, as it must not start what it cannot note");
        shared.stop_because(Some(error.to_string()));
    }
    let mut inflight = shared.inflight();
    // The write may have taken longer than the lease.
    let now = shared.env().now();
    if noted.is_ok() && starts.iter().all(|start| inflight.may_go_on(start.held.ticket, now)) {
        return true;
    }
    for start in starts.drain(..).rev() {
        inflight.put_back(start.held);
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::Sawmill;
    use crate::worker::Delivery;

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn g16_a_worker_whose_journal_cannot_be_written_stops_and_leaves_messages_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        let once = || mill.worker("orders").delivery(Delivery::AtMostOnce);
        let worker = once().journal(folder.path().join("j")).start(async || ()).await.unwrap();
        worker.shared.journal.as_ref().unwrap().spoil();
        mill.push_many("orders", (0..5).map(|i| i.to_string())).await.unwrap();
        let counts = worker.ended().await;
        assert_eq!((counts.started, counts.done, counts.dead), (0, 0, 0), "{counts:?}");
        assert!(counts.stopped_because.as_ref().is_some_and(|why| why.contains("journal")), "{counts:?}");

        let other = once().start(async || ()).await.unwrap();
        other.drained().await;
        assert_eq!(other.stop().await.done, 5);
    }
}
