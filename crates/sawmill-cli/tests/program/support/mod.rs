//! Runs the real program in a temporary folder, to its end or in the background with signals.

#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "a module of tests is not reached from outside")]
#![allow(clippy::disallowed_methods, reason = "these tests run in real time")]

pub mod library;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The time limit of every wait, generous for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A temporary folder with a store, and the program to use it with.
pub struct Place {
    folder: TempDir,
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Returns the text of a file; empty if it does not exist.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Creates an executable shell script in the folder, to be run as `./NAME`. Another process writes it: a
    /// process that another test starts briefly inherits our open files, and a file that is open for writing
    /// cannot be executed.
    pub fn script(&self, name: &str, body: &str) -> String {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(self.path(name)).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        write!(shell.stdin.take().unwrap(), "#!/bin/sh\n{body}\n").unwrap();
        assert!(shell.wait().unwrap().success());
        format!("./{name}")
    }

    /// Returns the command for the program with these arguments, in this folder and without the tester's own
    /// settings.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sawmill"));
        command.args(args).current_dir(self.folder());
        for name in [
            "SAWMILL_STORE",
            "SAWMILL_LEDGER",
            "SAWMILL_NAMESPACE",
            "SAWMILL_CONFIG",
            "SAWMILL_LOG",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs the program to its end with empty stdin.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, b"")
    }

    /// Runs the program to its end with this on stdin.
    pub fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut running = Running::start(self.command(args).stdin(Stdio::piped()));
        let mut pipe = running.child.stdin.take().unwrap();
        // The program may end without reading everything, which breaks the pipe.
        let _ = pipe.write_all(stdin);
        drop(pipe);
        running.wait()
    }

    /// Runs the program to its end, which must be successful, and returns its stdout.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok()
    }

    /// Runs the program with `--json`, and returns each line of its output.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let args: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        self.ok(&args).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Starts the program in the background.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args).stdin(Stdio::null()))
    }
}

impl Ended {
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts this exit code and these parts of stderr.
    #[track_caller]
    pub fn fails(self, code: i32, said: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for part in said {
            assert!(self.stderr.contains(part), "{part:?} is not said: {}", self.stderr);
        }
        self
    }
}

/// The running program. It is killed if the test ends first.
pub struct Running {
    pub child: Child,
    stdout: Option<Collector>,
    stderr: Option<Collector>,
}

/// A pipe of the program, and what has arrived through it.
struct Collector {
    reader: JoinHandle<()>,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut running = Self::start_with(command.stdout(Stdio::piped()));
        running.stdout = running.child.stdout.take().map(collect);
        running
    }

    /// Starts the program with a stdout that is closed on our side.
    pub fn start_unread(command: &mut Command) -> Self {
        let mut running = Self::start_with(command.stdout(Stdio::piped()));
        drop(running.child.stdout.take());
        running
    }

    fn start_with(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = collect(child.stderr.take().unwrap());
        Self { child, stdout: None, stderr: Some(stderr) }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end, and kills the program if that takes too long.
    pub fn wait(mut self) -> Ended {
        let status = self.wait_status();
        let gather = |pipe: &mut Option<Collector>| pipe.take().map_or_else(String::new, Collector::wait);
        Ended { code: status.code(), stdout: gather(&mut self.stdout), stderr: gather(&mut self.stderr) }
    }

    /// Returns its stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.as_ref().map_or_else(String::new, Collector::said)
    }

    /// Returns its stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.as_ref().unwrap().said()
    }

    /// Waits until stderr contains this text.
    #[track_caller]
    pub fn until_said(&self, text: &str) {
        until(&format!("{text:?} on stderr"), || self.stderr().contains(text));
    }

    fn wait_status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("test timed out: the program ends: {:?}", self.child.wait());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> Collector {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let reader = thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            heard.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
    Collector { reader, said }
}

impl Collector {
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn wait(self) -> String {
        self.reader.join().unwrap();
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }
}

/// Waits until the condition holds; panics if it takes too long.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(comes(&mut holds), "test timed out: {what}");
}

/// Waits until the condition holds. Returns false if it takes too long.
pub fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}
