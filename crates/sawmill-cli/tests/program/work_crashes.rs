//! Three workers, of which one is killed and one suspended until others take over: the guarantees hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::library::{Library, freeze};
use crate::support::{Place, Running, until};
use rustix::process::Signal;
use sawmill::{MessageId, Push};

const MESSAGES: usize = 2_000;
const KEYS: usize = 25;

/// The result of one run of the three workers.
struct Crash {
    library: Library,
    pushed: Vec<(MessageId, String)>,
    /// Id and key of each start, in order.
    starts: Vec<(MessageId, String)>,
}

/// Pushes messages, has three workers run them, kills one, suspends another beyond its TTL, and waits for the
/// end.
fn crash(options: &[&str]) -> Crash {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let key = |number: usize| format!("key-{}", number % KEYS);
    let ids = library.push_many("t", (0..MESSAGES).map(|number| Push::new("x").key(key(number))));
    let pushed = ids.into_iter().enumerate().map(|(number, id)| (id, key(number))).collect();
    let script = place.script("run", r#"echo "$SAWMILL_ID $SAWMILL_KEY" >> starts"#);
    let args = [&["work", "t", "--ttl", "2s", "--concurrency", "2"], options, &["--", &script]].concat();
    let workers: Vec<Running> = (0..3).map(|_| place.start(&args)).collect();
    let started = || place.read("starts").lines().count();
    until("all are at work", || {
        library.block_on(library.mill.admin().workers("default")).unwrap().len() == 3 && started() > 50
    });
    workers[0].signal(Signal::KILL);
    freeze(&place, &workers[1]);
    until("the two are declared dead", || {
        library.block_on(library.mill.admin().workers("default")).unwrap().len() == 1
    });
    workers[1].signal(Signal::CONT);
    library.until_settled("t", MESSAGES as u64);
    let mut workers = workers.into_iter();
    drop(workers.next());
    for worker in workers {
        worker.signal(Signal::INT);
        worker.wait().ok();
    }
    let starts = place.read("starts");
    let start = |line: &str| {
        let (id, key) = line.split_once(' ').unwrap();
        (id.parse().unwrap(), key.to_owned())
    };
    Crash { pushed, starts: starts.lines().map(start).collect(), library }
}

#[test]
fn q15_at_least_once_every_message_is_done() {
    let crash = crash(&[]);
    let started: BTreeSet<MessageId> = crash.starts.iter().map(|(id, _)| *id).collect();
    assert!(crash.pushed.iter().all(|(id, _)| started.contains(id)));
    let status = crash.library.status("t");
    assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
}

#[test]
fn q15_at_most_once_nothing_runs_twice_and_what_did_not_run_is_listed() {
    let crash = crash(&["--delivery", "at-most-once"]);
    let mut started = BTreeSet::new();
    for (id, _) in &crash.starts {
        assert!(started.insert(*id), "{id} was started twice");
    }
    let letters = crash.library.dead("t");
    assert!(letters.iter().all(|letter| !letter.reason().is_empty()));
    let dead: BTreeSet<MessageId> = letters.iter().map(|letter| letter.id()).collect();
    let missing: Vec<_> =
        crash.pushed.iter().filter(|(id, _)| !started.contains(id) && !dead.contains(id)).collect();
    assert!(missing.is_empty(), "neither started nor listed: {missing:?}");
    let status = crash.library.status("t");
    assert_eq!(status.done + status.dead, MESSAGES as u64, "{status:?}");
}

#[test]
fn q15_ordered_the_messages_of_a_key_start_in_the_order_of_their_pushes() {
    let crash = crash(&["--ordered"]);
    let mut pushed: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for (id, key) in &crash.pushed {
        pushed.entry(key).or_default().push(*id);
    }
    // A message that runs again after the loss of its worker must have had its first run in its place.
    let mut seen = BTreeSet::new();
    let mut started: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for (id, key) in crash.starts.iter().filter(|(id, _)| seen.insert(*id)) {
        started.entry(key).or_default().push(*id);
    }
    assert_eq!(started, pushed);
    assert_eq!(crash.library.status("t").done, MESSAGES as u64);
}
