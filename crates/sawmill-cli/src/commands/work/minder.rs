//! The minder: a small process beside the worker that ends what the worker leaves when it is killed.
//!
//! A worker that gets SIGKILL cannot end the processes that it has started, and other workers will run its
//! messages again. So the worker reports every process group that it opens and closes to the minder through a
//! pipe. When the pipe closes, for whatever reason, the minder kills the groups that are still open, removes
//! the folder that they shared, and exits.
//!
//! The worker can also name a program to run at that point, to clean up what killing processes does not end.
//!
//! A group escapes if the worker is killed right after starting its process and before reporting it.

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

/// The hidden command that runs the minder.
pub(crate) const COMMAND: &str = "__minder";

/// The worker's side of the minder.
pub(crate) struct Minder {
    program: PathBuf,
    /// The folder to remove at the end.
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

    /// Reports a group that must end with the worker.
    pub(crate) fn open(&self, group: Pid) {
        let mut state = self.state();
        state.open.insert(group.as_raw_pid());
        self.send(&mut state, &format!("+{}\n", group.as_raw_pid()));
    }

    /// Reports that a group has ended.
    pub(crate) fn close(&self, group: Pid) {
        let mut state = self.state();
        state.open.remove(&group.as_raw_pid());
        self.send(&mut state, &format!("-{}\n", group.as_raw_pid()));
    }

    /// Sets the one program to run if the worker is killed, or none.
    pub(crate) fn set_cleanup(&self, program: Option<&Program>) {
        let mut state = self.state();
        state.cleanup = program.map(encode);
        let line = state.cleanup.clone().unwrap_or_else(|| "!\n".to_owned());
        self.send(&mut state, &line);
    }

    /// Sends a line to the minder. If the minder was killed, starts a new one and sends it the whole state.
    fn send(&self, state: &mut State, line: &str) {
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
    // In its own process group, so that signals from the terminal of the worker do not reach it.
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

/// Arguments of the minder.
#[derive(Debug, clap::Args)]
pub(crate) struct MinderArgs {
    /// The folder to remove at the end
    folder: PathBuf,
}

/// Runs the minder: reads until the pipe closes.
pub(crate) fn run(args: &MinderArgs) -> Result<(), Failure> {
    // A service manager may send these signals to all processes of the worker. The minder ignores them and
    // exits when the worker has ended.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ignored: Vec<_> =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
            .into_iter()
            .map(signal)
            .collect();
    let (mut open, mut cleanup) = (BTreeSet::new(), None);
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        match line.strip_prefix(b"!") {
            Some(words) => cleanup = decode(words),
            None => record(&mut open, &line),
        }
    }
    for group in open.into_iter().filter_map(Pid::from_raw) {
        // The group may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(mut running) = cleanup.and_then(|cleanup| cleanup::start(&cleanup).ok()) {
        let _ = running.wait();
    }
    // The worker has removed it already if it ended normally.
    let _ = std::fs::remove_dir_all(&args.folder);
    drop((ignored, entered));
    Ok(())
}

/// Encodes a program in one line. Its words are in hexadecimal, as they may contain any byte.
fn encode(program: &Program) -> String {
    let hex = |word: &OsStr| word.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let words = std::iter::once(program.path.as_os_str()).chain(program.args.iter().map(OsString::as_os_str));
    format!("!{}\n", words.map(hex).collect::<Vec<_>>().join(" "))
}

/// Decodes such a line, if it is valid.
fn decode(line: &[u8]) -> Option<Program> {
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

fn record(open: &mut BTreeSet<i32>, line: &[u8]) {
    let Some((sign, number)) = line.split_first() else { return };
    let Ok(group) = String::from_utf8_lossy(number).parse::<i32>() else { return };
    // 0 would be the minder's own group, and 1 all processes.
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
            record(&mut open, line.as_bytes());
        }
        assert_eq!(open.into_iter().collect::<Vec<_>>(), [13]);
    }

    #[test]
    fn a_program_survives_its_line() {
        let args = ["", "a b", "ä\n!", "-x"].map(OsString::from).to_vec();
        let line = encode(&Program { path: "/bin/x y".into(), args: args.clone() });
        let line = line.strip_prefix('!').unwrap().strip_suffix('\n').unwrap();
        let read = decode(line.as_bytes()).unwrap();
        assert_eq!((read.path.as_path(), read.args), (Path::new("/bin/x y"), args));
        assert!(decode(b"").is_none() && decode(b"xy").is_none());
    }
}
