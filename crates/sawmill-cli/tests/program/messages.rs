//! `sawmill show`, `cancel` and `peek`.

use std::time::Duration;

use crate::support::library::Library;
use crate::support::{Place, until};
use sawmill::Push;

/// An id of no message.
const NOBODY: &str = "01KA5WZJ2M8Q4T6V8X0Y2A4C6E";

#[test]
fn q17_a_message_is_shown_from_its_push_to_its_end() {
    let place = Place::new();
    let library = Library::open(&place);
    let id = library.pushed("emails", Push::new("Dear Alice").key("alice").header("lang", "en"));
    let shown = place.ok(&["show", &id]);
    for part in [id.as_str(), "emails", "alice", "lang=en", "Dear Alice (10 B)", "UTC (", "No group reads"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(place.ok(&["show", &id, "--payload"]), "Dear Alice");

    let wait = place.script("wait.sh", "while [ ! -e go ]; do sleep 0.05; done");
    let worker = place.start(&["work", "emails", "--name", "anna", "--", &wait]);
    let group = || place.json(&["show", &id])[0]["groups"][0].clone();
    until("it is claimed", || group()["state"] == "claimed");
    assert!(group()["worker"].as_str().unwrap().starts_with("anna-"), "{}", group());
    assert!(place.ok(&["show", &id]).contains("by anna-"));
    place.write("go", "");
    until("it is done", || group()["state"] == "done");
    drop(worker);
    place.run(&["cancel", &id]).fails(1, &["settled already", "done in group default"]);
}

#[test]
fn q17_a_failed_message_shows_what_it_said_and_when_it_is_tried_again() {
    let place = Place::new();
    let library = Library::open(&place);
    let id = library.pushed("emails", "x");
    let fail = place.script("fail.sh", "echo no paper >&2; exit 1");
    let worker = place.start(&["work", "emails", "--backoff", "1h..1h", "--", &fail]);
    until("it has failed", || place.json(&["show", &id])[0]["groups"][0]["state"] == "retrying");
    drop(worker);
    let group = place.json(&["show", &id])[0]["groups"][0].clone();
    assert_eq!(group["failed_attempts"], 2, "one retry came at once: {group}");
    assert!(group["failures"][1]["error"].as_str().unwrap().contains("no paper"), "{group}");
    let shown = place.ok(&["show", &id]);
    assert!(shown.contains("attempt 3 in ") && shown.contains("no paper"), "{shown}");

    place.ok(&["cancel", &id]);
    assert_eq!(place.json(&["show", &id])[0]["groups"][0]["state"], "cancelled");
    assert!(place.run(&["cancel", &id]).stderr.contains("was cancelled already"));
}

#[test]
fn a_message_that_waits_is_cancelled_and_never_starts() {
    let place = Place::new();
    let library = Library::open(&place);
    let later = library.pushed("emails", Push::new("later").after(Duration::from_secs(3600)));
    let ids = [library.pushed("emails", "one"), library.pushed("emails", "two")];
    let cancelled = &place.json(&["cancel", &ids[0]])[0];
    assert_eq!((&cancelled["topic"], &cancelled["id"]), (&"emails".into(), &ids[0].as_str().into()));
    place.ok(&["cancel", &later]);
    place.ok(&["work", "emails", "--drain", "--", "tee", "-a", "ran.txt"]);
    assert_eq!(place.read("ran.txt"), "two");
    let state = |id: &str| place.json(&["show", id])[0]["groups"][0]["state"].clone();
    assert_eq!([state(&ids[0]), state(&ids[1]), state(&later)], ["cancelled", "done", "cancelled"]);
}

#[test]
fn what_waits_is_shown_without_taking_it() {
    let place = Place::new();
    let library = Library::open(&place);
    let ids: Vec<String> = (0..3).map(|n| library.pushed("emails", format!("letter {n}"))).collect();
    library.pushed("emails", Push::new("later").after(Duration::from_secs(3600)));
    for _ in 0..2 {
        let table = place.ok(&["peek", "emails", "--limit", "2"]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("ID  "), "{table}");
        assert!(lines[1].starts_with(&ids[0]) && lines[1].ends_with("letter 0"), "{table}");
        assert_eq!(lines.len(), 3);
    }
    let peeked = place.run(&["peek", "emails", "--limit", "2"]);
    assert!(peeked.stderr.contains("2 of 3 messages"), "{}", peeked.stderr);
    assert_eq!(place.json(&["peek", "emails"]).len(), 3);

    place.ok(&["work", "emails", "--drain", "--", "true"]);
    let empty = place.run(&["peek", "emails"]);
    assert!(empty.stdout.is_empty() && empty.stderr.contains("1 message not due yet"), "{empty:?}");
    assert!(place.json(&["peek", "emails"]).is_empty());
}

#[test]
fn bytes_that_are_no_text_are_shown_as_they_can_be() {
    let place = Place::new();
    let id = Library::open(&place).pushed("emails", Push::new(vec![0xff, 0, b'x']).key(vec![0xfe]));
    let shown = &place.json(&["show", &id])[0];
    assert_eq!((&shown["payload_base64"], &shown["key_base64"]), (&"/wB4".into(), &"/g==".into()));
    assert!(shown.get("payload").is_none());
    assert!(place.ok(&["show", &id]).contains("\u{fffd}\\u{0}x (3 B)"));
}

#[test]
fn unknown_and_malformed_ids_are_told_apart() {
    let place = Place::new();
    for command in ["show", "cancel"] {
        place.run(&[command, NOBODY]).fails(4, &[NOBODY]);
        place.run(&[command, "12"]).fails(2, &["12", "26 letters and digits"]);
        place.run(&[command]).fails(2, &["ID"]);
    }
    place.run(&["peek", "nothing"]).fails(4, &["nothing", "topic list"]);
    Library::open(&place).pushed("emails", "x");
    place.run(&["peek", "emails", "--group", "other"]).fails(4, &["no group other"]);
}
