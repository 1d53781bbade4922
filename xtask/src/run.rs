//! Runs other programs: displays their commands, forwards their output, and counts the tests that they
//! report.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// One program with its arguments and additional environment. Its `Display` can be pasted in a shell.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    env: Vec<(String, OsString)>,
    /// The name that a person would type; the program that runs is `executable`.
    name: String,
    executable: OsString,
    args: Vec<String>,
    /// Its working directory, if not the current one.
    folder: Option<PathBuf>,
}

/// The result of a program that was run quietly, with its output.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) counts: Counts,
    pub(crate) printed: String,
    pub(crate) time: Duration,
    /// True if it was killed because it took too long.
    pub(crate) killed: bool,
}

impl Ended {
    /// The tests that the program reported as running for long, and that had not ended when it did.
    pub(crate) fn tests_that_hung(&self) -> Vec<&str> {
        let long = |line| -> Option<&str> {
            str::strip_prefix(line, "test ")?.strip_suffix(" has been running for over 60 seconds")
        };
        let is_over =
            |test: &str| self.printed.lines().any(|line| line.starts_with(&format!("test {test} ... ")));
        self.printed.lines().filter_map(long).filter(|test| !is_over(test)).collect()
    }
}

impl Invocation {
    /// The Cargo that runs this tool.
    pub(crate) fn cargo(args: &[&str]) -> Self {
        let executable = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self { env: Vec::new(), name: "cargo".to_owned(), executable, args: Vec::new(), folder: None }
            .args(args)
    }

    pub(crate) fn program(path: &Path) -> Self {
        let name = path.display().to_string();
        Self { env: Vec::new(), name, executable: path.into(), args: Vec::new(), folder: None }
    }

    /// Replaces the program and drops the arguments; keeps the environment.
    pub(crate) fn of(self, path: &Path) -> Self {
        Self { env: self.env, ..Self::program(path) }
    }

    pub(crate) fn within(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    /// Runs it at the lowest priority.
    pub(crate) fn at_lowest_priority(self) -> Self {
        if !cfg!(unix) {
            return self;
        }
        let program = self.executable.to_string_lossy().into_owned();
        let args = ["-n".to_owned(), "19".to_owned(), program].into_iter().chain(self.args).collect();
        Self { executable: "nice".into(), args, ..self }
    }

    pub(crate) fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
            command.env_remove(name);
        }
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        self.folder.iter().for_each(|folder| {
            command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        });
        command
    }

    /// Runs it on our own terminal.
    pub(crate) fn run(&self) -> io::Result<ExitStatus> {
        self.command().status()
    }

    /// Runs it and returns its output.
    pub(crate) fn output(&self) -> io::Result<Vec<u8>> {
        let ended = self.command().stderr(Stdio::inherit()).output()?;
        if ended.status.success() {
            Ok(ended.stdout)
        } else {
            Err(io::Error::other(ended.status.to_string()))
        }
    }

    /// Runs it, forwards its output line by line, and counts the tests that it reports.
    pub(crate) fn run_counting(&self) -> io::Result<(ExitStatus, Counts)> {
        let mut child = self.command().stdout(Stdio::piped()).spawn()?;
        let counts = match child.stdout.take() {
            Some(printed) => forward_and_count(BufReader::new(printed), &mut io::stdout())?,
            None => Counts::default(),
        };
        Ok((child.wait()?, counts))
    }

    /// Runs it, captures its output, and counts the tests that it reports. If it exceeds the time limit,
    /// kills it and all its child processes.
    pub(crate) fn run_quietly(&self, time_limit: Duration) -> io::Result<Ended> {
        let started = Instant::now();
        // One pipe for both streams preserves the order of the output.
        let (printed, to) = io::pipe()?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
        start_process_group(&mut command);
        let mut child = command.spawn()?;
        // Drop our own ends of the pipe, so that it ends when the program closes its ends.
        drop(command);
        let group = child.id();
        let mut kept = Vec::new();
        let (over, is_over) = mpsc::channel::<()>();
        let (counts, killed) = thread::scope(|scope| {
            let watch = scope.spawn(move || {
                let hangs = is_over.recv_timeout(time_limit) == Err(RecvTimeoutError::Timeout);
                if hangs {
                    kill_group(group);
                }
                hangs
            });
            let counts = forward_and_count(BufReader::new(printed), &mut kept);
            // The program is not reaped yet, so its id is not reused while it is watched.
            drop(over);
            (counts, watch.join().unwrap_or_default())
        });
        let (status, printed) = (child.wait()?, String::from_utf8_lossy(&kept).into_owned());
        Ok(Ended { status, counts: counts?, printed, time: started.elapsed(), killed })
    }
}

/// Puts the program and its child processes in a process group of their own.
fn start_process_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Kills the group that this process leads.
fn kill_group(leader: u32) {
    // If it cannot be killed, the gate reports that and goes on waiting.
    match Command::new("kill").args(["-KILL", "--", &format!("-{leader}")]).status() {
        Ok(status) if status.success() => {}
        other => say(&format!("process group {leader} hangs and cannot be killed: {other:?}")),
    }
}

/// True for a variable in which Cargo describes the package of this tool. Build scripts that depend on such a
/// variable would rerun, and everything that depends on them would be recompiled, whenever `cargo xtask` and
/// plain Cargo alternate.
fn is_of_this_package(variable: &OsStr) -> bool {
    variable
        .to_str()
        .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

impl fmt::Display for Invocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(out, "{name}={} ", quoted(&value.to_string_lossy()))?;
        }
        out.write_str(&quoted(&self.name))?;
        self.args.iter().try_for_each(|arg| write!(out, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints a line and flushes it. A closed stdout is no reason to stop: the exit code still tells the result.
#[cfg(not(test))]
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// In our own tests, prints through the test harness, which captures it: the gate would count a result line.
#[cfg(test)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// The sum of the `test result:` lines of `cargo test`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// The number of such lines: 0 means that no test program ran.
    pub(crate) results: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.results += other.results;
    }

    /// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`; `None` for any other line.
    fn of_line(line: &str) -> Option<Self> {
        let parts = line.trim().strip_prefix("test result: ")?;
        let mut counts = Self { results: 1, ..Self::default() };
        for part in parts.split(';') {
            let mut words = part.split_whitespace().rev();
            let (Some(what), Some(number)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => counts.passed = number,
                "failed" => counts.failed = number,
                "ignored" => counts.ignored = number,
                _ => {}
            }
        }
        Some(counts)
    }
}

fn forward_and_count(mut from: impl BufRead, to: &mut impl Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        // As in `say`, go on counting if stdout is closed.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        if let Some(result) = Counts::of_line(&String::from_utf8_lossy(&line)) {
            counts.add(result);
        }
        line.clear();
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read() {
        let line =
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.10s";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 0, ignored: 3, results: 1 }));
        let line = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 1, failed: 2, ignored: 0, results: 1 }));
    }

    #[test]
    fn a_result_line_is_read_in_colour() {
        let line = "test result: \u{1b}[32mok\u{1b}[0m. 2 passed; 0 failed; 0 ignored";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 2, failed: 0, ignored: 0, results: 1 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "test claim::closes ... ok", "running 3 tests", "3 passed; 0 failed"] {
            assert_eq!(Counts::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn results_are_summed_and_every_byte_is_forwarded() {
        let printed = b"running 2 tests\n\xff not text\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n\
            test result: FAILED. 3 passed; 1 failed; 1 ignored\nno newline at the end";
        let mut forwarded = Vec::new();
        let counts = forward_and_count(&printed[..], &mut forwarded).unwrap();
        assert_eq!(counts, Counts { passed: 5, failed: 1, ignored: 1, results: 2 });
        assert_eq!(forwarded, printed);
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let invocation =
            Invocation::cargo(&["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").args(["it's"]);
        assert_eq!(invocation.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'");
    }

    #[test]
    fn what_a_program_prints_is_had_only_if_it_ends_well() {
        assert!(Invocation::cargo(&["--version"]).output().unwrap().starts_with(b"cargo "));
        assert!(Invocation::cargo(&["no-such-command-anywhere"]).output().is_err());
    }
}
