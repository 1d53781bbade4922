//! General behaviour of the program: closed pipes, colours, help.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::library::Library;
use crate::support::{Place, Running};

/// All commands that print data, for a store that has some.
const PRINTING: &[&[&str]] = &[
    &["topic", "list"],
    &["topic", "show", "emails"],
    &["peek", "emails"],
    &["status", "--sample", "0s"],
    &["cron", "list"],
    &["--json", "peek", "emails"],
    &["completions", "bash"],
    &["man"],
];

fn furnished() -> Place {
    let place = Place::new();
    Library::open(&place).pushed("emails", "x");
    place.ok(&["cron", "add", "emails", "ping", "--every", "1h"]);
    place
}

#[test]
fn a_reader_who_has_gone_is_no_error() {
    let place = furnished();
    for command in PRINTING {
        let ended = Running::start_unread(place.command(*command).stdin(Stdio::null())).wait();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn there_are_no_colours_where_nobody_sees_them() {
    let place = furnished();
    for command in PRINTING {
        let ended = place.run(command);
        assert!(!ended.stdout.contains('\u{1b}'), "{command:?}: {:?}", ended.stdout);
    }
    let failed = place.run(&["show", "nonsense"]).fails(2, &["nonsense"]);
    assert!(!failed.stderr.contains('\u{1b}'), "{:?}", failed.stderr);
}

/// Runs the program on its own terminal, made by `script` if that is installed, and returns what is shown
/// there.
fn on_a_terminal(place: &Place, command: &str, typed: &str, no_color: bool) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_sawmill");
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{program} {command}"), "/dev/null"]).current_dir(place.folder());
    script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("SAWMILL_STORE");
    if no_color {
        script.env("NO_COLOR", "1");
    }
    let started = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else {
        let why = "there is no `script` to make a terminal; Debian has it in bsdutils";
        sawmill_conformance::skipped(command, why);
        return None;
    };
    // A program that reads nothing may end before this is written.
    let _ = child.stdin.take().map(|mut keyboard| keyboard.write_all(typed.as_bytes()));
    let seen = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&seen.stdout).into_owned())
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = furnished();
    let command = "status --sample 0s";
    let Some(coloured) = on_a_terminal(&place, command, "", false) else { return };
    assert!(coloured.contains("\u{1b}[") && coloured.contains("no groups"), "{coloured:?}");
    let plain = on_a_terminal(&place, command, "", true).unwrap();
    // NO_COLOR also turns off bold text.
    assert!(!plain.contains('\u{1b}') && plain.contains("no groups"), "{plain:?}");
}

#[test]
fn a_push_of_many_shows_how_far_it_is() {
    let place = furnished();
    place.write("lines.txt", &"x\n".repeat(20_000));
    let push = "push clicks --lines --quiet < lines.txt";
    let Some(seen) = on_a_terminal(&place, push, "", true) else { return };
    assert!(seen.contains("messages pushed") && seen.contains("/s"), "{seen:?}");
    assert!(seen.trim_end().ends_with("20000"), "the line is gone at the end: {seen:?}");
    // Printed ids show the progress, and no live line is drawn over them.
    let seen = on_a_terminal(&place, "push clicks --lines < lines.txt", "", true).unwrap_or_default();
    assert!(!seen.contains("messages pushed") && seen.lines().count() == 20_000);
}

#[test]
fn a_person_is_asked_before_what_cannot_be_undone() {
    let place = furnished();
    let topics = || place.json(&["topic", "list"]).len();
    let Some(seen) = on_a_terminal(&place, "topic delete emails", "n\n", true) else { return };
    assert!(seen.contains("[y/N]") && seen.contains("nothing was changed"), "{seen:?}");
    assert_eq!(topics(), 1);
    let seen = on_a_terminal(&place, "topic delete emails", "y\n", true).unwrap();
    assert!(seen.contains("Deleted topic emails"), "{seen:?}");
    assert_eq!(topics(), 0);
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_is_not_there_is_named_once_and_without_its_password() {
    let closed = Place::new().run(&["--store", "postgres://me:secret@127.0.0.1:1/db", "status"]);
    let closed = closed.fails(3, &["postgres://me:***@127.0.0.1:1/db", "check that it runs"]);
    assert_eq!(closed.stderr.matches("127.0.0.1:1").count(), 1, "{}", closed.stderr);
}

#[test]
fn settings_are_wrong_before_anything_is_done() {
    let place = Place::new();
    place.run(&["--store", "oracle://me:secret@nowhere/db", "topic", "list"]).fails(2, &["oracle:"]);
    let ended = place.run(&["--store", "oracle://me:secret@nowhere/db", "migrate"]);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    place.run(&["--store", "sqlite:no/such/folder/x.db", "status"]).fails(2, &["no/such/folder"]);
    place.run(&["nonsense"]).fails(2, &["nonsense"]);
}
