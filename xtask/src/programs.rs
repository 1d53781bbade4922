//! Builds the test programs of the workspace with Cargo, and runs several at a time. Many tests wait, for a
//! lease that expires or a server that restarts, so running several keeps the machine busy.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::run::{Counts, Ended, Invocation, say};
use crate::second_run::{self, FailedTest};

/// How many programs run at a time.
const AT_A_TIME: usize = 3;
/// The time limit of a program: several times the longest run, so that a hanging program does not block the
/// gate.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A test program that Cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    file: PathBuf,
    /// The folder of its package, where Cargo would run it.
    folder: PathBuf,
}

impl Program {
    /// Reads the test program from a line of Cargo's output; `None` for any other line.
    fn of_line(line: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(line).ok()?;
        if said["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(said["manifest_path"].as_str()?).parent()?;
        Some(Self { file: said["executable"].as_str()?.into(), folder: folder.to_owned() })
    }

    /// The package it belongs to, by the name of its folder.
    pub(crate) fn package(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.package(), self.file.file_name().unwrap_or_default().to_string_lossy())
    }

    /// The paths of its tests, one per line.
    pub(crate) fn list(&self, command: &Invocation) -> io::Result<String> {
        let list = command.clone().of(&self.file).within(&self.folder).args(["--list", "--format", "terse"]);
        list.output().map(|printed| String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs these of its tests, or all of them if none is named.
    fn run(&self, command: &Invocation, tests: &[&str]) -> io::Result<Ended> {
        let exact = if tests.is_empty() { None } else { Some("--exact") };
        command.clone().of(&self.file).within(&self.folder).args(tests).args(exact).run_quietly(TIME_LIMIT)
    }
}

/// The results of all programs.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// The names of the programs that failed, and how they ended.
    pub(crate) failed: Vec<String>,
    /// The tests that passed in their second run only.
    pub(crate) second_runs: Vec<String>,
}

/// A program whose failed tests all deserve a second run.
struct SecondRun {
    program: Program,
    tests: Vec<FailedTest>,
    how: String,
}

/// Builds the test programs.
pub(crate) fn build(command: &Invocation) -> io::Result<Vec<Program>> {
    let built = command.clone().args(["--no-run", "--message-format", "json-render-diagnostics"]).output()?;
    let said = String::from_utf8_lossy(&built);
    let mut programs: Vec<Program> = said.lines().filter_map(Program::of_line).collect();
    // The largest programs run first: they usually take the longest, and short ones fill the gaps at the end.
    programs
        .sort_by_key(|program| std::cmp::Reverse(fs::metadata(&program.file).map_or(0, |file| file.len())));
    Ok(programs)
}

/// Runs the programs, each with the environment of `command`. Shows the output of each when it ends.
pub(crate) fn run(programs: Vec<Program>, command: &Invocation) -> Outcome {
    say(&format!("{} test programs, {AT_A_TIME} at a time", programs.len()));
    let waiting = Mutex::new(VecDeque::from(programs));
    let outcome = Mutex::new((Outcome::default(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(program) = next else { return };
                    let ended = program.run(command, &[]);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    let (outcome, again) = &mut *outcome;
                    again.extend(note(program, ended, outcome));
                }
            });
        }
    });
    let (mut outcome, again) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tests: usize = again.iter().map(|again| again.tests.len()).sum();
    for again in again {
        match tests <= second_run::MOST {
            true => again.run(command, &mut outcome),
            false => outcome.failed.push(again.how),
        }
    }
    outcome
}

/// Shows the output of a program and counts its tests. The caller holds the lock on the outcome, so outputs
/// do not mix. Returns the program if its failed tests deserve a second run.
fn note(program: Program, ended: io::Result<Ended>, outcome: &mut Outcome) -> Option<SecondRun> {
    let name = program.name();
    match ended {
        Ok(ended) => {
            say(&format!("-- {name}, {:.1} s\n{}", ended.time.as_secs_f64(), ended.printed));
            outcome.counts.add(ended.counts);
            if ended.status.success() {
                return None;
            }
            let how = match ended.killed {
                true => format!(
                    "{name}: killed after {:.0} s; still running: {}",
                    ended.time.as_secs_f64(),
                    ended.tests_that_hung().join(", ")
                ),
                false => format!("{name}: {}", ended.status),
            };
            let tests = FailedTest::all_of(&ended.printed);
            // A failed test that printed nothing is counted but not listed, so the cause of its failure is
            // unknown.
            let all_are_known = tests.len() as u64 == ended.counts.failed;
            if !tests.is_empty() && all_are_known && tests.iter().all(FailedTest::deserves_a_second_run) {
                return Some(SecondRun { program, tests, how });
            }
            outcome.failed.push(how);
        }
        Err(error) => {
            say(&format!("-- {name} cannot be run: {error}"));
            outcome.failed.push(format!("{name}: {error}"));
        }
    }
    None
}

impl SecondRun {
    /// Runs the failed tests once more, alone. Those that pass count as passed, and are listed.
    fn run(self, command: &Invocation, outcome: &mut Outcome) {
        let tests: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        let name = self.program.name();
        say(&format!("-- {name}: running failed tests again: {}", tests.join(", ")));
        match self.program.run(command, &tests) {
            Ok(ended) if ended.status.success() && ended.counts.passed == tests.len() as u64 => {
                outcome.counts.failed -= ended.counts.passed;
                outcome.counts.passed += ended.counts.passed;
                outcome.second_runs.extend(tests.iter().map(|test| format!("{name} {test}")));
            }
            Ok(ended) => {
                say(&ended.printed);
                outcome.failed.push(format!("{}; failed again in the second run", self.how));
            }
            Err(error) => outcome.failed.push(format!("{name}: {error}")),
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
        let ended = program.run(&Invocation::cargo(&["test"]), &[]);
        assert!(note(program, ended, &mut outcome).is_none(), "there is no test to run again");
        assert_eq!(outcome.failed.len(), 1);
    }

    /// Writes a script that prints the output of a test program. Another process writes the file: a child
    /// that a parallel test starts would briefly inherit a file that this process has open for writing, and
    /// such a file cannot be run.
    #[cfg(unix)]
    fn script(folder: &Path, text: &str) -> Program {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let file = folder.join("script");
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(&file).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        write!(shell.stdin.take().unwrap(), "#!/bin/sh\n{text}").unwrap();
        assert!(shell.wait().unwrap().success());
        Program { file, folder: folder.to_owned() }
    }

    /// Runs a program that reports `failed` failed tests in its first run, one of which prints these words,
    /// and that passes in its second run if that names the test.
    #[cfg(unix)]
    fn failing_once(words: &str, failed: u64) -> Outcome {
        let name = format!("programs-{}-{}-{failed}", std::process::id(), words.len());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "if [ \"$*\" = 'a::b --exact' ]; then echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0; fi\n\
             printf 'failures:\\n\\n---- a::b stdout ----\\nthread '\\''a::b'\\'' panicked at a.rs:1:1:\\n{words}\\n\\n'\n\
             printf 'failures:\\n    a::b\\n\\n'\n\
             echo 'test result: FAILED. 2 passed; {failed} failed; 0 ignored'; exit 101"
        );
        let outcome = run(vec![script(&folder, &text)], &Invocation::cargo(&["test"]));
        fs::remove_dir_all(folder).unwrap();
        outcome
    }

    /// A child process of the program holds the pipe open, and is killed too.
    #[test]
    #[cfg(unix)]
    fn a_program_that_hangs_is_killed_and_its_tests_are_named() {
        let folder = std::env::temp_dir().join(format!("programs-{}-hangs", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text = "echo 'test a::b has been running for over 60 seconds'\n\
            echo 'test c has been running for over 60 seconds'\necho 'test c ... ok'\n\
            sleep 600 &\nsleep 600";
        let program = script(&folder, text);
        let command = Invocation::cargo(&["test"]).of(&program.file);
        // The time that the script has to print the names of its tests.
        let ended = command.run_quietly(Duration::from_secs(5)).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert!(ended.killed && !ended.status.success() && ended.time < Duration::from_secs(500));
        assert_eq!(ended.tests_that_hung(), ["a::b"]);
        let mut outcome = Outcome::default();
        assert!(note(program, Ok(ended), &mut outcome).is_none(), "it is not run again");
        assert!(outcome.failed[0].contains("killed") && outcome.failed[0].ends_with("a::b"), "{outcome:?}");
    }

    #[test]
    #[cfg(unix)]
    fn a_test_that_waited_in_vain_is_run_again_and_named() {
        let outcome = failing_once("test timed out: a start", 1);
        assert_eq!(outcome.failed, Vec::<String>::new());
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (3, 0));
        assert_eq!(outcome.second_runs.len(), 1);
        assert!(outcome.second_runs[0].ends_with("script a::b"), "{:?}", outcome.second_runs);
    }

    #[test]
    #[cfg(unix)]
    fn a_test_that_saw_a_loss_is_not_run_again() {
        let outcome = failing_once("1 message was lost", 1);
        assert_eq!((outcome.failed.len(), outcome.second_runs.len()), (1, 0));
        assert_eq!(outcome.counts.failed, 1);
    }

    #[test]
    #[cfg(unix)]
    fn a_test_that_fails_silently_beside_one_that_waited_in_vain_fails_the_gate() {
        let outcome = failing_once("test timed out: a start", 2);
        assert_eq!((outcome.failed.len(), outcome.second_runs.len()), (1, 0));
        assert_eq!(outcome.counts.failed, 2);
    }
}
