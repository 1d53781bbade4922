//! How often a message runs when processes join, are killed and are suspended.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History, Recorded};
use sawmill::admin::DeadLetterSelection;
use sawmill::{Delivery, MessageId, Sawmill};

use super::job::{GROUP, Job, TOPIC};
use super::parent::{ChildProcesses, finished_by, play};
use super::record::{assert_beats_are_in_time, assert_none};

const MESSAGES: usize = 1_500;
/// The most messages that one process may claim, and so the most that its death may lose.
const MAX_CLAIMED: usize = 10;

pub fn g7_at_most_once_no_message_is_started_twice_whatever_happens_to_processes(on: Subject) {
    play(async {
        let (mut processes, mill) = live_through_it(on, Delivery::AtMostOnce).await;
        let status = processes.drained(&mill).await;
        assert_eq!(status.done + status.dead, MESSAGES as u64, "{status:?}");
        let letters = mill.admin().dead_letters(TOPIC, GROUP).await.unwrap();
        let lost = letters.list(usize::MAX).await.unwrap();
        assert_eq!(lost.len() as u64, status.dead);
        assert!(lost.iter().all(|letter| letter.reason().starts_with("lost")), "{:?}", lost.first());
        for letter in &lost {
            processes.record.note(Event::Dead { id: letter.id() });
        }
        let history = processes.history();
        assert_none("lost without a word", &history.check_nothing_lost());
        assert_none("invented", &history.check_nothing_invented());
        assert_none("started twice", &history.check_at_most_once());
        assert_beats_are_in_time(&history);
        assert!(lost.len() <= 2 * MAX_CLAIMED, "g10: {} were lost", lost.len());

        // An operator decides to run them after all.
        assert_eq!(letters.retry(DeadLetterSelection::All).await.unwrap(), lost.len());
        let status = processes.drained(&mill).await;
        assert_eq!(status.done + status.dead, MESSAGES as u64, "{status:?}");
        processes.stop().await;
        let first_life = history.events().len();
        let starts = starts(&processes.history());
        let resent: Vec<MessageId> = lost.iter().map(|letter| letter.id()).collect();
        for (id, count) in &starts {
            assert!(*count <= 1 + usize::from(resent.contains(id)), "{id} was started {count} times");
        }
        assert_beats_are_in_time(&processes.history());
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        let done: Vec<Recorded> = processes.history().events()[first_life..].to_vec();
        let done = History::new(done);
        let finished = |id: &MessageId| {
            let by = |event: &Event| matches!(event, Event::Finished { id: done, .. } if done == id);
            done.events().iter().any(|recorded| by(&recorded.event))
        };
        assert!(resent.iter().all(finished), "what was resent is done");
        eprintln!("at most once: {} of {MESSAGES} were lost, and done after they were resent", lost.len());
    });
}

pub fn at_least_once_nothing_is_lost_and_nothing_is_repeated_without_need(on: Subject) {
    play(async {
        let (mut processes, mill) = live_through_it(on, Delivery::AtLeastOnce).await;
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        processes.stop().await;
        let history = processes.history();
        assert_none("lost", &history.check_nothing_lost());
        assert_none("invented", &history.check_nothing_invented());
        assert_beats_are_in_time(&history);
        assert_none("started again without need", &history.check_second_starts_have_a_reason());
        let repeated = starts(&history).values().filter(|count| **count > 1).count();
        assert!(repeated > 0, "test timed out: the faults come while something runs");
        eprintln!("at least once: {repeated} of {MESSAGES} were started again");
    });
}

/// Three processes work; two more join, one is killed, one is suspended beyond the TTL and resumed.
async fn live_through_it(on: Subject, delivery: Delivery) -> (ChildProcesses, Sawmill) {
    let mut processes = ChildProcesses::new(on);
    let mill = processes.open_with_topic(16).await;
    let job = Job {
        delivery,
        max_in_flight: (delivery == Delivery::AtMostOnce).then_some(MAX_CLAIMED),
        work: Duration::from_millis(40),
        ..Job::new("", processes.folder())
    };
    let named = |name: &str| Job { name: name.to_owned(), ..job.clone() };
    for name in ["w1", "w2", "w3"] {
        processes.start(&named(name));
    }
    processes.joined(&["w1", "w2", "w3"]).await;
    processes.push(&mill, MESSAGES / 2, 25, 0).await;
    processes.until("the first hundred", |history| finished(history) >= 100).await;
    processes.start(&named("w4"));
    // All at once: on a busy machine, many small pushes take longer than the work, and then nothing would be
    // running when the faults come.
    processes.push(&mill, MESSAGES - MESSAGES / 2, MESSAGES, 0).await;
    processes.until("the second hundred", |history| finished(history) >= 200).await;
    processes.kill("w1");
    processes.freeze("w2").await;
    processes.start(&named("w5"));
    processes.declared_dead("w2", job.ttl).await;
    processes.thaw("w2");
    (processes, mill)
}

fn finished(history: &History) -> usize {
    finished_by(history).values().sum()
}

/// Returns how often each message was started.
fn starts(history: &History) -> BTreeMap<MessageId, usize> {
    let mut starts = BTreeMap::new();
    for recorded in history.events() {
        if let Event::Started { id, .. } = &recorded.event {
            *starts.entry(*id).or_default() += 1;
        }
    }
    starts
}
