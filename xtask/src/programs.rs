//! The test programs of the workspace: built by Cargo, then run side by side. Many tests wait for something, a lease that runs out or a
//! server that comes back, so that more than one program at a time is what keeps the machine busy.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;

use crate::run::{Counts, Ended, Invocation, say};

/// How many run at a time.
const AT_A_TIME: usize = 2;

/// A program that Cargo built from tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    file: PathBuf,
    /// Where Cargo would run it: the folder of its package.
    folder: PathBuf,
}

impl Program {
    /// What a line of Cargo's says of a test program; any other line says nothing.
    fn of_line(line: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(line).ok()?;
        if said["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(said["manifest_path"].as_str()?).parent()?;
        Some(Self { file: said["executable"].as_str()?.into(), folder: folder.to_owned() })
    }

    fn name(&self) -> String {
        let (package, file) = (self.folder.file_name(), self.file.file_name());
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        format!("{} {}", text(package), text(file))
    }

    fn run(&self, command: &Invocation) -> io::Result<Ended> {
        command.clone().of(&self.file).within(&self.folder).run_quietly()
    }
}

/// What became of all programs.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// The names of those that did not end well, and how they ended.
    pub(crate) failed: Vec<String>,
}

/// Builds the tests and runs them, each program with the environment of `command`. What they print is shown when they end.
pub(crate) fn run(command: &Invocation) -> io::Result<Outcome> {
    let built = command.clone().args(["--no-run", "--message-format", "json-render-diagnostics"]).output()?;
    let said = String::from_utf8_lossy(&built);
    let mut programs: Vec<Program> = said.lines().filter_map(Program::of_line).collect();
    // The largest first: they mostly take the longest, and what is short fills the gaps at the end.
    programs
        .sort_by_key(|program| std::cmp::Reverse(fs::metadata(&program.file).map_or(0, |file| file.len())));
    say(&format!("{} test programs, {AT_A_TIME} at a time", programs.len()));
    let waiting = Mutex::new(VecDeque::from(programs));
    let outcome = Mutex::new(Outcome::default());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(program) = next else { return };
                    let ended = program.run(command);
                    note(&program, ended, &mut outcome.lock().unwrap_or_else(PoisonError::into_inner));
                }
            });
        }
    });
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Shows what a program printed, and counts it. Whoever calls this holds the outcome, so that no two print at once.
fn note(program: &Program, ended: io::Result<Ended>, outcome: &mut Outcome) {
    let name = program.name();
    match ended {
        Ok(ended) => {
            say(&format!("-- {name}, {:.1} s\n{}", ended.time.as_secs_f64(), ended.printed));
            outcome.counts.add(ended.counts);
            if !ended.status.success() {
                outcome.failed.push(format!("{name}: {}", ended.status));
            }
        }
        Err(error) => {
            say(&format!("-- {name} cannot be run: {error}"));
            outcome.failed.push(format!("{name}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/b/Cargo.toml",
            "profile":{"test":true},"executable":"/a/target/debug/deps/c-1"}"#;
        let program = Program::of_line(&line.replace('\n', " ")).unwrap();
        assert_eq!(
            program,
            Program { file: "/a/target/debug/deps/c-1".into(), folder: "/a/crates/b".into() }
        );
        assert_eq!(program.name(), "b c-1");
    }

    #[test]
    fn what_is_no_test_program_is_passed_over() {
        for line in [
            "",
            "no JSON",
            r#"{"reason":"build-finished","success":true}"#,
            r#"{"manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":"/a/target/debug/c"}"#,
            r#"{"manifest_path":"/a/Cargo.toml","profile":{"test":true},"executable":null}"#,
        ] {
            assert_eq!(Program::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_program_that_cannot_be_run_has_failed() {
        let program = Program { file: "/no/such/program".into(), folder: ".".into() };
        let mut outcome = Outcome::default();
        note(&program, program.run(&Invocation::cargo(&["test"])), &mut outcome);
        assert_eq!(outcome.failed.len(), 1);
    }
}
