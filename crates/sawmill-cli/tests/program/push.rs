//! `sawmill push`.

use std::io::Write;
use std::process::Stdio;

use crate::support::library::Library;
use crate::support::{Place, Running, until};

/// Returns the messages of a topic that were not read yet, through the library.
fn stored(place: &Place, topic: &str) -> Vec<sawmill::Message> {
    Library::open(place).run(async |mill| {
        let puller = mill.worker(topic).group("look").concurrency(1000).pull().await.unwrap();
        let mut messages = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(job) = puller.pull() => {
                    messages.push(job.context().message().clone());
                    job.done().await.unwrap();
                }
                () = puller.worker().drained() => break,
            }
        }
        puller.worker().stop().await;
        messages.sort_by_key(|message| message.id);
        messages
    })
}

fn payloads(place: &Place, topic: &str) -> Vec<String> {
    stored(place, topic)
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
        .collect()
}

#[test]
fn one_message_is_pushed_and_its_id_printed() {
    let place = Place::new();
    let first = place.run(&["push", "emails", "Dear Alice", "--key", "alice", "--header", "lang=en"]);
    assert!(first.stderr.contains("created topic emails (16 shards)"), "{}", first.stderr);
    let id = first.ok();
    place.run_with(&["push", "emails"], b"from\nstdin\n").ok();
    place.run_with(&["push", "emails", "-"], b"\xff\0").ok();
    assert_eq!(place.ok(&["push", "emails", "counted", "--quiet"]), "1\n");

    let messages = stored(&place, "emails");
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[0].id.to_string(), id.trim());
    assert_eq!(messages[0].payload, "Dear Alice");
    assert_eq!(messages[0].key.as_deref(), Some(&b"alice"[..]));
    assert_eq!(messages[0].headers.text("lang"), Some("en"));
    assert_eq!(messages[1].payload, "from\nstdin\n");
    assert_eq!(messages[2].payload, &b"\xff\0"[..]);
}

#[test]
fn a_unique_message_is_added_once() {
    let place = Place::new();
    let first = place.ok(&["push", "reports", "one", "--unique", "report-7"]);
    assert_eq!(place.ok(&["push", "reports", "two", "--unique", "report-7"]), first);
    assert_eq!(payloads(&place, "reports"), ["one"]);
}

#[test]
fn each_line_is_a_message_and_ids_come_in_order() {
    let place = Place::new();
    let input: String = (0..2500).map(|n| format!("line {n}\n")).collect();
    let printed = place.run_with(&["push", "lines", "--lines"], input.as_bytes()).ok();
    let messages = stored(&place, "lines");
    let ids: Vec<String> = messages.iter().map(|message| message.id.to_string()).collect();
    assert!(printed.lines().eq(&ids), "ids are printed in the order of the lines");
    assert!((0..2500).zip(&messages).all(|(n, message)| message.payload == format!("line {n}")));
    assert_eq!(messages.len(), 2500);
    assert_eq!(place.run_with(&["push", "lines", "--lines", "--quiet"], b"a\nb").ok(), "2\n");
    assert_eq!(place.run_with(&["push", "lines", "--lines", "--quiet"], b"").ok(), "0\n");
}

#[test]
fn lines_are_pushed_as_they_come() {
    let place = Place::new();
    let mut running = Running::start(place.command(["push", "slow", "--lines"]).stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(b"first\n").unwrap();
    let waiting = || place.run(&["--json", "topic", "list"]).stdout.contains("slow");
    until("the topic is made", waiting);
    until("the first line is there", || payloads(&place, "slow") == ["first"]);
    stdin.write_all(b"second").unwrap();
    drop(stdin);
    assert_eq!(running.wait().ok().lines().count(), 2);
}

#[test]
fn a_line_of_json_says_all_of_a_message() {
    let place = Place::new();
    let input = b"{\"payload\":{\"to\":\"alice\"},\"key\":\"alice\",\"headers\":{\"lang\":\"en\"}}\n{\"payload\":\"x\",\"unique\":\"u\"}\n{\"payload\":\"y\",\"unique\":\"u\"}\n";
    let printed = place.run_with(&["push", "emails", "--jsonl"], input).ok();
    let ids: Vec<&str> = printed.lines().collect();
    assert_eq!((ids.len(), ids[1]), (3, ids[2]), "the unique one is there already");
    let messages = stored(&place, "emails");
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0].payload, "{\"to\":\"alice\"}");
    assert_eq!(messages[0].headers.text("lang"), Some("en"));
}

#[test]
fn a_wrong_line_is_named_and_those_before_it_are_pushed() {
    let place = Place::new();
    let mut input: String = (0..1500).map(|n| format!("{{\"payload\":\"{n}\"}}\n")).collect();
    input += "{\"payload\":\"x\",\"kye\":1}\n{\"payload\":\"never\"}\n";
    let ended = place
        .run_with(&["push", "emails", "--jsonl"], input.as_bytes())
        .fails(1, &["line 1501", "kye", "lines 1 to 1500 are pushed"]);
    assert_eq!(ended.stdout.lines().count(), 1500);
    assert_eq!(payloads(&place, "emails").len(), 1500);

    let ended = place
        .run_with(&["push", "emails", "--jsonl"], b"nonsense\n")
        .fails(1, &["line 1", "nothing was pushed"]);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_message_that_is_too_large_is_named_and_those_before_it_are_pushed() {
    let place = Place::new();
    let mut input = b"small\n".to_vec();
    input.extend(vec![b'x'; (16 << 20) + 1]);
    input.extend(b"\nafter\n");
    place.run_with(&["push", "big", "--lines"], &input).fails(1, &["line 2", "line 1 is pushed"]);
    assert_eq!(payloads(&place, "big"), ["small"]);
    // Even a line that never ends is refused.
    let mut endless = b"small\n".to_vec();
    endless.extend(vec![b'x'; 40 << 20]);
    place.run_with(&["push", "endless", "--lines"], &endless).fails(1, &["line 2", "16.0 MiB"]);
    place.run_with(&["push", "big"], &vec![b'x'; 17 << 20]).fails(1, &["payload"]);
    // A header that no engine accepts.
    let input = b"{\"payload\":\"ok\"}\n{\"payload\":\"no\",\"headers\":{\"sawmill-x\":\"1\"}}\n";
    let ended = place.run_with(&["push", "h", "--jsonl"], input).fails(2, &["line 2", "sawmill-"]);
    assert_eq!(ended.stdout.lines().count(), 1);
}

#[test]
fn what_is_wrong_with_a_push_is_said_and_nothing_is_made() {
    let place = Place::new();
    for (args, said) in [
        (&["push", "t", "x", "--in", "soon"][..], "30s"),
        (&["push", "t", "x", "--at", "noon"], "2026-11-15T08:00:00Z"),
        (&["push", "t", "x", "--in", "1s", "--at", "2026-11-15T08:00:00Z"], "cannot be used with"),
        (&["push", "t", "x", "--header", "lang"], "NAME=VALUE"),
        (&["push", "t", "x", "--lines"], "cannot be used with"),
        (&["push", "t", "--lines", "--jsonl"], "cannot be used with"),
        (&["push", "a b", "x"], "' '"),
        (&["push", "t@g.dead", "x"], "lane"),
        (&["push"], "TOPIC"),
        (&["--store", "nosuch:x", "push", "t", "x"], "nosuch:x"),
        (&["--store", "sqlite:", "push", "t", "x"], "sqlite:jobs.db"),
    ] {
        let ended = place.run(args).fails(2, &[said]);
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    place.run(&["push", "t", "x", "--no-create"]).fails(4, &["topic t"]);
    assert_eq!(place.ok(&["topic", "list"]), "");
}

#[test]
fn a_closed_stdin_is_not_an_empty_payload() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_sawmill");
    let closed = |args: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("exec {program} push emails {args} <&-")]).current_dir(place.folder());
        Running::start(&mut shell).wait()
    };
    closed("").fails(2, &["stdin is closed"]);
    Running::start(place.command(["push", "emails"]).stdin(Stdio::null())).wait().fails(2, &["null device"]);
    let lines = closed("--lines --quiet");
    assert!(lines.stderr.contains("stdin is closed"), "{}", lines.stderr);
    assert_eq!(lines.ok(), "0\n");
    closed("Hello").ok();
    place.run(&["push", "emails", ""]).ok();
    place.run_with(&["push", "emails"], b"").ok();
    assert_eq!(payloads(&place, "emails"), ["Hello", "", ""]);
}

#[test]
fn a_reader_who_goes_away_is_told_what_was_pushed() {
    let place = Place::new();
    let mut running =
        Running::start_unread(place.command(["push", "lines", "--lines"]).stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    let input: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let ended = running.wait().fails(1, &["the ids could not be printed", "are pushed"]);
    let said: usize =
        ended.stderr.split("lines 1 to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(payloads(&place, "lines").len(), said);
}

#[test]
fn a_store_that_goes_away_in_the_middle_is_said_and_what_was_printed_stays() {
    let place = Place::new();
    place.ok(&["topic", "create", "lines"]);
    let mut running = Running::start(place.command(["push", "lines", "--lines"]).stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(b"one\ntwo\n").unwrap();
    let waiting = || Library::open(&place).status("lines").waiting;
    until("the first lines are there", || waiting() == 2);

    // Lock the database for longer than any of its users waits.
    let holder = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    holder.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    stdin.write_all(b"three\nfour\n").unwrap();
    let ended = running.wait().fails(3, &["line 3", "sawmill.db", "lines 1 to 2 are pushed"]);
    assert_eq!(ended.stdout.lines().count(), 2);
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(payloads(&place, "lines"), ["one", "two"]);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_the_same_however_many_lines_there_are() {
    let place = Place::new();
    let mut running = Running::start(place.command(["push", "lines", "--lines"]).stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    let status = format!("/proc/{}/status", running.child.id());
    let peak_kib = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
        peak.trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let chunk = format!("{}\n", "x".repeat(99)).repeat(10_000);
    let mut push = |count: usize| (0..count).for_each(|_| stdin.write_all(chunk.as_bytes()).unwrap());
    push(5);
    let early = peak_kib();
    push(25);
    let late = peak_kib();
    assert!(
        late < early + 16 * 1024,
        "25 MB more went through, and the peak grew from {early} to {late} KiB"
    );
    drop(stdin);
    assert_eq!(running.wait().ok().lines().count(), 300_000);
}
