//! A server that runs: a process and the folder that it names in its command line.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Kind;
use crate::process::too_slow;

/// How long a server may take to stop when it is asked to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that was started here, perhaps by another run of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// What it is.
    pub kind: Kind,
    /// Its process.
    pub pid: u32,
    /// Everything that it keeps; it goes when the server goes.
    pub folder: PathBuf,
    /// Where clients find it, with user and password.
    pub url: String,
}

impl Running {
    /// True if this very server runs: a process with this id may by now be somebody else's.
    pub fn is_alive(&self) -> bool {
        let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", self.pid));
        let folder = self.folder.to_string_lossy();
        let named =
            fs::read(of("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*folder));
        let zombie = fs::read_to_string(of("stat"))
            .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z')));
        named && !zombie
    }

    /// Ends it, by force if it must be, and removes what it kept.
    pub fn stop(&self) {
        if let Err(why) = self.end_politely() {
            eprintln!("warning: {why}");
        }
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("warning: {} cannot be removed: {error}", self.folder.display());
        }
    }

    /// Asks it to stop and waits. Who does not hear is killed, and that is an error.
    pub(crate) fn end_politely(&self) -> Result<(), String> {
        if !self.is_alive() {
            return Ok(());
        }
        // SIGINT is a quick and clean end to PostgreSQL; SIGTERM would wait for its clients. PgBouncer's SIGINT would.
        let polite = match self.kind {
            Kind::Postgres | Kind::Postgres18 => "-INT",
            _ => "-TERM",
        };
        signal(polite, &[self.pid])?;
        if self.ended() {
            return Ok(());
        }
        self.kill()?;
        Err(too_slow(&format!("{} ({}) did not stop and was killed", self.kind.name(), self.pid)))
    }

    /// Ends it at once, with the processes that it started: they would else go on for a moment, and hold what they hold.
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
        if started.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn signal(signal: &str, pids: &[u32]) -> Result<(), String> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // One of them may have ended by itself; whether they all have is looked at afterwards.
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
