//! The tour in the README, as a newcomer runs it: every command must print what the README shows.
//!
//! In the shown output, `…` matches any text within a line, or any lines if it is alone on its line. An id
//! matches any id.

use std::process::Command;

use crate::support::{Place, Running};

const README: &str = include_str!("../../../../README.md");

/// A command with the output that the README shows.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Returns the commands of all `console` blocks in order.
fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in README.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (false, _) => {}
            (true, "```") => inside = false,
            (true, line) => match (line.strip_prefix("$ "), line.strip_prefix("> "), steps.last_mut()) {
                (Some(command), ..) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
                (None, Some(more), Some(step)) => step.command += &format!("\n{more}"),
                (None, None, Some(step)) => step.shown.push(line.to_owned()),
                (None, _, None) => panic!("a block begins with a command: {line}"),
            },
        }
    }
    steps
}

/// Replaces every id in a line by the same text.
fn without_ids(line: &str) -> String {
    let is_id = |word: &str| word.len() == 26 && word.starts_with("01");
    line.split(' ').map(|word| if is_id(word) { "an id" } else { word }).collect::<Vec<_>>().join(" ")
}

/// True if a printed line matches a shown one.
fn is_line(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (&*without_ids(shown), &*without_ids(printed));
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return shown == printed };
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// True if the printed lines match the shown ones.
fn is_shown(shown: &[String], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((line, rest)), _) if line == "…" => {
            (0..=printed.len()).any(|skipped| is_shown(rest, &printed[skipped..]))
        }
        (Some((line, rest)), Some((first, others))) => is_line(line, first) && is_shown(rest, others),
        _ => false,
    }
}

/// The mark before the exit code of each command in the output of the shell.
const MARK: &str = "<<ended with ";

#[test]
fn the_tour_in_the_readme_is_what_one_sees() {
    let place = Place::new();
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_sawmill")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let steps = steps();
    assert!(steps.len() >= 15, "the tour has {} commands", steps.len());
    // One shell runs all commands, so that exported variables stay set.
    let script: String =
        steps.iter().map(|step| format!("{}\nprintf '{MARK}%s\\n' $?\n", step.command)).collect();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(place.folder()).env("PATH", &path);
    let printed = Running::start(&mut shell).wait().ok();
    let mut parts = printed.split(MARK);
    let mut output = parts.next().unwrap_or_default();
    for Step { command, shown } in steps {
        let (code, next) = parts.next().and_then(|part| part.split_once('\n')).expect("every command ends");
        let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
        assert!(is_shown(&shown, &lines), "$ {command}\nshown:\n{}\nprinted:\n{output}", shown.join("\n"),);
        assert_eq!(code, "0", "$ {command}\n{output}");
        output = next;
    }
}

#[test]
fn what_is_shown_is_compared() {
    assert!(is_line("a … c … e", "a b c d e") && is_line("x…", "x") && is_line("…", "anything"));
    assert!(!is_line("a … c", "a b d") && !is_line("ab…ba", "aba") && !is_line("a", "ab"));
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(is_shown(&shown(&["a", "…", "z"]), &["a", "b", "c", "z"]) && is_shown(&shown(&["…"]), &[]));
    assert!(!is_shown(&shown(&["a"]), &["a", "b"]) && !is_shown(&shown(&["a", "b"]), &["a"]));
}
