//! How the program behaves beside its commands: pipes that close, colours, help.

mod support;

use std::process::Stdio;

use support::library::Library;
use support::{Place, Running};

/// All commands that print data, on a store that has some.
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
    Library::open(&place).push("emails", "x");
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

/// Runs the program on a terminal of its own, where there is `script` to make one.
fn on_a_terminal(place: &Place, no_color: bool, command: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_sawmill");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{program} {command}"), "/dev/null"]).current_dir(place.folder());
    script.env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    if no_color {
        script.env("NO_COLOR", "1");
    }
    match script.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            eprintln!("SKIPPED: there is no `script` to make a terminal: {error}");
            None
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = furnished();
    let command = "status --sample 0s";
    let Some(coloured) = on_a_terminal(&place, false, command) else { return };
    assert!(coloured.contains("\u{1b}[") && coloured.contains("no groups"), "{coloured:?}");
    let plain = on_a_terminal(&place, true, command).unwrap();
    // Bold is no colour, but who wants no colours is spared that, too.
    assert!(!plain.contains('\u{1b}') && plain.contains("no groups"), "{plain:?}");
}

#[test]
fn settings_are_wrong_before_anything_is_done() {
    let place = Place::new();
    place.run(&["--store", "postgres://me:secret@nowhere/db", "topic", "list"]).fails(2, &["postgres:"]);
    let ended = place.run(&["--store", "postgres://me:secret@nowhere/db", "migrate"]);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    place.run(&["--store", "sqlite:no/such/folder/x.db", "status"]).fails(ended_code(), &["no/such/folder"]);
    place.run(&["nonsense"]).fails(2, &["nonsense"]);
}

/// A folder that is missing is a matter of configuration.
fn ended_code() -> i32 {
    2
}
