//! Order per key, across processes of which one is killed and one is suspended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History, Recorded};
use sawmill::MessageId;

use super::job::Job;
use super::parent::{ChildProcesses, finished_by, play};
use super::record::{assert_beats_are_in_time, assert_none};

const MESSAGES: usize = 2_000;
const KEYS: usize = 20;

pub fn f5_a_message_waits_for_the_one_before_it_across_processes_that_die_and_stand_still(on: Subject) {
    play(async {
        let mut processes = ChildProcesses::new(on);
        let mill = processes.open_with_topic(16).await;
        let work = Duration::from_millis(30);
        let job = Job { ordered: true, slots: 8, work, ..Job::new("", processes.folder()) };
        for name in ["w1", "w2", "w3"] {
            processes.start(&Job { name: name.to_owned(), ..job.clone() });
        }
        processes.joined(&["w1", "w2", "w3"]).await;
        processes.push(&mill, MESSAGES, 50, KEYS).await;
        processes
            .until("work by all three", |history| {
                let finished = finished_by(history);
                ["w1", "w2", "w3"].iter().all(|name| finished.get(*name).is_some_and(|count| *count >= 10))
            })
            .await;
        processes.kill("w1");
        processes.freeze("w2").await;
        processes.declared_dead("w2", job.ttl).await;
        let thawed = processes.thaw("w2");
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
        processes
            .until("that the one that stood still works again", |history| {
                history.events().iter().any(|recorded| {
                    recorded.at > thawed
                        && matches!(&recorded.event, Event::Finished { worker, .. } if worker == "w2")
                })
            })
            .await;
        processes.stop().await;
        assert!(!processes.counts("w2").contains("rejoined: 0"), "{}", processes.counts("w2"));
        let history = processes.history();
        assert_none("lost", &history.check_nothing_lost());
        assert_none("invented", &history.check_nothing_invented());
        assert_beats_are_in_time(&history);
        let thaw = Thaw { worker: "w2", at: thawed };
        assert_none("order", &check_order(&history, &thaw));
    });
}

/// The suspended worker, and when it was resumed.
struct Thaw<'a> {
    worker: &'a str,
    at: u64,
}

/// A process can be suspended between its last look at the clock and the first statement of its handler. So
/// one start per thread may appear after it was resumed, although others have taken these messages over and
/// start them too.
const MAX_LATE_STARTS: usize = 2;

/// Per key: the first starts follow the order of the pushes, each after the previous message was finished;
/// and no two handlers run at the same time, unless the first one's worker was killed or suspended before the
/// second started.
fn check_order(history: &History, thaw: &Thaw<'_>) -> Vec<String> {
    let mut before: BTreeMap<MessageId, Option<MessageId>> = BTreeMap::new();
    let mut last: BTreeMap<&str, MessageId> = BTreeMap::new();
    for recorded in history.events() {
        if let Event::Pushed { id, key: Some(key) } = &recorded.event {
            before.insert(*id, last.insert(key, *id));
        }
    }
    let by_others = |recorded: &Recorded| match &recorded.event {
        Event::Started { id, worker, .. } if worker != thaw.worker => Some(*id),
        _ => None,
    };
    let started_by_others: BTreeSet<MessageId> = history.events().iter().filter_map(by_others).collect();
    let mut violations = Vec::new();
    let mut finished: BTreeSet<MessageId> = BTreeSet::new();
    let mut running: BTreeMap<&str, Vec<(MessageId, &str)>> = BTreeMap::new();
    let mut fallen: BTreeSet<&str> = BTreeSet::new();
    let mut late_starts = 0;
    for recorded in history.events() {
        match &recorded.event {
            Event::Started { id, key: Some(key), worker, .. } => {
                let late = worker == thaw.worker && recorded.at >= thaw.at && started_by_others.contains(id);
                if late && late_starts < MAX_LATE_STARTS {
                    late_starts += 1;
                    continue;
                }
                if let Some(before) = before[id].filter(|before| !finished.contains(before)) {
                    violations.push(format!("started before {before} was finished: {recorded}"));
                }
                let running = running.entry(key).or_default();
                for (other, by) in running.iter().filter(|(_, by)| !fallen.contains(by)) {
                    violations.push(format!("started while {other} ran at {by}: {recorded}"));
                }
                running.push((*id, worker));
            }
            Event::Finished { id, worker, ok: true } => {
                finished.insert(*id);
                for running in running.values_mut() {
                    running.retain(|run| *run != (*id, worker.as_str()));
                }
            }
            Event::WorkerKilled { worker } | Event::WorkerFrozen { worker } => _ = fallen.insert(worker),
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const THAW: Thaw<'_> = Thaw { worker: "w2", at: 50 };

    /// Two messages of one key; the first was started by w2, which was then suspended, and was done by w3.
    fn history(rest: &str) -> History {
        let (a, b) = ("01J0000000000000000000000A", "01J0000000000000000000000B");
        let before = format!(
            "1 pushed {a} k\n2 pushed {b} k\n10 started {a} k w2 1\n11 frozen w2\n\
             20 started {a} k w3 2\n21 finished {a} w3 ok\n22 started {b} k w3 1\n"
        );
        History::parse([before.as_str(), &rest.replace("A", a).replace("B", b)]).unwrap()
    }

    #[test]
    fn what_others_have_taken_over_may_be_started_late_by_each_thread_however_long_it_took() {
        let late = "5000 started B k w2 1\n5001 started B k w2 1\n5002 finished B w3 ok\n";
        assert_eq!(check_order(&history(late), &THAW), Vec::<String>::new());
        let more = format!("{late}5001 started B k w2 1\n");
        assert_eq!(check_order(&history(&more), &THAW).len(), 1);
    }

    #[test]
    fn what_only_the_thawed_one_starts_is_in_order() {
        let (a, b) = ("01J0000000000000000000000A", "01J0000000000000000000000B");
        let text = format!(
            "1 pushed {a} k\n2 pushed {b} k\n10 started {a} k w3 1\n51 started {b} k w2 1\n52 finished {a} w3 ok\n"
        );
        let found = check_order(&History::parse([text.as_str()]).unwrap(), &THAW);
        assert_eq!(found.len(), 2, "before the one before it, and while that ran: {found:?}");
    }
}
