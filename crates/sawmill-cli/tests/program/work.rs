//! `sawmill work`: a process for each message.

use crate::support::library::Library;
use crate::support::{Place, until};
use sawmill::Push;

/// Returns the error of the last attempt of the only dead letter.
fn last_error(library: &Library, topic: &str) -> String {
    let letters = library.dead(topic);
    assert_eq!(letters.len(), 1, "{letters:?}");
    letters[0].message.failures().last().unwrap().error.clone()
}

#[test]
fn q11_each_message_has_a_process_of_its_own_with_payload_and_environment() {
    let place = Place::new();
    let library = Library::with_topic(&place, "emails");
    let push =
        Push::new("Hello\nAlice").key("alice").header("content-type", "text/plain").header("raw", vec![0xff]);
    let id = library.push("emails", push);
    library.push("emails", Push::new(vec![0, 0xff]).key(vec![0xff, 1]));
    let script =
        place.script("run", "cat > payload.$$; env | grep ^SAWMILL_ | sort > env.$$; echo $$ >> pids");
    place.ok(&["work", "emails", "--group", "mailers", "--drain", "--", &script, "a b", "$HOME"]);

    let pids = place.read("pids");
    let pids: Vec<&str> = pids.lines().collect();
    assert_eq!(pids.len(), 2);
    assert_ne!(pids[0], pids[1]);
    let of = |key: &str| pids.iter().find(|pid| place.read(&format!("env.{pid}")).contains(key)).unwrap();
    let (alice, other) = (of("SAWMILL_KEY=alice"), of("SAWMILL_KEY_HEX=ff01"));
    assert_eq!(std::fs::read(place.path(&format!("payload.{alice}"))).unwrap(), b"Hello\nAlice");
    assert_eq!(std::fs::read(place.path(&format!("payload.{other}"))).unwrap(), [0, 0xff]);
    let env = place.read(&format!("env.{alice}"));
    for line in [
        format!("SAWMILL_ID={id}"),
        "SAWMILL_TOPIC=emails".into(),
        "SAWMILL_GROUP=mailers".into(),
        "SAWMILL_ATTEMPT=1".into(),
        "SAWMILL_HEADER_CONTENT_TYPE=text/plain".into(),
    ] {
        assert!(env.lines().any(|found| found == line), "{line} is not in {env}");
    }
    assert!(
        env.contains("SAWMILL_TOKEN=") && env.contains("SAWMILL_STATE=") && !env.contains("RAW"),
        "{env}"
    );
}

#[test]
fn q11_there_is_no_shell_and_a_payload_need_not_be_read() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", Push::new(vec![b'x'; 1 << 20]));
    let ended = place.run(&["work", "t", "--drain", "--retries", "0", "--", "echo", "{}", "$HOME", "a b"]);
    assert_eq!(ended.ok(), "{} $HOME a b\n");
    assert_eq!(library.status("t").done, 1);
}

#[test]
fn q13_exit_codes_say_what_becomes_of_a_message() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let ids = library.push_many("t", ["0", "65", "75", "3", "kill"]);
    // Messages that are put off or fail succeed the second time.
    let script = place.script(
        "run",
        r#"read what
echo "$what $SAWMILL_ATTEMPT" >> runs
[ -e "tried.$what" ] && exit 0
touch "tried.$what"
[ "$what" = kill ] && kill -9 $$
echo "complaint of $what" >&2
exit "$what""#,
    );
    let args = ["work", "t", "--backoff", "1s..1s", "--concurrency", "1", "--", &script];
    let worker = place.start(&args);
    until("all are settled", || {
        let status = library.status("t");
        status.done == 4 && status.dead == 1
    });
    worker.signal(rustix::process::Signal::INT);
    let ended = worker.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("complaint of 3"), "stderr is passed on: {}", ended.stderr);
    let runs = place.read("runs");
    let mut runs: Vec<&str> = runs.lines().collect();
    runs.sort_unstable();
    // Putting a message off is not an attempt; failing is.
    assert_eq!(runs, ["0 1", "3 1", "3 2", "65 1", "75 1", "75 1", "kill 1", "kill 2"]);

    let letters = library.dead("t");
    assert_eq!(letters[0].id(), ids[1], "the letter has the id that was pushed");
    assert!(letters[0].reason().contains("exit code 65: complaint of 65"), "{}", letters[0].reason());
}

#[test]
fn q13_the_end_of_stderr_is_kept_with_a_failure() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let script = place.script("run", "for i in $(seq 2000); do echo line $i >&2; done; exit 1");
    let ended = place.run(&["work", "t", "--drain", "--retries", "0", "--", &script]);
    assert_eq!(ended.stderr.lines().filter(|line| line.starts_with("line ")).count(), 2000);
    let error = last_error(&library, "t");
    assert!(error.starts_with("exit code 1: ") && error.ends_with("line 2000"), "{error}");
    assert!((4090..4120).contains(&error.len()), "{}", error.len());
}

#[test]
fn q13_a_signal_is_named_and_failures_can_be_logged_instead() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    place.ok(&["work", "t", "--drain", "--retries", "0", "--", "sh", "-c", "kill -SEGV $$"]);
    let error = last_error(&library, "t");
    assert!(error.contains("signal 11") && error.contains("SEGV"), "{error}");

    library.push("t", "y");
    place.ok(&["work", "t", "--drain", "--retries", "0", "--on-failure", "log", "--", "false"]);
    let status = library.status("t");
    assert_eq!((status.dead, status.dropped), (1, 1));
}

#[test]
fn q20_a_command_can_stop_the_worker_without_its_message_being_done() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let script = place.script("run", "echo no licence >&2; exit 78");
    place.run(&["work", "t", "--", &script]).fails(1, &["had to stop", "exit code 78", "no licence"]);
    let status = library.status("t");
    assert_eq!((status.done, status.dead, status.retrying), (0, 0, 0), "{status:?}");
    place.ok(&["work", "t", "--drain", "--", "true"]);
    assert_eq!(library.status("t").done, 1);
}

#[test]
fn q20_a_command_that_is_gone_stops_the_worker_and_harms_no_message() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let script = place.script("run", "true");
    let mut worker = place.start(&["work", "t", "--concurrency", "1", "--", &script]);
    library.push("t", "first");
    until("the first is done", || library.status("t").done == 1);
    std::fs::remove_file(place.path("run")).unwrap();
    assert!(worker.is_running());
    library.push("t", "second");
    worker.wait().fails(1, &["./run", "cannot be started"]);
    let status = library.status("t");
    assert_eq!((status.done, status.dead, status.retrying), (1, 0, 0), "{status:?}");
}

#[test]
fn limits_and_drains_end_the_worker() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x"; 40]);
    place.ok(&["work", "t", "--limit", "7", "--concurrency", "4", "--", "sh", "-c", "echo x >> out"]);
    assert_eq!(place.read("out").lines().count(), 7);
    assert_eq!(library.status("t").done, 7);
    place.ok(&["work", "t", "--drain", "--concurrency", "4", "--", "sh", "-c", "echo x >> out"]);
    assert_eq!(place.read("out").lines().count(), 40);
}

#[test]
fn topics_are_created_unless_that_is_not_wanted() {
    let place = Place::new();
    let ended = place.run(&["work", "new", "--drain", "--", "true"]);
    assert!(ended.stderr.contains("created topic new (16 shards)"), "{}", ended.stderr);
    ended.ok();
    place.run(&["work", "other", "--no-create", "--drain", "--", "true"]).fails(4, &["other"]);
    assert_eq!(place.json(&["topic", "list"]).len(), 1);
}

#[test]
fn q12_hooks_run_before_the_first_message_and_after_the_last_and_share_a_folder() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["a", "b"]);
    place.ok(&[
        "work",
        "t",
        "--drain",
        "--on-start",
        "echo opened > $SAWMILL_STATE/door; echo start >> log; echo $SAWMILL_STATE > where",
        "--on-stop",
        "echo stop $(cat $SAWMILL_STATE/door) >> log",
        "--",
        "sh",
        "-c",
        "echo run $(cat $SAWMILL_STATE/door) >> log",
    ]);
    assert_eq!(place.read("log"), "start\nrun opened\nrun opened\nstop opened\n");
    let folder = place.read("where");
    assert!(
        !folder.trim().is_empty() && !std::path::Path::new(folder.trim()).exists(),
        "{folder} is removed"
    );
}

#[test]
fn q12_a_start_hook_that_fails_starts_nothing() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let args = ["work", "t", "--on-start", "exit 4", "--on-stop", "touch stopped", "--", "touch", "ran"];
    place.run(&args).fails(1, &["--on-start", "exit 4", "exit code 4"]);
    assert!(!place.path("ran").exists() && !place.path("stopped").exists());
    let ended = place.run(&["work", "t", "--drain", "--on-stop", "exit 5", "--", "true"]);
    ended.fails(1, &["--on-stop", "exit code 5"]);
}

#[test]
fn q19_what_is_wrong_is_said_before_anything_is_touched() {
    let place = Place::new();
    let fails = |args: &[&str], said: &[&str]| {
        place.run(args).fails(2, said);
    };
    fails(&["work", "t"], &["COMMAND"]);
    fails(&["work", "--", "true"], &["TOPIC"]);
    fails(&["work", "t", "--", "no-such-command"], &["no-such-command", "PATH"]);
    fails(&["work", "t", "--", "./missing"], &["./missing", "No such file"]);
    place.write("plain", "text");
    fails(&["work", "t", "--", "./plain"], &["./plain", "chmod"]);
    fails(&["work", "t", "--", "/"], &["folder"]);
    fails(&["work", "t", "--timeout", "soon", "--", "true"], &["soon", "30s"]);
    fails(&["work", "t", "--backoff", "1h..1s", "--", "true"], &["1h..1s"]);
    fails(&["work", "t", "--memory", "much", "--", "true"], &["much", "512M"]);
    fails(&["work", "t", "--concurrency", "0", "--", "true"], &["--concurrency"]);
    fails(&["work", "t", "--delivery", "exactly-once", "--", "true"], &["at-least-once", "at-most-once"]);
    fails(&["work", "t", "--journal", "j", "--", "true"], &["--journal", "at-most-once"]);
    fails(&["work", "a b", "--", "true"], &["' '"]);
    fails(&["work", "t", "t", "--", "true"], &["twice"]);
    place.write("wrong.toml", "[work]\nconcurency = 3\n");
    fails(&["--config", "wrong.toml", "work", "t", "--", "true"], &["wrong.toml", "concurency"]);
    place.write("span.toml", "[work]\ntimeout = 'soon'\n");
    fails(&["--config", "span.toml", "work", "t", "--", "true"], &["span.toml", "soon", "line 2"]);
}

#[test]
fn q19_the_file_says_what_flags_do_not() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    place.write("sawmill.toml", "[work]\ngroup = 'filed'\ndrain = true\non-start = 'touch started'\n");
    place.ok(&["--config", "sawmill.toml", "work", "t", "--", "sh", "-c", "echo $SAWMILL_GROUP > group"]);
    assert_eq!(place.read("group"), "filed\n");
    assert!(place.path("started").exists());
    let flags = ["--config", "sawmill.toml", "work", "t", "--group", "said", "--"];
    place.ok(&[&flags[..], &["sh", "-c", "echo $SAWMILL_GROUP > group"]].concat());
    assert_eq!(place.read("group"), "said\n");
}
