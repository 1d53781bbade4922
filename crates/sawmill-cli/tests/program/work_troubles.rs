//! `sawmill work` without messages, while the store is down, and after a crash with a journal.

#![allow(clippy::disallowed_methods, reason = "some of these tests need time to pass")]

use std::time::{Duration, Instant};

use crate::support::library::Library;
use crate::support::{Place, Running, until};
use rustix::process::Signal;

/// The TTL of the worker in the first test.
const TTL: Duration = Duration::from_secs(1);

#[test]
fn q14_a_worker_waits_for_a_store_that_is_down_and_goes_on() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let mut worker = place.start(&["work", "t", "--ttl", "1s", "--", "true"]);
    library.push("t", "a");
    until("the first is done", || library.status("t").done == 1);

    // Lock the database for longer than any of its users waits.
    let holder = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    holder.busy_timeout(Duration::from_secs(30)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    std::thread::sleep(3 * TTL);
    assert!(worker.is_running());
    holder.execute_batch("ROLLBACK").unwrap();
    library.push("t", "b");
    until("the second is done", || library.status("t").done == 2);
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn q14_a_store_that_cannot_be_reached_at_the_start_is_said() {
    let place = Place::new();
    let holder = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE; CREATE TABLE x (y)").unwrap();
    place.run(&["work", "t", "--", "true"]).fails(3, &["sawmill.db"]);
    holder.execute_batch("ROLLBACK").unwrap();
    place.ok(&["work", "t", "--drain", "--", "true"]);
    place
        .run(&["--store", "sqlite:missing/x.db", "work", "t", "--", "true"])
        .fails(2, &["missing", "create it"]);
}

/// Returns a counter of a new state dump.
fn dumped(worker: &Running, name: &str) -> u64 {
    let before = worker.stderr().matches("state of worker").count();
    worker.signal(Signal::USR2);
    until("the state is dumped", || {
        let said = worker.stderr();
        said.matches("state of worker").count() > before && said.trim_end().ends_with("cancelled 0")
    });
    let said = worker.stderr();
    let at = said.rfind(&format!("{name} ")).unwrap() + name.len() + 1;
    said[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn q18_an_idle_worker_looks_seldom_and_is_there_when_work_comes() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let worker = place.start(&["work", "t", "--", "true"]);
    library.push("t", "a");
    until("it is done", || library.status("t").done == 1);
    // Let the worker become idle. Between two dumps there must be few reads per second, however long the
    // dumps take.
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    let before = dumped(&worker, "reads");
    std::thread::sleep(Duration::from_secs(3));
    let reads = dumped(&worker, "reads") - before;
    let idle = began.elapsed();
    assert!(reads as f64 <= 20.0 * idle.as_secs_f64(), "{reads} reads in {idle:.1?} of idleness");
    for number in 2..=4 {
        library.push("t", "b");
        until("it is done too", || library.status("t").done == number);
    }
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
#[cfg(target_os = "linux")]
fn g16_with_a_journal_a_killed_worker_loses_only_what_it_had_started() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let ids = library.push_many("t", (0..30).map(|number| number.to_string()));
    let script = place.script(
        "run",
        r#"echo $SAWMILL_ID >> starts
[ $(wc -l < starts) -gt 10 ] && [ ! -e go ] && sleep 1000
exit 0"#,
    );
    // A long TTL, so that the worker is not declared dead meanwhile: then everything it holds would be lost.
    let args = ["work", "t", "--delivery", "at-most-once", "--journal", "journals", "--ttl", "60s"];
    let args = [&args[..], &["--concurrency", "1", "--", &script]].concat();
    let starts = || place.read("starts").lines().count();
    let mut worker = place.start(&args);
    // Work that is done but not reported would count as lost too, so wait for the reports.
    until("one hangs, and the others are reported", || starts() == 11 && library.status("t").done == 10);
    worker.signal(Signal::KILL);
    until("it is gone", || !worker.is_running());
    assert!(place.path("journals/worker.journal").exists());
    place.write("go", "");
    let again = place.start(&args);
    until("all others are done", || library.status("t").done == 29);
    until("the one that ran is listed", || library.dead("t").len() == 1);
    again.signal(Signal::INT);
    again.wait().ok();
    let started = place.read("starts");
    let mut started: Vec<&str> = started.lines().collect();
    assert_eq!(library.dead("t")[0].id().to_string(), started[10]);
    started.sort_unstable();
    let mut pushed: Vec<String> = ids.iter().map(ToString::to_string).collect();
    pushed.sort_unstable();
    assert_eq!(started, pushed, "each was started once");
}

#[test]
#[cfg(target_os = "linux")]
fn g16_a_journal_is_one_workers() {
    let place = Place::new();
    Library::with_topic(&place, "t");
    let args = ["work", "t", "--delivery", "at-most-once", "--journal", "journals", "--", "true"];
    let worker = place.start(&args);
    until("it has one", || place.path("journals/worker.journal").exists());
    place.run(&args).fails(1, &["worker.journal", "used by another worker"]);
    worker.signal(Signal::INT);
    worker.wait().ok();
}
