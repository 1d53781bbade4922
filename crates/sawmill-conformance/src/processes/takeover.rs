//! The claims of a dead worker soon run elsewhere, and its member entry is removed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History};
use sawmill::MessageId;

use super::crew::{Crew, play};
use super::job::Job;
use super::record::{assert_beats_are_in_time, assert_none};

const MESSAGES: usize = 200;
/// The latest time after the TTL at which the claims of a dead worker must be running again.
const GRACE: Duration = Duration::from_secs(5);

pub fn f9_the_claims_of_a_killed_process_are_taken_over_and_its_entry_is_pruned(on: Subject) {
    play(async {
        let (mut crew, mill, job) = at_work(on).await;
        let killed = crew.kill("w1");
        let took = taken_over(&crew, &job, killed).await;
        let status = crew.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        crew.stop().await;
        check(&crew.history());
        assert_soon(took, &job);
    });
}

pub fn g9_the_claims_of_a_process_that_stands_still_are_taken_over_and_it_joins_anew(on: Subject) {
    play(async {
        let (mut crew, mill, job) = at_work(on).await;
        let frozen = crew.freeze("w1").await;
        let took = taken_over(&crew, &job, frozen).await;
        // All messages are done without it.
        let status = crew.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        crew.thaw("w1");
        crew.joined(&["w1"]).await;
        crew.stop().await;
        assert!(!crew.counts("w1").contains("rejoined: 0"), "{}", crew.counts("w1"));
        let status = crew.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "what it finished late counts twice");
        check(&crew.history());
        assert_soon(took, &job);
    });
}

/// Starts three processes, and waits until they are in the middle of their work.
async fn at_work(on: Subject) -> (Crew, sawmill::Sawmill, Job) {
    let mut crew = Crew::new(on);
    let mill = crew.open_with_topic(16).await;
    let job = Job { work: Duration::from_millis(300), ..Job::new("", crew.folder()) };
    for name in ["w1", "w2", "w3"] {
        crew.start(&Job { name: name.to_owned(), ..job.clone() });
    }
    crew.joined(&["w1", "w2", "w3"]).await;
    crew.push(&mill, MESSAGES, 50, 0).await;
    crew.until("that the first is in the middle of its work", |history| {
        unfinished(history, "w1").len() == job.slots && history.events().len() > MESSAGES + 30
    })
    .await;
    (crew, mill, job)
}

/// Waits until every message that was running at `w1` is running elsewhere. Returns how long that took.
async fn taken_over(crew: &Crew, job: &Job, fell: u64) -> Duration {
    let before = unfinished(&crew.history(), "w1");
    assert!(!before.is_empty(), "test timed out: it falls in the middle of its work");
    crew.until("that others take over", |history| before.is_subset(&started_after(history, fell))).await;
    let history = crew.history();
    let again = |id: &MessageId| {
        let start = |event: &Event| matches!(event, Event::Started { id: started, .. } if started == id);
        history.events().iter().find(|r| r.at > fell && start(&r.event)).map(|recorded| recorded.at)
    };
    let last = before.iter().filter_map(again).max().unwrap();
    let took = Duration::from_nanos(last - fell);
    eprintln!("{} messages were running again after {took:.2?}, with a TTL of {:?}", before.len(), job.ttl);
    assert!(!crew.is_member("w1").await, "{:?}", crew.members().await);
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
