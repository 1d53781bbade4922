//! `sawmill work --stream`: commands that keep running and answer one message after the other.

use crate::support::library::Library;
use crate::support::{Place, Running, until};
use rustix::process::{Pid, Signal, kill_process};
use sawmill::Push;

/// Returns a command that answers each line with the shell fragment `answer`, which may use `$id` and
/// `$line`.
fn responder(place: &Place, answer: &str) -> String {
    place.script(
        "talk",
        &format!(
            r#"echo $$ >> started
while read -r line; do
  printf '%s\n' "$line" >> lines
  id=${{line#*\"id\":\"}}; id=${{id%%\"*}}
  {answer}
done
echo $$ >> ended"#
        ),
    )
}

const OK: &str = r#"echo "{\"id\":\"$id\",\"ok\":true}""#;

fn reasons(library: &Library) -> Vec<String> {
    library.dead("t").iter().map(|letter| letter.reason().to_owned()).collect()
}

#[test]
fn a_command_stays_and_answers_message_after_message() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let id = library.push("t", Push::new("line\n\"one\"").key("alice").header("lang", "en"));
    library.push("t", Push::new(vec![0xff, 0xfe]).key(vec![0xff]).header("raw", vec![0xff]));
    library.push_many("t", vec!["x"; 28]);
    let script = responder(&place, OK);
    place.ok(&["work", "t", "--stream", "--concurrency", "2", "--drain", "--", &script]);
    assert_eq!(library.status("t").done, 30);
    let started = place.read("started").lines().count();
    assert!((1..=2).contains(&started), "{started} were started");
    assert_eq!(place.read("ended").lines().count(), started, "they ended by themselves");
    let lines: Vec<serde_json::Value> =
        place.read("lines").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 30);
    let of = |name: &str, value: &str| lines.iter().find(|line| line[name] == value).unwrap();
    let text = of("key", "alice");
    assert_eq!(text["id"], id.to_string());
    assert_eq!(
        (&text["topic"], &text["group"], &text["attempt"]),
        (&"t".into(), &"default".into(), &1.into())
    );
    assert_eq!((&text["payload"], &text["headers"]["lang"]), (&"line\n\"one\"".into(), &"en".into()));
    assert!(text["token"].is_u64() && text.get("payload_base64").is_none());
    let bytes = of("payload_base64", "//4=");
    assert_eq!((&bytes["key_base64"], &bytes["headers_base64"]["raw"]), (&"/w==".into(), &"/w==".into()));
    assert!(bytes.get("payload").is_none() && bytes.get("key").is_none());
}

#[test]
fn errors_are_tried_again_unless_the_command_says_no() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["again", "never"]);
    let script = responder(
        &place,
        r#"case "$line" in
  *never*) echo "{\"id\":\"$id\",\"error\":\"hopeless\",\"retry\":false}" ;;
  *'"attempt":1'*) echo "{\"id\":\"$id\",\"error\":\"not yet\"}" ;;
  *) echo "{\"id\":\"$id\",\"ok\":true}" ;;
esac"#,
    );
    place.ok(&["work", "t", "--stream", "--concurrency", "1", "--drain", "--", &script]);
    let status = library.status("t");
    assert_eq!((status.done, status.dead), (1, 1));
    assert_eq!(reasons(&library), ["hopeless"]);
    assert_eq!(place.read("started").lines().count(), 1, "an error is no reason to start it anew");
}

#[test]
fn a_command_that_dies_fails_what_it_held_and_is_started_again() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["fine", "die", "fine"]);
    let script = responder(
        &place,
        &format!(r#"case "$line" in *'"die"'*) echo dying words >&2; exit 9 ;; esac; {OK}"#),
    );
    place.ok(&["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", &script]);
    let status = library.status("t");
    assert_eq!((status.done, status.dead), (2, 1));
    let reasons = reasons(&library);
    assert!(reasons[0].contains("exit code 9") && reasons[0].contains("dying words"), "{reasons:?}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it takes time, and that is the point")]
fn a_command_that_dies_at_once_is_not_started_again_at_once() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x"; 5]);
    let began = std::time::Instant::now();
    let script = place.script("dud", "echo x >> started; exit 3");
    place.ok(&["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", &script]);
    assert_eq!((library.dead("t").len(), place.read("started").lines().count()), (5, 5));
    assert!(began.elapsed() >= std::time::Duration::from_millis(1_400), "100 + 200 + 400 + 800 ms");
}

#[test]
fn a_wrong_answer_fails_the_message_and_says_what_was_wrong() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", ["nonsense", "stranger", "endless", "shy", "fine"]);
    let script = responder(
        &place,
        &format!(
            r#"case "$line" in
  *nonsense*) echo "what?"; continue ;;
  *stranger*) echo '{{"id":"somebody-else","ok":true}}'; continue ;;
  *endless*) head -c 1100000 /dev/zero | tr '\0' x; echo; continue ;;
  *shy*) exec 1>&-; sleep 1000 ;;
esac; {OK}"#
        ),
    );
    place.ok(&["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", &script]);
    assert_eq!(library.status("t").done, 1);
    let reasons = reasons(&library).join("\n");
    for part in ["what?", "somebody-else", "longer than 1.0 MiB", "closed its stdout"] {
        assert!(reasons.contains(part), "{part:?} is not in\n{reasons}");
    }
}

#[test]
fn q23_a_timeout_ends_a_streaming_command_and_another_takes_its_place() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    // With one key they run in order.
    library.push_many("t", ["hang", "fine"].map(|text| Push::new(text).key("k")));
    let script = responder(&place, &format!(r#"case "$line" in *hang*) sleep 1000 ;; esac; {OK}"#));
    // Long enough for a shell to start and answer on a busy machine.
    let args = ["--timeout", "5s", "--retries", "0", "--concurrency", "1", "--drain", "--", &script];
    place.ok(&[&["work", "t", "--stream"], &args[..]].concat());
    assert_eq!((library.status("t").done, place.read("started").lines().count()), (1, 2));
    assert!(reasons(&library)[0].contains("timeout of 5s"), "{:?}", reasons(&library));
}

#[test]
fn q20_a_streaming_command_can_stop_the_worker() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let script = responder(&place, "echo no licence >&2; exit 78");
    place.run(&["work", "t", "--stream", "--", &script]).fails(1, &["exit code 78", "no licence"]);
    let status = library.status("t");
    assert_eq!((status.done, status.dead, status.retrying), (0, 0, 0), "{status:?}");
}

#[test]
fn q15_signals_end_streaming_commands() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let script = responder(&place, &format!("sleep 1000; {OK}"));
    let worker = place.start(&["work", "t", "--stream", "--concurrency", "1", "--", &script]);
    until("it runs", || !place.read("lines").is_empty());
    worker.signal(Signal::TERM);
    worker.wait().ok();
    assert_eq!(library.status("t").done, 0);
    let script = responder(&place, OK);
    place.ok(&["work", "t", "--stream", "--drain", "--", &script]);
    assert!(place.read("lines").lines().last().unwrap().contains(r#""attempt":1"#), "it was not its failure");
}

/// Processes that leave the process group and write their pids to the file `pids`. They end with the test.
struct Strays<'a>(&'a Place);

impl Drop for Strays<'_> {
    fn drop(&mut self) {
        for line in self.0.read("pids").lines() {
            if let Some(pid) = line.trim().parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Asserts that the only message is a dead letter and that the drained worker has ended.
fn the_only_letter(place: &Place, library: &Library, script: &str) -> String {
    let args = ["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", script];
    place.ok(&args);
    let reasons = reasons(library);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.into_iter().next().unwrap()
}

#[test]
fn a_command_that_dies_fails_what_it_held_though_others_hold_its_pipes() {
    for begin in ["sleep 1000", "setsid sleep 1000"] {
        let place = Place::new();
        let _strays = Strays(&place);
        let library = Library::with_topic(&place, "t");
        library.push("t", "x");
        let script = place.script("run", &format!("{begin} & echo $! > pids; read -r line; exit 9"));
        let reason = the_only_letter(&place, &library, &script);
        assert!(reason.contains("exit code 9"), "{begin}: {reason}");
    }
}

#[test]
fn a_command_that_does_not_read_holds_nobody_up() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    // More than a pipe holds.
    library.push("t", "x".repeat(300_000));
    let script = place.script("run", "exec 1>&-; sleep 1000");
    let reason = the_only_letter(&place, &library, &script);
    assert!(reason.contains("closed its stdout"), "{reason}");
}

#[test]
fn a_command_that_answers_before_it_has_read_all_is_heard_and_replaced() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x".repeat(300_000); 2]);
    let script = place.script(
        "run",
        &format!(
            r#"echo $$ >> started
line=$(dd bs=1 count=200 2> dd)
id=${{line#*\"id\":\"}}; id=${{id%%\"*}}
{OK}
sleep 1000"#
        ),
    );
    place.ok(&["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", &script]);
    assert_eq!((library.status("t").done, place.read("started").lines().count()), (2, 2));
}

#[test]
fn what_a_command_says_too_much_is_not_the_next_ones_answer() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push_many("t", vec!["x"; 3]);
    let script = responder(&place, r#"printf '{"id":"%s","ok":true}\nthat is all\n' "$id""#);
    let args = ["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--drain", "--", &script];
    let ended = place.run(&args);
    assert!(ended.stderr.contains("wrote more than its answer"), "{}", ended.stderr);
    ended.ok();
    let status = library.status("t");
    assert_eq!((status.done, status.dead), (3, 0), "{:?}", reasons(&library));
}

#[test]
fn q15_a_stop_does_not_wait_for_a_command_that_has_not_begun() {
    for ordered in [&[][..], &["--ordered"]] {
        let place = Place::new();
        let library = Library::with_topic(&place, "t");
        library.push_many("t", (0..10).map(|_| Push::new("x").key("k")));
        let script = place.script("dud", "echo x >> started; exit 3");
        let args = ["work", "t", "--stream", "--concurrency", "1", "--retries", "0"];
        let worker = place.start(&[&args[..], ordered, &["--", &script]].concat());
        // The next pause takes 6.4 s.
        until("seven have failed", || library.status("t").dead == 7);
        worker.signal(Signal::INT);
        worker.wait().ok();
        assert_eq!(place.read("started").lines().count(), 7, "none was started after the stop");
        let status = library.status("t");
        let left = status.waiting + status.retrying + status.claimed;
        assert_eq!((status.dead, left), (7, 3), "{status:?}");
    }
}

/// Counts the open pipes of a process.
#[cfg(target_os = "linux")]
fn pipes(worker: &Running) -> usize {
    let folder = format!("/proc/{}/fd", worker.pid());
    let is_pipe = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
        target.is_ok_and(|target| target.to_string_lossy().starts_with("pipe:"))
    };
    std::fs::read_dir(folder).unwrap().map(is_pipe).filter(|is| *is).count()
}

#[test]
#[cfg(target_os = "linux")]
fn q11_what_gets_away_from_a_streaming_command_takes_no_pipes_of_the_worker() {
    let place = Place::new();
    let _strays = Strays(&place);
    let library = Library::with_topic(&place, "t");
    let script = responder(
        &place,
        &format!(
            r#"[ -e met.$$ ] && exit 1; touch met.$$; setsid sleep 1000 > /dev/null & echo $! >> pids; {OK}"#
        ),
    );
    let worker =
        place.start(&["work", "t", "--stream", "--concurrency", "1", "--retries", "0", "--", &script]);
    worker.until_said("joined the group");
    let before = pipes(&worker);
    library.push_many("t", vec!["x"; 12]);
    until("each second one has ended its command", || library.status("t").dead == 6);
    until("their pipes are closed", || pipes(&worker) <= before);
    worker.signal(Signal::INT);
    worker.wait().ok();
}
