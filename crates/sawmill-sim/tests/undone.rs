//! A crash of the store that undoes light commits, seen by a worker that lives on.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::in_world;
use sawmill::engine::storage::{EntryKey, Ledger, Write};
use sawmill::{Context, Outcome, Sawmill};
use sawmill_sim::{Faults, Settings};
use tokio::sync::Semaphore;

/// Returns how many messages the group has handled.
async fn done(mill: &Sawmill) -> u64 {
    mill.admin().status("t", "default").await.unwrap().done
}

/// The worker has closed its claim, and the store forgets that. Nobody else may take the claim while its
/// owner is alive.
#[test]
fn a_worker_takes_back_a_claim_whose_report_the_store_has_undone() {
    let settings = Settings { undoes: true, ..Settings::default() };
    let ((starts, rejoined), _) = in_world(7, settings, Faults::calm(), |world| async move {
        let env = world.control.env(world.node);
        let mill = Sawmill::from_parts(world.log.clone(), world.ledger.clone(), env);
        mill.create_topic("t").await.unwrap();
        let (starts, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (started, gate) = (starts.clone(), may_end.clone());
        let handler = move |_: Context| {
            let (started, gate) = (started.clone(), gate.clone());
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                Outcome::Done
            }
        };
        let worker = mill.worker("t").start(handler).await.unwrap();
        mill.push("t", "x").await.unwrap();
        while starts.load(Ordering::SeqCst) < 1 {
            world.sleep(50).await;
        }
        // A durable write makes everything before it durable: the claim, but not the report.
        let (key, value) = (EntryKey::raw("test/lasts"), Some("x".into()));
        world.ledger.commit(Write { key, expect: None, value }).await.unwrap();
        may_end.add_permits(1);
        while done(&mill).await < 1 {
            world.sleep(50).await;
        }
        world.store.crash();
        assert_eq!(done(&mill).await, 0, "the report is undone");
        // If the message is not run again, the simulation runs out of time.
        while starts.load(Ordering::SeqCst) < 2 {
            world.sleep(50).await;
        }
        may_end.add_permits(1);
        while done(&mill).await < 1 {
            world.sleep(50).await;
        }
        let counts = worker.counts();
        worker.stop().await;
        (starts.load(Ordering::SeqCst), counts.rejoined)
    });
    assert_eq!((starts, rejoined), (2, 0), "the same worker has run it again");
}
