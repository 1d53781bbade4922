//! The minder: a small process beside the worker that ends what the worker leaves behind when it is killed.
//!
//! A worker that gets SIGKILL can do nothing about the processes it has started, and others will start its messages again.
//! So it tells the minder of each process group that it opens and closes, through a pipe. When the pipe ends, for whatever
//! reason, the minder kills the groups that are still open, removes the folder that they shared, and exits.
//!
//! It may also be told of a program that is to run then, for what killing processes does not end.
//!
//! A group of which the minder was not told yet gets away: a worker has to be killed in the very moment in which it starts a
//! process for that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use super::cleanup;
use super::program::Program;
use crate::failure::Failure;

/// The hidden command that is the minder.
pub(crate) const COMMAND: &str = "__minder";

/// The worker's end.
pub(crate) struct Minder {
    program: PathBuf,
    /// What is to be removed at the end.
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    process: Child,
    open: BTreeSet<i32>,
    cleanup: Option<String>,
}

impl Minder {
    pub(crate) fn start(folder: PathBuf) -> Result<Self, Failure> {
        let wrong =
            |error: io::Error| Failure::failed(format!("the minder of processes cannot be started: {error}"));
        let program = std::env::current_exe().map_err(wrong)?;
        let process = launch(&program, &folder).map_err(wrong)?;
        Ok(Self {
            program,
            folder,
            state: Mutex::new(State { process, open: BTreeSet::new(), cleanup: None }),
        })
    }

    /// This group is to end with the worker.
    pub(crate) fn open(&self, group: Pid) {
        let mut state = self.state();
        state.open.insert(group.as_raw_pid());
        self.tell(&mut state, &format!("+{}\n", group.as_raw_pid()));
    }

    /// This group has ended.
    pub(crate) fn close(&self, group: Pid) {
        let mut state = self.state();
        state.open.remove(&group.as_raw_pid());
        self.tell(&mut state, &format!("-{}\n", group.as_raw_pid()));
    }

    /// If the worker is killed, this is to run; there is room for one.
    pub(crate) fn clean_up_by(&self, program: Option<&Program>) {
        let mut state = self.state();
        state.cleanup = program.map(words);
        let line = state.cleanup.clone().unwrap_or_else(|| "!\n".to_owned());
        self.tell(&mut state, &line);
    }

    /// Somebody may have killed the minder: then there is a new one, which is told everything.
    fn tell(&self, state: &mut State, line: &str) {
        if write(&mut state.process, line).is_ok() {
            return;
        }
        let _ = state.process.wait();
        let groups = state.open.iter().map(|group| format!("+{group}\n"));
        let all: String = groups.chain(state.cleanup.clone()).collect();
        let again = launch(&self.program, &self.folder).and_then(|mut process| {
            write(&mut process, &all)?;
            Ok(process)
        });
        match again {
            Ok(process) => state.process = process,
            Err(error) => {
                tracing::warn!(%error, "there is no minder: processes would outlive this worker if it were killed")
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        let mut state = self.state();
        drop(state.process.stdin.take());
        let _ = state.process.wait();
    }
}

fn launch(program: &Path, folder: &Path) -> io::Result<Child> {
    // In a group of its own, so that what a terminal sends to the worker does not reach it.
    Command::new(program)
        .arg(COMMAND)
        .arg(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn write(process: &mut Child, lines: &str) -> io::Result<()> {
    let pipe = process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    pipe.write_all(lines.as_bytes())
}

/// What the minder is told at its start.
#[derive(Debug, clap::Args)]
pub(crate) struct MindArgs {
    /// The folder to remove at the end
    folder: PathBuf,
}

/// The minder's end: reads until the pipe ends.
pub(crate) fn mind(args: &MindArgs) -> Result<(), Failure> {
    // A service manager may send these to all that belong to the worker; the minder goes when the worker has gone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let deaf: Vec<_> =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
            .into_iter()
            .map(signal)
            .collect();
    let (mut open, mut cleanup) = (BTreeSet::new(), None);
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        match line.strip_prefix(b"!") {
            Some(words) => cleanup = program(words),
            None => note(&mut open, &line),
        }
    }
    for group in open.into_iter().filter_map(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(mut running) = cleanup.and_then(|cleanup| cleanup::start(&cleanup).ok()) {
        let _ = running.wait();
    }
    // It is gone already if the worker has come to its end.
    let _ = std::fs::remove_dir_all(&args.folder);
    drop((deaf, entered));
    Ok(())
}

/// A program in one line: its words in hexadecimal digits, as they may be any bytes.
fn words(program: &Program) -> String {
    let hex = |word: &OsStr| word.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let words = std::iter::once(program.path.as_os_str()).chain(program.args.iter().map(OsString::as_os_str));
    format!("!{}\n", words.map(hex).collect::<Vec<_>>().join(" "))
}

/// The program that such a line names, if it does.
fn program(line: &[u8]) -> Option<Program> {
    let word = |text: &str| {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes =
            digits?.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        Some(OsString::from_vec(bytes))
    };
    let words: Option<Vec<OsString>> = std::str::from_utf8(line).ok()?.split(' ').map(word).collect();
    let mut words = words?.into_iter();
    let path = words.next().filter(|path| !path.is_empty())?;
    Some(Program { path: path.into(), args: words.collect() })
}

fn note(open: &mut BTreeSet<i32>, line: &[u8]) {
    let Some((sign, number)) = line.split_first() else { return };
    let Ok(group) = String::from_utf8_lossy(number).parse::<i32>() else { return };
    // 0 and 1 would be the minder's own group, and everything there is.
    match sign {
        b'+' if group > 1 => open.insert(group),
        _ => open.remove(&group),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minder_knows_which_groups_are_open() {
        let mut open = BTreeSet::new();
        for line in ["+12", "+13", "-12", "", "x", "+", "+0", "+1", "+-5", "-99"] {
            note(&mut open, line.as_bytes());
        }
        assert_eq!(open.into_iter().collect::<Vec<_>>(), [13]);
    }

    #[test]
    fn a_program_survives_its_line() {
        let args = ["", "a b", "ä\n!", "-x"].map(OsString::from).to_vec();
        let line = words(&Program { path: "/bin/x y".into(), args: args.clone() });
        let line = line.strip_prefix('!').unwrap().strip_suffix('\n').unwrap();
        let read = program(line.as_bytes()).unwrap();
        assert_eq!((read.path.as_path(), read.args), (Path::new("/bin/x y"), args));
        assert!(program(b"").is_none() && program(b"xy").is_none());
    }
}
