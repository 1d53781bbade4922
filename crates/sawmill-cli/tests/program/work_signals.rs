//! The signals of `sawmill work`, and that no processes are left behind.

use std::path::Path;

use crate::support::library::{Library, freeze};
use crate::support::{Place, Running, until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A command that writes its pid and that of a child, and never ends.
const ENDLESS: &str = "echo $SAWMILL_STATE > state; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait";

/// Returns the processes that have written their pid to the file.
fn pids(place: &Place) -> Vec<Pid> {
    place.read("pids").lines().map(|line| Pid::from_raw(line.trim().parse().unwrap()).unwrap()).collect()
}

fn lives(pid: Pid) -> bool {
    test_kill_process(pid).is_ok() && !is_zombie(&format!("/proc/{pid}"))
}

fn is_zombie(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new(process).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// Counts the children of a process that have ended and were not reaped.
fn zombies_of(parent: Pid) -> usize {
    let children = |process: &std::path::PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(&parent.to_string())
    };
    std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(children).count()
}

fn start_endless(place: &Place, args: &[&str]) -> Running {
    let worker = place.start(&[&["work", "t"], args, &["--", "sh", "-c", ENDLESS]].concat());
    until("the command runs", || pids(place).len() >= 2);
    worker
}

fn until_gone(pids: &[Pid]) {
    until("the processes are gone", || !pids.iter().any(|pid| lives(*pid)));
}

#[test]
fn q15_sigint_finishes_what_runs_and_the_second_aborts() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["a", "b"]);
    let script = place.script("run", "touch running; while [ ! -e go ]; do sleep 0.05; done; echo x >> done");
    let args = ["work", "t", "--concurrency", "1", "--", &script];
    let mut worker = place.start(&args);
    until("it runs", || place.path("running").exists());
    worker.signal(Signal::INT);
    worker.until_said("finishing 1 run");
    assert!(worker.is_running(), "it waits for what runs");
    place.write("go", "");
    worker.wait().ok();
    assert_eq!(place.read("done"), "x\n", "nothing else was started");
    assert_eq!(library.status("t").done, 1);

    std::fs::remove_file(place.path("go")).unwrap();
    std::fs::remove_file(place.path("running")).unwrap();
    let mut worker = place.start(&args);
    until("it runs", || place.path("running").exists());
    worker.signal(Signal::INT);
    // Two signals at the same moment would count as one.
    worker.until_said("finishing 1 run");
    assert!(worker.is_running());
    worker.signal(Signal::INT);
    worker.wait().ok();
    let status = library.status("t");
    assert_eq!((status.done, status.waiting + status.claimed), (1, 1), "it will run again: {status:?}");
}

#[test]
fn q15_sigterm_aborts_what_runs_and_it_runs_again() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "a");
    let worker = start_endless(&place, &[]);
    worker.signal(Signal::TERM);
    worker.wait().ok();
    until_gone(&pids(&place));
    place.ok(&["work", "t", "--drain", "--", "sh", "-c", "echo $SAWMILL_ATTEMPT > attempt"]);
    assert_eq!(place.read("attempt"), "1\n", "it is not the message's failure");
    assert_eq!(library.status("t").done, 1);
}

#[test]
fn q15_sigterm_makes_dead_letters_of_what_may_start_only_once() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let id = library.push("t", "a");
    let worker = start_endless(&place, &["--delivery", "at-most-once", "--concurrency", "1"]);
    worker.signal(Signal::TERM);
    worker.wait().ok();
    let letters = library.dead("t");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].id(), id);
    assert!(letters[0].reason().contains("aborted"), "{}", letters[0].reason());
}

#[test]
fn q15_a_command_may_use_the_time_after_sigterm_and_one_that_does_not_is_killed() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "polite");
    let script = place.script(
        "run",
        r#"trap '' TERM
read how
[ "$how" = polite ] && trap 'echo finished >> done; exit 0' TERM
echo $$ >> pids; echo $$ >> pids
while true; do sleep 0.05; done"#,
    );
    let worker = place.start(&["work", "t", "--", &script]);
    until("it runs", || pids(&place).len() == 2);
    worker.signal(Signal::TERM);
    worker.wait().ok();
    assert_eq!((place.read("done").as_str(), library.status("t").done), ("finished\n", 1));

    library.push("t", "stubborn");
    let worker = place.start(&["work", "t", "--", &script]);
    until("it runs", || pids(&place).len() == 4);
    worker.signal(Signal::TERM);
    worker.wait().ok();
    until_gone(&pids(&place));
    assert_eq!(library.status("t").done, 1);
}

#[test]
fn q15_the_processes_of_a_worker_that_is_killed_die_with_it_and_others_take_over() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "a");
    let mut worker = start_endless(&place, &["--ttl", "1s"]);
    let running = pids(&place);
    assert!(running.iter().all(|pid| lives(*pid)));
    worker.signal(Signal::KILL);
    until_gone(&running);
    until("the worker is gone", || !worker.is_running());
    let folder = place.read("state");
    until("its folder is gone", || !Path::new(folder.trim()).exists());
    let other = place.start(&["work", "t", "--ttl", "1s", "--", "true"]);
    until("another has done it", || library.status("t").done == 1);
    other.signal(Signal::TERM);
    other.wait().ok();
}

#[test]
fn q15_a_worker_that_has_lost_its_claim_kills_what_it_runs() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "a");
    let frozen = start_endless(&place, &["--ttl", "1s"]);
    let running = pids(&place);
    freeze(&place, &frozen);
    let other = place.start(&["work", "t", "--ttl", "1s", "--", "true"]);
    until("another has done it", || library.status("t").done == 1);
    assert!(running.iter().all(|pid| lives(*pid)), "nobody could end them");
    frozen.signal(Signal::CONT);
    until_gone(&running);
    for worker in [frozen, other] {
        worker.signal(Signal::TERM);
        worker.wait().ok();
    }
    assert_eq!(library.status("t").done, 1);
}

#[test]
fn a_minder_that_is_killed_is_replaced() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let mut worker = place.start(&["work", "t", "--concurrency", "2", "--", "sh", "-c", ENDLESS]);
    let minders = || -> Vec<Pid> {
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", worker.pid())).unwrap_or_default();
        let is_minder = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("__minder")
        };
        children
            .split_whitespace()
            .filter(is_minder)
            .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
            .collect()
    };
    until("there is a minder", || minders().len() == 1);
    library.push("t", "a");
    until("the first runs", || pids(&place).len() == 2);
    let first = minders()[0];
    kill_process(first, Signal::KILL).unwrap();
    until("it is gone", || !lives(first));
    library.push("t", "b");
    until("the second runs", || pids(&place).len() == 4);
    let running = pids(&place);
    worker.signal(Signal::KILL);
    until_gone(&running);
    until("the worker is gone", || !worker.is_running());
}

#[test]
fn q23_a_timeout_ends_the_command_and_all_that_it_started() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "a");
    let args = ["--timeout", "5s", "--retries", "0", "--drain"];
    let worker = start_endless(&place, &args);
    worker.wait().ok();
    until_gone(&pids(&place));
    let letters = library.dead("t");
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason().contains("timeout of 5s"), "{}", letters[0].reason());
}

#[test]
#[cfg(target_os = "linux")]
fn q23_a_limit_on_memory_fails_what_needs_more_and_nothing_else() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let ids = library.push_many("t", ["1", "200"]);
    // `dd` takes its block size as memory.
    let script = place.script("run", "read size; dd if=/dev/zero of=/dev/null bs=${size}M count=1");
    place.ok(&["work", "t", "--memory", "64M", "--retries", "0", "--drain", "--", &script]);
    assert_eq!(library.status("t").done, 1);
    let letters = library.dead("t");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].id(), ids[1]);
    assert!(letters[0].reason().contains("memory limit of 64.0 MiB"), "{}", letters[0].reason());
}

#[test]
fn q11_what_a_command_leaves_behind_ends_with_it_and_no_zombies_stay() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x"; 20]);
    let worker = place.start(&["work", "t", "--", "sh", "-c", "sleep 1000 & echo $! >> pids"]);
    until("all are done", || library.status("t").done == 20);
    assert_eq!(pids(&place).len(), 20);
    until_gone(&pids(&place));
    until("there are no zombies", || zombies_of(worker.pid()) == 0);
    worker.signal(Signal::TERM);
    worker.wait().ok();
}

#[test]
fn a_cancelled_message_is_killed_while_it_runs() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let id = library.push("t", "a");
    let worker = start_endless(&place, &[]);
    library.block_on(library.mill.cancel("t", id)).unwrap();
    until_gone(&pids(&place));
    until("it is settled", || library.status("t").cancelled == 1);
    worker.signal(Signal::TERM);
    worker.wait().ok();
}

#[test]
fn q15_q16_sigusr2_writes_the_state_and_the_statistics() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["done", "done", "fail"]);
    let script = place.script(
        "run",
        r#"read what
[ "$what" = fail ] && exit 1
[ "$what" = wait ] && { touch waiting; sleep 1000; }
exit 0"#,
    );
    let worker =
        place.start(&["work", "t", "--concurrency", "3", "--retries", "0", "--name", "saw", "--", &script]);
    until("those are settled", || library.status("t").done == 2 && library.status("t").dead == 1);
    let id = library.push("t", sawmill::Push::new("wait").key("alice"));
    until("it runs", || place.path("waiting").exists());
    worker.signal(Signal::USR2);
    worker.until_said("running");
    worker.signal(Signal::TERM);
    let said = worker.wait().stderr;
    for part in [
        "state of worker saw-".to_owned(),
        "concurrency 3, busy 1, claimed 1, waiting-on-messages".to_owned(),
        "started 4, done 2, failed 1, dead 1".to_owned(),
        "rebalances ".to_owned(),
        "to open the store".to_owned(),
        "per run".to_owned(),
        "topic t: waiting 0, scheduled 0, claimed 1, retrying 0, done 2, dead 1".to_owned(),
        format!("running {id} of t, key alice, attempt 1, pid "),
    ] {
        assert!(said.contains(&part), "{part:?} is not in\n{said}");
    }
}

#[test]
fn q22_a_pause_holds_without_moving_shards() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let worker = place.start(&["work", "t", "--", "true"]);
    library.push("t", "a");
    until("it is done", || library.status("t").done == 1);
    library.block_on(library.mill.admin().pause("t", "default")).unwrap();
    library.push("t", "b");
    worker.signal(Signal::USR2);
    worker.until_said("paused");
    assert_eq!(library.status("t").done, 1);
    let members = || library.block_on(library.mill.admin().workers("default")).unwrap();
    assert_eq!(members().len(), 1, "the worker stays a member");
    library.block_on(library.mill.admin().resume("t", "default")).unwrap();
    until("the second is done", || library.status("t").done == 2);
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn q15_a_signal_ends_a_hook_that_hangs() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        Library::with_topic(&place, "t");
        let hook = "sleep 1000 & echo $! >> pids; echo $$ >> pids; wait";
        let worker = place.start(&["work", "t", "--drain", "--on-stop", hook, "--", "true"]);
        until("the hook runs", || pids(&place).len() == 2);
        worker.signal(signal);
        let ended = worker.wait();
        assert!(ended.stderr.contains("was ended by a signal before it was done"), "{}", ended.stderr);
        ended.ok();
        until_gone(&pids(&place));
    }
}

#[test]
fn q15_a_signal_ends_a_worker_that_waits_for_the_store_to_start() {
    let place = Place::new();
    Library::with_topic(&place, "t");
    let hook = "touch starting; while [ ! -e go ]; do sleep 0.05; done; touch gone";
    let worker = place.start(&["work", "t", "--on-start", hook, "--", "true"]);
    until("the store is open", || place.path("starting").exists());
    let holder = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    place.write("go", "");
    until("it goes on to join its group", || place.path("gone").exists());
    worker.signal(Signal::TERM);
    worker.wait().ok();
}
