//! The claims of a dead worker soon run elsewhere, and its member entry is removed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History};
use sawmill::MessageId;

use super::job::Job;
use super::parent::{ChildProcesses, play};
use super::record::{assert_beats_are_in_time, assert_none};

const MESSAGES: usize = 200;
/// The latest time after the TTL at which the claims of a dead worker must be running again.
const GRACE: Duration = Duration::from_secs(5);

pub fn f9_the_claims_of_a_killed_process_are_taken_over_and_its_entry_is_pruned(on: Subject) {
    play(async {
        let (mut processes, mill, job) = at_work(on).await;
        let killed = processes.kill("w1");
        let took = taken_over(&processes, &job, killed).await;
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        processes.stop().await;
        check(&processes.history());
        assert_soon(took, &job);
    });
}

pub fn g9_the_claims_of_a_process_that_stands_still_are_taken_over_and_it_joins_anew(on: Subject) {
    play(async {
        let (mut processes, mill, job) = at_work(on).await;
        let frozen = processes.freeze("w1").await;
        let took = taken_over(&processes, &job, frozen).await;
        // All messages are done without it.
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        processes.thaw("w1");
        processes.joined(&["w1"]).await;
        processes.stop().await;
        assert!(!processes.counts("w1").contains("rejoined: 0"), "{}", processes.counts("w1"));
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "what it finished late counts twice");
        check(&processes.history());
        assert_soon(took, &job);
    });
}

/// Starts three processes, and waits until they are in the middle of their work.
async fn at_work(on: Subject) -> (ChildProcesses, sawmill::Sawmill, Job) {
    let mut processes = ChildProcesses::new(on);
    let mill = processes.open_with_topic(16).await;
    let job = Job { work: Duration::from_millis(300), ..Job::new("", processes.folder()) };
    for name in ["w1", "w2", "w3"] {
        processes.start(&Job { name: name.to_owned(), ..job.clone() });
    }
    processes.joined(&["w1", "w2", "w3"]).await;
    processes.push(&mill, MESSAGES, 50, 0).await;
    processes
        .until("that the first is in the middle of its work", |history| {
            unfinished(history, "w1").len() == job.slots && history.events().len() > MESSAGES + 30
        })
        .await;
    (processes, mill, job)
}

/// Waits until every message that was running at `w1` is running elsewhere. Returns how long that took.
async fn taken_over(processes: &ChildProcesses, job: &Job, fell: u64) -> Duration {
    let before = unfinished(&processes.history(), "w1");
    assert!(!before.is_empty(), "test timed out: it falls in the middle of its work");
    processes.until("that others take over", |history| before.is_subset(&started_after(history, fell))).await;
    let history = processes.history();
    let again = |id: &MessageId| {
        let start = |event: &Event| matches!(event, Event::Started { id: started, .. } if started == id);
        history.events().iter().find(|r| r.at > fell && start(&r.event)).map(|recorded| recorded.at)
    };
    let last = before.iter().filter_map(again).max().unwrap();
    let took = Duration::from_nanos(last - fell);
    eprintln!("{} messages were running again after {took:.2?}, with a TTL of {:?}", before.len(), job.ttl);
    assert!(!processes.is_member("w1").await, "{:?}", processes.members().await);
    took
}

/// Fails as a timeout, since a busy machine may need longer.
fn assert_soon(took: Duration, job: &Job) {
    let most = job.ttl + GRACE;
    assert!(took <= most, "test timed out: others take over within {most:?}; it took {took:?}");
}

fn check(history: &History) {
    assert_none("lost", &history.check_nothing_lost());
    assert_none("invented", &history.check_nothing_invented());
    assert_beats_are_in_time(history);
    assert_none("started again without need", &history.check_second_starts_have_a_reason());
}

/// Returns the messages that this worker has started and not finished.
fn unfinished(history: &History, name: &str) -> BTreeSet<MessageId> {
    let mut running = BTreeSet::new();
    for recorded in history.events() {
        match &recorded.event {
            Event::Started { id, worker, .. } if worker == name => _ = running.insert(*id),
            Event::Finished { id, worker, .. } if worker == name => _ = running.remove(id),
            _ => {}
        }
    }
    running
}

fn started_after(history: &History, at: u64) -> BTreeSet<MessageId> {
    let later = history.events().iter().filter(|recorded| recorded.at > at);
    later
        .filter_map(|recorded| match &recorded.event {
            Event::Started { id, .. } => Some(*id),
            _ => None,
        })
        .collect()
}
