//! A running server: a process, recognised by the folder in its command line.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Kind;
use crate::process::too_slow;

/// How long a server may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that was started by this program, or by an earlier run of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The kind of server.
    pub kind: Kind,
    /// Its process id.
    pub pid: u32,
    /// All its files; removed with the server.
    pub folder: PathBuf,
    /// The URL for clients, with user and password.
    pub url: String,
}

impl Running {
    /// True if this server runs: the process id alone may have been reused.
    pub fn is_alive(&self) -> bool {
        let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", self.pid));
        let folder = self.folder.to_string_lossy();
        let named =
            fs::read(of("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*folder));
        let zombie = fs::read_to_string(of("stat"))
            .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z')));
        named && !zombie
    }

    /// Ends it, by force if necessary, and removes its folder.
    pub fn stop(&self) {
        if let Err(why) = self.end_gracefully() {
            eprintln!("warning: {why}");
        }
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("warning: {} cannot be removed: {error}", self.folder.display());
        }
    }

    /// Asks it to stop and waits. If it does not stop in time, kills it and returns an error.
    pub(crate) fn end_gracefully(&self) -> Result<(), String> {
        if !self.is_alive() {
            return Ok(());
        }
        // SIGINT stops PostgreSQL quickly and cleanly; SIGTERM would wait for its clients. For PgBouncer it
        // is the other way round.
        let stop_signal = match self.kind {
            Kind::Postgres | Kind::Postgres18 => "-INT",
            _ => "-TERM",
        };
        signal(stop_signal, &[self.pid])?;
        if self.ended() {
            return Ok(());
        }
        self.kill()?;
        Err(too_slow(&format!("{} ({}) did not stop and was killed", self.kind.name(), self.pid)))
    }

    /// Kills it with its child processes, which would otherwise live on for a moment and keep their ports and
    /// locks.
    pub(crate) fn kill(&self) -> Result<(), String> {
        if !self.is_alive() {
            return Ok(());
        }
        let mut all = vec![self.pid];
        all.extend(children(self.pid));
        signal("-KILL", &all)?;
        let gone = self.ended() && wait_for(|| all.iter().all(|pid| !runs(*pid)));
        if gone {
            Ok(())
        } else {
            Err(too_slow(&format!("{} ({}) cannot be killed", self.kind.name(), self.pid)))
        }
    }

    fn ended(&self) -> bool {
        wait_for(|| !self.is_alive())
    }
}

fn wait_for(condition: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > STOP_TIMEOUT {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn signal(signal: &str, pids: &[u32]) -> Result<(), String> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // A process may have ended by itself, so the exit code is ignored; the caller checks that all have ended.
    let sent = Command::new("kill").arg(signal).args(&pids).stderr(Stdio::null()).status();
    sent.map(|_| ()).map_err(|error| format!("process {} cannot be ended: {error}", pids.join(", ")))
}

/// The state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_name_the_folder_is_a_stranger_and_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("no-such-server-{}", std::process::id()));
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let url = "postgres://a:b@127.0.0.1:1/c".to_owned();
        let server = Running { kind: Kind::Postgres, pid: stranger.id(), folder, url };
        assert!(!server.is_alive());
        server.stop();
        assert!(server.kill().is_ok());
        assert!(stranger.try_wait().unwrap().is_none(), "it still runs");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
