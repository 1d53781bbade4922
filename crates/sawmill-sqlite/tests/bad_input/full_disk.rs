//! The disk fills up while a worker runs: pushes are refused as `Full`, acknowledged messages are kept, and
//! work resumes by itself once there is room.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::{Context, ErrorKind, MessageId};
use sawmill_engine::runtime::Env;

use crate::refused;
use crate::support::Mount;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_pushes_and_goes_on_by_itself_when_there_is_room() {
    let Some(mount) =
        Mount::new("a_full_disk_refuses_pushes_and_goes_on_by_itself_when_there_is_room", "size=6m")
    else {
        return;
    };
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).unwrap();
    let url = format!("sqlite:{}", mount.path().join("jobs.db").display());
    let mill = sawmill::Sawmill::open(&url).await.unwrap();
    mill.create_topic("jobs").await.unwrap();
    let done: Arc<Mutex<BTreeSet<MessageId>>> = Arc::default();
    let handler = {
        let done = done.clone();
        move |context: Context| {
            let done = done.clone();
            async move {
                Env::system().sleep(Duration::from_millis(5)).await;
                done.lock().unwrap().insert(context.id());
            }
        }
    };
    let worker = mill.worker("jobs").concurrency(2).ttl(Duration::from_secs(1)).start(handler).await.unwrap();

    // Concurrent pushes until all are refused.
    let mut acknowledged = BTreeSet::new();
    let mut refusals = 0;
    while refusals < 20 {
        let push = || mill.push("jobs", vec![7; 10_000]);
        let answers: [_; 3] = tokio::join!(push(), push(), push()).into();
        for answer in answers {
            match answer {
                Ok(id) => {
                    acknowledged.insert(id);
                    refusals = 0;
                }
                Err(error) => {
                    let said = ["no room left", "make room, then try again"];
                    assert!(refused::<()>(Err(error), ErrorKind::Full, &said).is_retryable());
                    refusals += 1;
                }
            }
        }
        assert!(acknowledged.len() < 1_000, "the disk is never full");
    }
    assert!(acknowledged.len() > 50, "only {} fit", acknowledged.len());
    // Longer than the TTL: the worker cannot even write a heartbeat.
    Env::system().sleep(Duration::from_millis(2_500)).await;
    let at_full = done.lock().unwrap().len();

    std::fs::remove_file(&ballast).unwrap();
    let last = mill.push("jobs", "there is room again").await.unwrap();
    acknowledged.insert(last);
    let all = async {
        loop {
            let status = mill.admin().status("jobs", "default").await.unwrap();
            if status.waiting + status.claimed + status.retrying == 0 {
                return status;
            }
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    };
    let status = Env::system()
        .within(Duration::from_secs(30), all)
        .await
        .expect("test timed out: it goes on by itself");
    assert_eq!((status.done, status.dead), (acknowledged.len() as u64, 0), "{status:?}");
    worker.stop().await;
    let done = std::mem::take(&mut *done.lock().unwrap());
    assert_eq!(done, acknowledged, "what was acknowledged is what was done");
    eprintln!(
        "full disk: {} were acknowledged, {at_full} of them done before there was room again",
        done.len()
    );
}
