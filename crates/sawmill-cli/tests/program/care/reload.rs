//! SIGHUP: settings that change, settings that do not, and files that are refused.

use rustix::process::Signal;

use crate::support::library::Library;
use crate::support::{Place, until};

#[test]
fn q15_sighup_changes_what_can_be_changed_and_names_the_rest() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    place.write("sawmill.toml", "[work]\ntimeout = '5m'\nconcurrency = 4\nretries = 0\n");
    let worker = place.start(&[
        "work",
        "t",
        "--config",
        "sawmill.toml",
        "--retries",
        "0",
        "--",
        "sh",
        "-c",
        "touch ran; sleep 1000",
    ]);
    worker.until_said("joined the group");

    worker.signal(Signal::HUP);
    worker.until_said("nothing has changed");

    place.write("sawmill.toml", "[work]\ntimeout = 'soon'\nconcurrency = 8\n");
    worker.signal(Signal::HUP);
    worker.until_said("the configuration is not reloaded; all stays as it was");
    worker.until_said("\"soon\" is no duration");
    assert!(!worker.stderr().contains("concurrency:"), "a broken file is refused whole: {}", worker.stderr());

    place
        .write("sawmill.toml", "log-level = 'debug'\n[work]\ntimeout = '5s'\nconcurrency = 8\nretries = 7\n");
    worker.signal(Signal::HUP);
    worker.until_said("INFO  timeout: 5m -> 5s\n");
    worker.until_said("WARN  concurrency: 4 -> 8 needs a restart\n");
    worker.until_said("INFO  retries: 0 -> 7 changes nothing here: a flag or the environment is stronger\n");
    worker.until_said("INFO  log-level: (default) -> debug\n");

    library.push("t", "x");
    until("the new timeout holds", || library.status("t").dead == 1);
    assert!(place.path("ran").exists());
    let reason = library.dead("t")[0].reason().to_owned();
    assert!(reason.contains("timeout of 5s"), "{reason}");
    worker.until_said("DEBUG claimed");

    // Changes that need a restart are reported at every reload.
    let before = worker.stderr().len();
    worker.signal(Signal::HUP);
    until("it is said again", || worker.stderr()[before..].contains("concurrency: 4 -> 8 needs a restart"));
    assert!(!worker.stderr()[before..].contains("timeout:"));
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn q15_sighup_refuses_a_file_that_is_gone_or_makes_no_sense() {
    let place = Place::new();
    place.write("sawmill.toml", "[work]\nname = 'saw'\n");
    let worker = place.start(&["work", "t", "--config", "sawmill.toml", "--", "true"]);
    worker.until_said("joined the group");
    place.write("sawmill.toml", "[work]\nname = 'other'\nconcurrency = 0\n");
    worker.signal(Signal::HUP);
    worker.until_said("--concurrency 0");
    std::fs::remove_file(place.path("sawmill.toml")).unwrap();
    worker.signal(Signal::HUP);
    worker.until_said("cannot be read");
    assert!(!worker.stderr().contains("other"), "{}", worker.stderr());
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn q15_sighup_without_a_file_does_no_harm_and_says_so() {
    let place = Place::new();
    let worker = place.start(&["work", "t", "--", "true"]);
    worker.until_said("joined the group");
    worker.signal(Signal::HUP);
    worker.until_said("there is no configuration to reload: the worker was started without --config");
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
#[cfg(target_os = "linux")]
fn q15_sighup_while_the_store_is_being_opened_is_heard_later() {
    let place = Place::new();
    place.write("sawmill.toml", "[work]\ntimeout = '5m'\n");
    let holder = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE; CREATE TABLE x (y)").unwrap();
    let worker = place.start(&["work", "t", "--config", "sawmill.toml", "--", "true"]);
    until("it hears SIGHUP", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1
    });
    place.write("sawmill.toml", "[work]\ntimeout = '1m'\n");
    worker.signal(Signal::HUP);
    holder.execute_batch("ROLLBACK").unwrap();
    worker.until_said("timeout: 5m -> 1m");
    worker.until_said("joined the group");
    worker.signal(Signal::INT);
    worker.wait().ok();
}
