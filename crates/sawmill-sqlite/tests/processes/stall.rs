//! A writer stalls in the middle of a write, so nobody else can write to the file. The workers cannot renew
//! their leases, stop starting messages, and continue when the file is free.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;
use sawmill::Delivery;
use sawmill_conformance::history::{Event, History, Recorded};
use sawmill_conformance::processes::job::{GROUP, Job, TOPIC};
use sawmill_conformance::processes::parent::{ChildProcesses, play};
use sawmill_conformance::processes::record::{self, assert_none};
use sawmill_engine::runtime::Env;

use crate::{database, subject};

const MESSAGES: usize = 600;
const MAX_IN_FLIGHT: usize = 10;
/// The handler threads of all three processes.
const THREADS: usize = 6;

#[test]
fn q5_workers_that_cannot_renew_stop_starting_and_go_on_when_the_file_is_free() {
    play(async {
        let mut processes = ChildProcesses::new(subject());
        let mill = processes.open_with_topic(16).await;
        let job = Job {
            delivery: Delivery::AtMostOnce,
            max_in_flight: Some(MAX_IN_FLIGHT),
            work: Duration::from_millis(40),
            // The stall lasts twice as long.
            ttl: Duration::from_secs(2),
            ..Job::new("", processes.folder())
        };
        for name in ["w1", "w2", "w3"] {
            processes.start(&Job { name: name.to_owned(), ..job.clone() });
        }
        processes.joined(&["w1", "w2", "w3"]).await;
        processes.push(&mill, MESSAGES, 50, 0).await;
        processes.until("the first messages", |history| starts(history, 0, u64::MAX) >= 100).await;

        let writer = Connection::open(database(&processes)).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let stalled = record::now();
        let push = mill.push(TOPIC, "pushed while nobody can write");
        let stall = async {
            Env::system().sleep(2 * job.ttl).await;
            let over = record::now();
            writer.execute_batch("ROLLBACK").unwrap();
            over
        };
        let (pushed, over) = tokio::join!(push, stall);
        processes.record.pushed(pushed.unwrap(), None);

        let status = processes.drained(&mill).await;
        assert_eq!(status.done + status.dead, MESSAGES as u64 + 1, "{status:?}");
        for letter in mill.admin().dead_letters(TOPIC, GROUP).await.unwrap().list(usize::MAX).await.unwrap() {
            assert!(letter.reason().starts_with("lost"), "{letter:?}");
            processes.record.note(Event::Dead { id: letter.id() });
        }
        processes.stop().await;
        let history = processes.history();
        assert_none("lost without a word", &history.check_nothing_lost());
        assert_none("invented", &history.check_nothing_invented());
        assert_none("started twice", &history.check_at_most_once());
        // Claimed messages may be started until the leases end. Each thread may be interrupted between its
        // last clock reading and the record of the start, for any time if the machine is busy.
        let lease_over = stalled + job.ttl.as_nanos() as u64;
        let late = starts(&history, lease_over, over);
        assert!(late <= THREADS, "{late} were started without a lease");
        assert!(starts(&history, over, u64::MAX) > 0, "the stall came when all was done");
        // Each worker may be declared dead because of the stall, but only once.
        let dead: BTreeSet<&str> = history.events().iter().filter_map(declared_dead).collect();
        assert!(dead.len() <= 3, "test timed out: the next heartbeat of a live worker: {dead:?}");
        assert!(status.dead <= 3 * MAX_IN_FLIGHT as u64, "{status:?}");
        eprintln!("a stall of {:?}: {} of {MESSAGES} were lost", 2 * job.ttl, status.dead);
    });
}

/// Returns the member that this event declares dead.
fn declared_dead(recorded: &Recorded) -> Option<&str> {
    match &recorded.event {
        Event::DeclaredDead { member } => Some(member.as_str()),
        _ => None,
    }
}

/// Counts the handlers started in this interval.
fn starts(history: &History, from: u64, to: u64) -> usize {
    let within = history.events().iter().filter(|recorded| (from..to).contains(&recorded.at));
    within.filter(|recorded| matches!(recorded.event, Event::Started { .. })).count()
}
