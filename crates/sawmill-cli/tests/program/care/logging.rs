//! The log: its content, its destination and its rotation.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::library::Library;
use crate::support::{Place, Running, until};

/// Starts a worker of topic `t` that logs to `log` and fails every message except `ok`.
fn start_with_log(place: &Place) -> Running {
    let script = place.script(
        "run",
        "read what; [ \"$what\" = ok ] || { echo first words >&2; echo last words >&2; exit 3; }",
    );
    place.start(&[
        "work",
        "t",
        "--retries",
        "1",
        "--backoff",
        "100ms..100ms",
        "--log-file",
        "log",
        "--",
        &script,
    ])
}

/// Counts the dead letters in a log.
fn dead_in(log: &str) -> usize {
    log.lines().filter(|line| line.contains("WARN  dead letter")).count()
}

#[test]
fn q15_sigusr1_reopens_the_log_file_and_no_line_is_lost() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let worker = start_with_log(&place);
    library.push("t", "bad");
    until("the first is told", || dead_in(&place.read("log")) == 1);

    std::fs::rename(place.path("log"), place.path("log.1")).unwrap();
    library.push("t", "bad");
    until("the second is told in the old file", || dead_in(&place.read("log.1")) == 2);
    assert!(!place.path("log").exists());

    worker.signal(Signal::USR1);
    until("the file is there again", || place.read("log").contains("reopened the log file"));
    library.push("t", "bad");
    until("the third is told in the new file", || dead_in(&place.read("log")) == 1);
    worker.signal(Signal::INT);
    let ended = worker.wait();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stderr.contains("dead letter"), "the log is in the file: {}", ended.stderr);
    assert_eq!(dead_in(&place.read("log.1")), 2, "nothing more went to the old file");
    assert!(place.read("log").contains("stopped: 0 done, 6 failed, 3 dead letters"), "{}", place.read("log"));
}

#[test]
fn q15_sigusr2_dumps_the_state_to_the_log_file_whatever_its_level() {
    let place = Place::new();
    let worker = place.start(&["work", "t", "--log-file", "log", "--log-level", "error", "--", "true"]);
    until("it has joined", || !place.json(&["workers"]).is_empty());
    worker.signal(Signal::USR2);
    until("the state is in the log", || place.read("log").contains("topic t: "));
    worker.signal(Signal::INT);
    let ended = worker.wait();
    assert!(!ended.stderr.contains("state of worker"), "{}", ended.stderr);
}

#[test]
fn q15_sigusr1_keeps_the_old_log_file_if_there_can_be_no_new_one() {
    let place = Place::new();
    let _library = Library::with_topic(&place, "t");
    std::fs::create_dir(place.path("logs")).unwrap();
    let worker = place.start(&["work", "t", "--log-file", "logs/log", "--", "true"]);
    until("it has joined", || place.read("logs/log").contains("joined the group"));
    std::fs::rename(place.path("logs"), place.path("old")).unwrap();
    worker.signal(Signal::USR1);
    until("it is said", || place.read("old/log").contains("cannot be reopened; going on with the old one"));
    worker.signal(Signal::INT);
    worker.wait().ok();
    assert!(place.read("old/log").contains("stopped: "), "it went on with the old one");
}

#[test]
fn q15_sigusr1_without_a_log_file_does_no_harm() {
    let place = Place::new();
    let worker = place.start(&["work", "t", "--", "true"]);
    worker.until_said("joined the group");
    worker.signal(Signal::USR1);
    worker.until_said("there is no log file to reopen");
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn q13_a_failed_message_is_told_with_its_last_words() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let id = library.push("t", "bad");
    let worker = start_with_log(&place);
    until("it is given up", || dead_in(&place.read("log")) == 1);
    worker.signal(Signal::INT);
    worker.wait().ok();
    let log = place.read("log");
    let lines: Vec<&str> = log.lines().collect();
    let retry =
        lines.iter().position(|line| line.contains("INFO  failed; it will be tried again: ")).expect(&log);
    let dead = lines.iter().position(|line| line.contains("WARN  dead letter: out of attempts")).expect(&log);
    for at in [retry, dead] {
        for part in ["first words", "topic=t", "group=default", &format!("id={id}"), "worker=worker-"] {
            assert!(lines[at].contains(part), "{part:?} is not in {}", lines[at]);
        }
        assert_eq!(lines[at + 1], "    | last words");
        assert_eq!(shape(lines[at].split(' ').next().unwrap()), "0000-00-00T00:00:00.000Z");
    }
    assert!(!log.contains('\u{1b}'), "no colours in a file");
    let mode = std::fs::metadata(place.path("log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "others may not read what commands say: {mode:o}");
}

/// Returns a text with every digit as 0.
fn shape(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect()
}

#[test]
fn a_log_file_that_cannot_be_written_is_wrong_configuration() {
    let place = Place::new();
    let args = |file| ["work", "t", "--log-file", file, "--", "true"];
    place.run(&args("missing/log")).fails(2, &["log file missing/log", "cannot be written"]);
    place.run(&args(".")).fails(2, &["log file .", "cannot be written"]);
    assert!(!place.path("sawmill.db").exists(), "nothing was begun");
}

#[test]
fn how_much_is_told_is_a_setting() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let drain = |more: &[&str]| {
        let args = [&["work", "t", "--drain", "--retries", "0"], more, &["--", "false"]].concat();
        library.push("t", "x");
        let ended = place.run(&args);
        assert_eq!(ended.code, Some(0));
        ended.stderr
    };
    let said = drain(&[]);
    assert!(
        said.contains("INFO  joined") && said.contains("WARN  dead letter") && !said.contains("DEBUG"),
        "{said}"
    );
    let said = drain(&["--log-level", "error"]);
    assert_eq!(said, "");
    let said = drain(&["--quiet"]);
    assert!(said.contains("WARN  dead letter") && !said.contains("INFO"), "{said}");
    let said = drain(&["--log-level", "debug"]);
    assert!(said.contains("DEBUG claimed"), "{said}");
    place.write("sawmill.toml", "log-level = 'error'");
    assert_eq!(drain(&["--config", "sawmill.toml"]), "");

    library.push("t", "x");
    let mut command = place.command(["work", "t", "--drain", "--", "true"]);
    let ended = Running::start(command.env("SAWMILL_LOG", "debug")).wait();
    assert!(ended.stderr.contains("DEBUG claimed"), "{}", ended.stderr);
    place.run(&["topic", "list", "--log-level", "loud"]).fails(2, &["loud", "debug"]);
    let ended = place.run(&["topic", "list"]);
    assert_eq!(ended.stderr, "", "commands for people tell only what is wrong");
}

#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x"; 300]);
    // Write far more than a pipe holds.
    let script = place.script("run", "yes 'many words' | head -c 3000 >&2; exit 65");
    let mut command = place.command(["work", "t", "--ttl", "2s", "--log-level", "debug", "--", &script]);
    let mut worker =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("all are settled", || library.status("t").dead == 300);
    let members = || library.block_on(library.mill.admin().workers("default")).unwrap();
    assert_eq!(members().len(), 1, "it is alive to others");
    kill_process(Pid::from_child(&worker), Signal::INT).unwrap();
    until("it has left", || members().is_empty());
    until("it has ended", || worker.try_wait().unwrap().is_some());
}

#[test]
fn q16_rebalances_are_told() {
    let place = Place::new();
    let _library = Library::with_topic(&place, "t");
    let work = ["work", "t", "--ttl", "1s", "--", "true"];
    let first = place.start(&work);
    first.until_said("workers=1");
    let second = place.start(&work);
    second.until_said("joined the group");
    first.until_said("INFO  the set of workers has changed  group=default worker=worker-");
    first.until_said("workers=2");
    second.signal(Signal::KILL);
    first.until_said("a worker was silent for a full TTL and is declared dead");
    first.signal(Signal::INT);
    first.wait().ok();
}
